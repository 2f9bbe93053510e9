//! Memory that is allocated once and freed when its owner is dropped: device memory, and pinned
//! host memory.

use crate::context::DriverContext;
use crate::error::CudaError;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Device memory.
pub(crate) struct DeviceMemory {
    context: Arc<DriverContext>,
    address: u64,
    bytes: u64,
}

impl DeviceMemory {
    /// Allocates device memory.
    pub(crate) fn new(context: &Arc<DriverContext>, bytes: u64) -> Result<DeviceMemory, CudaError> {
        context.enter()?;
        let mut address = 0;
        // SAFETY: the pointer is to a local.
        context.check("cuMemAlloc", unsafe {
            (context.api().cuMemAlloc_v2)(&raw mut address, bytes.max(1) as usize)
        })?;
        context.allocated.fetch_add(bytes, Ordering::Relaxed);
        Ok(DeviceMemory { context: context.clone(), address, bytes })
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        let _ = self.context.enter();
        self.context.allocated.fetch_sub(self.bytes, Ordering::Relaxed);
        // SAFETY: ours, and freed once.
        unsafe { (self.context.api().cuMemFree_v2)(self.address) };
    }
}

/// Host memory that the device can copy from and to without an intermediate buffer.
pub(crate) struct PinnedMemory {
    context: Arc<DriverContext>,
    start: *mut u8,
    bytes: usize,
}

// SAFETY: plain memory that the value owns.
unsafe impl Send for PinnedMemory {}

impl PinnedMemory {
    /// Allocates pinned memory.
    pub(crate) fn new(context: &Arc<DriverContext>, bytes: u64) -> Result<PinnedMemory, CudaError> {
        context.enter()?;
        let mut start = std::ptr::null_mut();
        // SAFETY: the pointer is to a local; 0: no flags.
        context.check("cuMemHostAlloc", unsafe {
            (context.api().cuMemHostAlloc)(&raw mut start, bytes.max(1) as usize, 0)
        })?;
        Ok(PinnedMemory { context: context.clone(), start: start.cast(), bytes: bytes as usize })
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        let _ = self.context.enter();
        // SAFETY: ours, and freed once; the owner has waited for copies.
        unsafe { (self.context.api().cuMemFreeHost)(self.start.cast()) };
    }
}
