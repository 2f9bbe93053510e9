//! What can be wrong with a schedule before anything runs. Messages contain the numbers.

use crate::bytes::Bytes;
use crate::tensor::{Dtype, Shape};
use std::fmt;

/// A schedule that cannot be built or placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// A dimension is zero, or there are too many of them.
    BadShape {
        /// The dimensions as given.
        dims: Vec<u64>,
    },
    /// A tensor's byte count does not fit 63 bits.
    TooLarge {
        /// The tensor's name.
        name: String,
        /// Its shape.
        shape: Shape,
        /// Its element type.
        dtype: Dtype,
    },
    /// The sum of tensors does not fit 63 bits.
    ArenaTooLarge {
        /// What was being placed when the sum overflowed.
        at: String,
    },
    /// A view extends beyond the tensor whose bytes it shares.
    ViewOutside {
        /// The view's name.
        name: String,
        /// Where it would end.
        end: Option<Bytes>,
        /// The size of its parent.
        parent: Bytes,
    },
    /// A view starts inside an element, or has another scope than its root.
    ViewMismatch {
        /// The view's name.
        name: String,
        /// Where it starts.
        offset: Bytes,
    },
    /// An operand has a shape or type that its op does not accept.
    Operand {
        /// The op.
        op: &'static str,
        /// The operand's role in the op and the tensor's name.
        operand: String,
        /// What was found.
        found: String,
        /// What the op needs.
        wanted: String,
    },
    /// An attribute of an op is outside its range.
    Attribute {
        /// The op.
        op: &'static str,
        /// What is wrong, with the number.
        problem: String,
    },
    /// The backward walk met an op that has no backward, or a gradient that no step produces.
    NoGradient {
        /// The op whose backward was asked for.
        op: &'static str,
        /// What is missing.
        missing: String,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::BadShape { dims } => {
                write!(f, "shape {dims:?}: 1 to 5 dimensions of at least 1 are needed")
            }
            PlanError::TooLarge { name, shape, dtype } => {
                write!(f, "tensor {name} {shape} {dtype} is larger than 2^63 bytes")
            }
            PlanError::ArenaTooLarge { at } => {
                write!(f, "the arena passes 2^63 bytes at {at}")
            }
            PlanError::ViewOutside { name, end, parent } => match end {
                Some(end) => write!(f, "view {name} ends at {end}, its parent has {parent}"),
                None => write!(f, "view {name} ends beyond 2^63 bytes, its parent has {parent}"),
            },
            PlanError::ViewMismatch { name, offset } => {
                write!(f, "view {name}, {offset} into its root, must start at a whole element ")?;
                write!(f, "and have its root's scope")
            }
            PlanError::Operand { op, operand, found, wanted } => {
                write!(f, "{op}: operand {operand} is {found}, the op needs {wanted}")
            }
            PlanError::Attribute { op, problem } => write!(f, "{op}: {problem}"),
            PlanError::NoGradient { op, missing } => {
                write!(f, "{op} cannot be differentiated: {missing}")
            }
        }
    }
}

impl std::error::Error for PlanError {}
