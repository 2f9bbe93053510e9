//! What can be wrong with a plan. `verify` reports these.

use crate::bytes::OPERAND_ALIGNMENT;
use std::fmt;

/// One defect, with the names of tensors and steps as its listing shows them.
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
    /// A step touches a tensor outside its lifetime in the plan.
    OutsideLife {
        /// Segment and step.
        at: String,
        /// The tensor.
        tensor: String,
    },
    /// A step reads bytes that were never written, or that another tensor has overwritten.
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
    /// An offset is not a multiple of the alignment.
    Misaligned {
        /// Segment.
        segment: String,
        /// The tensor.
        tensor: String,
        /// Its offset.
        offset: u64,
    },
    /// A step's operand is a window that starts where a kernel's widest access may not.
    MisalignedView {
        /// Segment and step.
        at: String,
        /// The window.
        tensor: String,
        /// Where it starts in the tensor that owns the bytes.
        offset: u64,
    },
    /// A step other than a transfer touches host memory.
    HostOperand {
        /// Segment and step.
        at: String,
        /// The tensor.
        tensor: String,
    },
    /// A transfer does not go from host memory to the device's or back.
    BadTransfer {
        /// Segment and step.
        at: String,
        /// From and to.
        tensors: [String; 2],
    },
    /// A step writes a run-wide input, which the host may be filling at the same time.
    InputWritten {
        /// Segment and step.
        at: String,
        /// The input.
        tensor: String,
    },
    /// Two segments use one run-wide input: the host cannot fill it while either runs.
    InputShared {
        /// The input.
        tensor: String,
        /// The segments.
        segments: [String; 2],
    },
    /// A tensor that outlives segments has different offsets in two of them.
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
        /// The op's own message.
        problem: String,
    },
    /// A step has no workspace, or one that is smaller than its backend's kernels need.
    SmallWorkspace {
        /// Segment and step.
        at: String,
        /// Bytes that the backend asks for; none when they do not fit 63 bits.
        needed: Option<u64>,
        /// Bytes of the step's workspace.
        given: u64,
    },
    /// Two steps on different lanes touch the same bytes, one of them writes, and neither waits for
    /// the other.
    Race {
        /// The steps.
        at: [String; 2],
        /// The tensors that share bytes.
        tensors: [String; 2],
    },
    /// A step waits for itself, a later step, a step of its own lane, or a step that does not
    /// exist.
    BadWait {
        /// Segment and step.
        at: String,
        /// The index of the step that it waits for.
        wait: usize,
    },
    /// A tensor has no placement, one of the wrong size, or one beyond the arena.
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
                write!(f, "{at} touches {tensor} outside its lifetime")
            }
            Defect::ReadBeforeWrite { at, tensor } => {
                write!(f, "{at} reads {tensor}, which nothing has written")
            }
            Defect::Aliased { at, tensors: [a, b] } => {
                write!(f, "{at} writes {a} and touches {b}, which shares its bytes")
            }
            Defect::Misaligned { segment, tensor, offset } => {
                write!(f, "{segment}: {tensor} has offset {offset}, which is not aligned")
            }
            Defect::MisalignedView { at, tensor, offset } => {
                write!(f, "{at} touches {tensor}, a window at byte {offset}, not a multiple of ")?;
                write!(f, "{OPERAND_ALIGNMENT}")
            }
            Defect::HostOperand { at, tensor } => {
                write!(f, "{at} touches {tensor}, which is in host memory")
            }
            Defect::BadTransfer { at, tensors: [from, to] } => {
                write!(f, "{at} copies {from} to {to}: exactly one of them must be on the host")
            }
            Defect::InputWritten { at, tensor } => {
                write!(f, "{at} writes {tensor}, an input that only the host writes")
            }
            Defect::InputShared { tensor, segments: [a, b] } => {
                write!(f, "{tensor} is an input of one segment, but {a} and {b} use it")
            }
            Defect::Moved { tensor, segments: [a, b], offsets: [at_a, at_b] } => {
                write!(f, "{tensor} has offset {at_a} in {a} and {at_b} in {b}")
            }
            Defect::Rule { at, problem } => write!(f, "{at}: {problem}"),
            Defect::SmallWorkspace { at, needed: Some(needed), given } => {
                write!(f, "{at} has {given} bytes of workspace, {needed} needed")
            }
            Defect::SmallWorkspace { at, needed: None, given } => {
                write!(f, "{at} has {given} bytes of workspace, more than 2^63 needed")
            }
            Defect::Race { at: [first, second], tensors: [a, b] } => {
                write!(f, "{first} and {second} race: {a} and {b} share bytes")
            }
            Defect::BadWait { at, wait } => {
                write!(
                    f,
                    "{at} waits for step {wait}, which is not an earlier step of another lane"
                )
            }
            Defect::Misplaced { segment, tensor, problem } => {
                write!(f, "{segment}: {tensor} {problem}")
            }
        }
    }
}
