//! Reads that the host does not wait for: the device copies bytes into a pinned slot in stream
//! order, and the host takes them from there when it needs them.

use crate::context::DriverContext;
use crate::error::CudaError;
use crate::memory::PinnedMemory;
use crate::stream::Event;
use plan::Lane;
use std::sync::Arc;

/// Bytes of a slot: the losses of 16,384 sequences.
const SLOT: usize = 64 << 10;
/// Number of slots: the losses and the state of two iterations.
const SLOTS: usize = 4;

/// Pinned slots. A slot is taken from the start of a read until its bytes are fetched.
pub(crate) struct LateReads {
    context: Arc<DriverContext>,
    memory: PinnedMemory,
    marks: Vec<Event>,
    is_taken: [bool; SLOTS],
}

impl LateReads {
    pub(crate) fn new(context: &Arc<DriverContext>) -> Result<LateReads, CudaError> {
        let memory = PinnedMemory::new(context, (SLOT * SLOTS) as u64)?;
        let marks =
            (0..SLOTS).map(|_| Event::new(context, false)).collect::<Result<Vec<_>, _>>()?;
        Ok(LateReads { context: context.clone(), memory, marks, is_taken: [false; SLOTS] })
    }

    fn start_of(&self, slot: usize) -> *mut u8 {
        debug_assert!((slot + 1) * SLOT <= self.memory.bytes());
        // SAFETY: the slot is inside the memory.
        unsafe { self.memory.start().add(slot * SLOT) }
    }

    /// Starts to copy device bytes, after everything that was launched. Returns the slot, or none
    /// if no slot is free or large enough.
    ///
    /// # Safety
    /// The device has `bytes` bytes at `from`, and the range is ours.
    pub(crate) unsafe fn start(
        &mut self,
        from: u64,
        bytes: usize,
    ) -> Result<Option<usize>, CudaError> {
        let free = self.is_taken.iter().position(|is_taken| !is_taken);
        let Some(slot) = free.filter(|_| bytes <= SLOT) else {
            return Ok(None);
        };
        // SAFETY: the caller's promise; the slot has room, and nobody reads it before its mark.
        unsafe { self.context.download(Lane::Compute, self.start_of(slot), from, bytes) }?;
        self.marks[slot].record()?;
        self.is_taken[slot] = true;
        Ok(Some(slot))
    }

    /// Waits for a slot's bytes, copies them to `content`, and frees the slot.
    pub(crate) fn fetch(&mut self, slot: usize, content: &mut [u8]) -> Result<(), CudaError> {
        self.marks[slot].wait()?;
        let bytes = content.len().min(SLOT);
        // SAFETY: the copy into the slot is done, and `bytes` are inside both.
        unsafe {
            std::ptr::copy_nonoverlapping(self.start_of(slot), content.as_mut_ptr(), bytes);
        }
        self.give_up(slot);
        Ok(())
    }

    /// Frees a slot whose bytes nobody needs. A copy that is still under way ends before the next
    /// one into the slot, because both are in stream order.
    pub(crate) fn give_up(&mut self, slot: usize) {
        self.is_taken[slot] = false;
    }
}
