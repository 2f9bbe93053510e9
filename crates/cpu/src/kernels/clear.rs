//! Zeros.

use crate::executor::StepContext;
use plan::BackendError;
use plan::ops::Clear;

/// `tensor = 0`.
pub(crate) fn run(cx: &StepContext<'_>, op: &Clear) -> Result<(), BackendError> {
    cx.memory.write_bytes(op.tensor).fill(0);
    Ok(())
}
