//! Pieces of all ranks, on every rank.

use crate::executor::StepContext;
use crate::wire::Wire;
use plan::BackendError;
use plan::ops::AllGather;

/// Copies this rank's piece to its place, then exchanges.
pub(crate) fn run(
    cx: &StepContext<'_>,
    op: &AllGather,
    wire: &mut Wire,
) -> Result<(), BackendError> {
    let size = cx.tensors.get(op.buffer).dtype.size() as usize;
    let buffer = cx.memory.write_bytes(op.buffer);
    if let Some(piece) = op.piece {
        let (first, piece) = (op.pieces.before_own() as usize * size, cx.memory.read_bytes(piece));
        buffer[first..first + piece.len()].copy_from_slice(piece);
    }
    match op.pieces.ranks() {
        1 => Ok(()),
        _ => wire.all_gather(buffer, (&op.pieces, size)),
    }
}
