//! What can be wrong with a plan.

use std::fmt;

/// One thing that is wrong with a plan, by the names a person can look up in its listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Two tensors share bytes while both are alive.
    Overlap {
        /// Segment.
        segment: String,
        /// The tensors.
        tensors: [String; 2],
        /// How many bytes they share.
        bytes: u64,
    },
    /// A step touches a tensor outside the time the plan keeps its bytes.
    OutsideLife {
        /// Segment and step.
        at: String,
        /// The tensor.
        tensor: String,
    },
    /// A step reads bytes that were never written, or were written by another tensor since.
    ReadBeforeWrite {
        /// Segment and step.
        at: String,
        /// The tensor.
        tensor: String,
    },
    /// A step writes an operand that shares bytes with another operand of the same step.
    Aliased {
        /// Segment and step.
        at: String,
        /// The operands' tensors.
        tensors: [String; 2],
    },
    /// An offset that is no multiple of the alignment.
    Misaligned {
        /// Segment.
        segment: String,
        /// The tensor.
        tensor: String,
        /// Its offset.
        offset: u64,
    },
    /// A tensor that outlives segments stands at different offsets in two of them.
    Moved {
        /// The tensor.
        tensor: String,
        /// The segments.
        segments: [String; 2],
        /// Its offsets in them.
        offsets: [u64; 2],
    },
    /// A step breaks the type or shape rule of its op.
    Rule {
        /// Segment and step.
        at: String,
        /// What the op says.
        problem: String,
    },
    /// A step has no workspace, or one that is smaller than its backend's kernels need.
    SmallWorkspace {
        /// Segment and step.
        at: String,
        /// Bytes that the scratch asks for; none when they do not fit 63 bits.
        needed: Option<u64>,
        /// Bytes that the step's workspace has.
        given: u64,
    },
    /// Two steps on different lanes touch the same bytes, one of them writes, and neither waits for
    /// the other.
    Race {
        /// The steps.
        at: [String; 2],
        /// What they touch there.
        tensors: [String; 2],
    },
    /// A step waits for itself, a later step, a step of its own lane or one that is not there.
    BadWait {
        /// Segment and step.
        at: String,
        /// The index of the step that it waits for.
        wait: usize,
    },
    /// A tensor has no place, a place of the wrong size, or one beyond the arena.
    Misplaced {
        /// Segment.
        segment: String,
        /// The tensor.
        tensor: String,
        /// What is wrong.
        problem: String,
    },
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Defect::Overlap { segment, tensors: [a, b], bytes } => {
                write!(f, "{segment}: {a} and {b} share {bytes} bytes while both are alive")
            }
            Defect::OutsideLife { at, tensor } => {
                write!(f, "{at} touches {tensor} when its bytes are not its own")
            }
            Defect::ReadBeforeWrite { at, tensor } => {
                write!(f, "{at} reads {tensor}, which nothing has written")
            }
            Defect::Aliased { at, tensors: [a, b] } => {
                write!(f, "{at} writes {a} and touches {b}, which shares its bytes")
            }
            Defect::Misaligned { segment, tensor, offset } => {
                write!(f, "{segment}: {tensor} stands at {offset}, which is not aligned")
            }
            Defect::Moved { tensor, segments: [a, b], offsets: [at_a, at_b] } => {
                write!(f, "{tensor} stands at {at_a} in {a} and at {at_b} in {b}")
            }
            Defect::Rule { at, problem } => write!(f, "{at}: {problem}"),
            Defect::SmallWorkspace { at, needed: Some(needed), given } => {
                write!(f, "{at} has {given} bytes of workspace, {needed} needed")
            }
            Defect::SmallWorkspace { at, needed: None, given } => {
                write!(f, "{at} has {given} bytes of workspace, more than 2^63 needed")
            }
            Defect::Race { at: [first, second], tensors: [a, b] } => {
                write!(f, "{first} and {second} have no order but share bytes: {a} and {b}")
            }
            Defect::BadWait { at, wait } => {
                write!(f, "{at} waits for step {wait}, which is no earlier step of another lane")
            }
            Defect::Misplaced { segment, tensor, problem } => {
                write!(f, "{segment}: {tensor} {problem}")
            }
        }
    }
}
