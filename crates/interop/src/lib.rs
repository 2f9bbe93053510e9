//! Model files of other programs, as sources of tensors. Nothing here knows a setting or a device.
#![forbid(unsafe_code)]

mod foreign;
mod error;

pub use error::{ForeignError, ForeignProblem};
pub use foreign::ForeignModel;
