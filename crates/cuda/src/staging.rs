//! Transfers between host and device: a ring of pinned buffers, so that the host can write the next
//! tokens while the device still works on the previous ones.

use crate::context::DriverContext;
use crate::error::CudaError;
use crate::memory::PinnedMemory;
use crate::stream::Event;
use plan::Lane;
use std::sync::Arc;

/// Bytes of a slot. Longer content is copied in pieces.
const SLOT: usize = 1 << 20;
/// Number of slots: the host can be at most this many writes ahead.
const SLOTS: usize = 4;

/// Pinned slots. A slot is free again when the stream has passed its event.
pub(crate) struct Staging {
    context: Arc<DriverContext>,
    memory: PinnedMemory,
    marks: Vec<Event>,
    next: usize,
}

impl Staging {
    pub(crate) fn new(context: &Arc<DriverContext>) -> Result<Staging, CudaError> {
        let memory = PinnedMemory::new(context, (SLOT * SLOTS) as u64)?;
        let marks =
            (0..SLOTS).map(|_| Event::new(context, false)).collect::<Result<Vec<_>, _>>()?;
        Ok(Staging { context: context.clone(), memory, marks, next: 0 })
    }

    /// A slot that no copy uses any more.
    fn slot(&mut self) -> Result<(usize, *mut u8), CudaError> {
        let slot = self.next;
        self.next = (slot + 1) % SLOTS;
        self.marks[slot].wait()?;
        debug_assert!((slot + 1) * SLOT <= self.memory.bytes());
        // SAFETY: the slot is inside the memory.
        Ok((slot, unsafe { self.memory.start().add(slot * SLOT) }))
    }

    /// Copies host bytes to the device, in stream order. Returns before the copy has ended.
    ///
    /// # Safety
    /// The device has room for all of `content` at `to`, and the range is ours.
    pub(crate) unsafe fn upload(&mut self, to: u64, content: &[u8]) -> Result<(), CudaError> {
        for (index, piece) in content.chunks(SLOT).enumerate() {
            let (slot, start) = self.slot()?;
            // SAFETY: a piece is at most a slot, and no copy reads the slot now.
            unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), start, piece.len()) };
            // SAFETY: the caller's promise; the slot is not written before its mark is passed.
            unsafe {
                self.context.upload(Lane::Compute, to + (index * SLOT) as u64, start, piece.len())
            }?;
            self.marks[slot].record()?;
        }
        Ok(())
    }

    /// Copies device bytes to the host, after everything that was launched. Two pieces are in
    /// flight at a time.
    ///
    /// # Safety
    /// The device has `content.len()` bytes at `from`, and the range is ours.
    pub(crate) unsafe fn download(
        &mut self,
        content: &mut [u8],
        from: u64,
    ) -> Result<(), CudaError> {
        let mut waiting: Option<(usize, *mut u8, &mut [u8])> = None;
        for (index, piece) in content.chunks_mut(SLOT).enumerate() {
            let (slot, start) = self.slot()?;
            // SAFETY: the caller's promise; the slot has room for a piece.
            unsafe {
                self.context.download(
                    Lane::Compute,
                    start,
                    from + (index * SLOT) as u64,
                    piece.len(),
                )
            }?;
            self.marks[slot].record()?;
            if let Some(arrived) = waiting.replace((slot, start, piece)) {
                self.take(arrived)?;
            }
        }
        waiting.map_or(Ok(()), |arrived| self.take(arrived))
    }

    fn take(&self, (slot, start, piece): (usize, *mut u8, &mut [u8])) -> Result<(), CudaError> {
        self.marks[slot].wait()?;
        // SAFETY: the copy into the slot is done, and the slot has room for a piece.
        unsafe { std::ptr::copy_nonoverlapping(start, piece.as_mut_ptr(), piece.len()) };
        Ok(())
    }
}
