//! Copies between the arena and the host's arena. On the CPU both are the same kind of memory, so
//! that plans for a device with offloaded state can be run here and compared.

use crate::executor::StepContext;
use plan::BackendError;
use plan::ops::Transfer;

/// `to = from`.
pub(crate) fn run(cx: &StepContext<'_>, op: &Transfer) -> Result<(), BackendError> {
    let (from, to) = cx.memory.copy(op.from, op.to);
    to.copy_from_slice(from);
    Ok(())
}
