//! The contract with whatever moves bytes between the ranks of a run: MPI, or nothing where there
//! is one rank. A plan says what travels and when; an [`Exchange`] knows neither tensors nor steps.

use crate::backend::BackendError;
use crate::ops::Op;
use crate::schedule::Schedule;

/// Moves bytes between the ranks of a run. Every rank makes the same calls in the same order, with
/// buffers that are divided in the same way. No call allocates after the first ones of its size.
pub trait Exchange: Send {
    /// This rank, from 0.
    fn rank(&self) -> usize;

    /// How many ranks there are.
    fn ranks(&self) -> usize;

    /// Sends each rank its piece. `pieces` has one length in bytes for each rank; the pieces of
    /// `send` follow one another. Afterwards row `s` of `received` is what rank `s` sent to this
    /// rank; each row has `pieces[self.rank()]` bytes.
    fn all_to_all(
        &mut self,
        send: &[u8],
        pieces: &[usize],
        received: &mut [u8],
    ) -> Result<(), BackendError>;

    /// Before the call this rank's piece of `buffer` is valid, afterwards all pieces are.
    fn all_gather(&mut self, buffer: &mut [u8], pieces: &[usize]) -> Result<(), BackendError>;

    /// Copies the buffer of rank `root` to all others.
    fn broadcast(&mut self, root: usize, buffer: &mut [u8]) -> Result<(), BackendError>;
}

/// Bytes of host memory through which everything that travels passes, one op at a time, where an
/// [`Exchange`] cannot reach the device's memory. 0 in a run of one rank.
pub fn staged_bytes(schedule: &Schedule) -> u64 {
    let of_op = |op: &Op| match op {
        Op::ReduceScatter(op) if op.pieces.ranks() > 1 => {
            let received = op.pieces.own().saturating_mul(op.pieces.ranks() as u64);
            let elements = op.pieces.total().saturating_add(received);
            elements.saturating_mul(op.wire.size())
        }
        Op::AllGather(op) if op.pieces.ranks() > 1 => schedule.tensors.bytes(op.buffer).get(),
        _ => 0,
    };
    let steps = schedule.segments.iter().flat_map(|segment| &segment.steps);
    steps.map(|step| of_op(&step.op)).max().unwrap_or(0)
}

/// A run of one rank: nothing travels.
#[derive(Clone, Copy, Debug, Default)]
pub struct OneRank;

impl Exchange for OneRank {
    fn rank(&self) -> usize {
        0
    }

    fn ranks(&self) -> usize {
        1
    }

    fn all_to_all(
        &mut self,
        send: &[u8],
        _: &[usize],
        received: &mut [u8],
    ) -> Result<(), BackendError> {
        if send.len() != received.len() {
            let (sent, room) = (send.len(), received.len());
            let what = format!("{sent} bytes for a buffer of {room} in a run of one rank");
            return Err(BackendError::Internal { what });
        }
        received.copy_from_slice(send);
        Ok(())
    }

    fn all_gather(&mut self, _: &mut [u8], _: &[usize]) -> Result<(), BackendError> {
        Ok(())
    }

    fn broadcast(&mut self, _: usize, _: &mut [u8]) -> Result<(), BackendError> {
        Ok(())
    }
}
