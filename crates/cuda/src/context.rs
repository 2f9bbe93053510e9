//! A GPU's context and its streams, one for each lane of the schedule. What a stream is given runs
//! in order. Matmuls and the host's own copies are on the stream of the compute lane.

use crate::driver::{Driver, DriverApi, Handle};
use crate::error::CudaError;
use crate::module::Function;
use plan::Lane;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most parameters that a kernel of ours has.
pub(crate) const MOST_ARGUMENTS: usize = 20;

/// A kernel's arguments as the driver copies them: one word for a number or an address, more for
/// what is passed by value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arguments {
    words: Vec<u64>,
    /// The first word of each.
    starts: Vec<usize>,
}

impl Arguments {
    /// Adds the next one.
    pub(crate) fn push(&mut self, words: &[u64]) {
        self.starts.push(self.words.len());
        self.words.extend(words);
    }

    /// Where each begins; a pointer leads to all its words.
    fn pointers(&self) -> impl Iterator<Item = *const u64> {
        self.starts.iter().filter_map(|&start| self.words.get(start..)).map(<[u64]>::as_ptr)
    }
}

/// A GPU's context with its streams.
pub(crate) struct DriverContext {
    driver: Arc<Driver>,
    device: i32,
    context: Handle,
    /// By lane.
    streams: [Handle; Lane::ALL.len()],
    /// Bytes of device memory allocated through it now.
    pub(crate) allocated: AtomicU64,
}

// SAFETY: the handles may be used from any thread that has made the context its current one, which
// everybody here does with `enter` before a call or a series of them.
unsafe impl Send for DriverContext {}
// SAFETY: as above; the driver's calls are safe to make from several threads.
unsafe impl Sync for DriverContext {}

impl DriverContext {
    /// Creates the GPU's context.
    pub(crate) fn new(driver: Arc<Driver>, device: i32) -> Result<Arc<DriverContext>, CudaError> {
        let mut context = std::ptr::null_mut();
        let streams = [std::ptr::null_mut(); Lane::ALL.len()];
        // SAFETY: the pointer is to a local.
        driver.check("cuDevicePrimaryCtxRetain", unsafe {
            (driver.api.cuDevicePrimaryCtxRetain)(&raw mut context, device)
        })?;
        let allocated = AtomicU64::new(0);
        let mut made = DriverContext { driver, device, context, streams, allocated };
        made.enter()?;
        for lane in 0..made.streams.len() {
            let mut stream = std::ptr::null_mut();
            let create = made.api().cuStreamCreate;
            // SAFETY: the pointer is to a local. 1: it does not wait for the default stream.
            made.check("cuStreamCreate", unsafe { create(&raw mut stream, 1) })?;
            made.streams[lane] = stream;
        }
        Ok(Arc::new(made))
    }

    /// The driver's functions.
    pub(crate) fn api(&self) -> &DriverApi {
        &self.driver.api
    }

    /// The result of a call as an error with the driver's message.
    pub(crate) fn check(&self, call: &'static str, code: i32) -> Result<(), CudaError> {
        self.driver.check(call, code)
    }

    /// Makes the context current in the calling thread.
    pub(crate) fn enter(&self) -> Result<(), CudaError> {
        // SAFETY: the context lives as long as `self`.
        self.check("cuCtxSetCurrent", unsafe { (self.api().cuCtxSetCurrent)(self.context) })
    }

    /// Bytes of device memory allocated through it now.
    pub(crate) fn allocated(&self) -> u64 {
        self.allocated.load(Ordering::Relaxed)
    }

    /// The stream of kernels, for a library that launches on it.
    pub(crate) fn stream(&self) -> Handle {
        self.stream_of(Lane::Compute)
    }

    pub(crate) fn stream_of(&self, lane: Lane) -> Handle {
        self.streams[lane as usize]
    }

    /// Free bytes and total bytes of the device's memory.
    pub(crate) fn memory(&self) -> Result<(u64, u64), CudaError> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the pointers are to locals; the context is current.
        self.check("cuMemGetInfo", unsafe {
            (self.api().cuMemGetInfo_v2)(&raw mut free, &raw mut total)
        })?;
        Ok((free as u64, total as u64))
    }

    /// Waits until everything launched has ended. If the GPU has failed, the error appears here.
    pub(crate) fn synchronize(&self) -> Result<(), CudaError> {
        self.enter()?;
        self.streams.iter().try_for_each(|&stream| {
            // SAFETY: the stream is ours.
            self.check("cuStreamSynchronize", unsafe { (self.api().cuStreamSynchronize)(stream) })
        })
    }

    /// Waits until everything that a lane was given has ended.
    pub(crate) fn synchronize_lane(&self, lane: Lane) -> Result<(), CudaError> {
        let stream = self.stream_of(lane);
        // SAFETY: the stream is ours.
        self.check("cuStreamSynchronize", unsafe { (self.api().cuStreamSynchronize)(stream) })
    }

    /// Whether everything launched has ended. A GPU that has failed runs nothing any more.
    pub(crate) fn is_idle(&self) -> bool {
        const NOT_READY: i32 = 600;
        // SAFETY: the streams are ours.
        self.streams
            .iter()
            .all(|&stream| unsafe { (self.api().cuStreamQuery)(stream) } != NOT_READY)
    }

    /// Copies host bytes to the device, in the order of the lane's stream.
    ///
    /// # Safety
    /// `to` has room for all of `from`. `from` is pinned and unchanged until the copy is done, or
    /// pageable: then the call itself waits.
    pub(crate) unsafe fn upload(
        &self,
        lane: Lane,
        to: u64,
        from: *const u8,
        bytes: usize,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        self.check("cuMemcpyHtoD", unsafe {
            (self.api().cuMemcpyHtoDAsync_v2)(to, from.cast(), bytes, self.stream_of(lane))
        })
    }

    /// Copies device bytes to the host, in the order of the lane's stream.
    ///
    /// # Safety
    /// `to` has room for `bytes` and is not touched until the stream was waited for.
    pub(crate) unsafe fn download(
        &self,
        lane: Lane,
        to: *mut u8,
        from: u64,
        bytes: usize,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        self.check("cuMemcpyDtoH", unsafe {
            (self.api().cuMemcpyDtoHAsync_v2)(to.cast(), from, bytes, self.stream_of(lane))
        })
    }

    /// Copies device bytes to another place on the device, in the order of the lane's stream.
    ///
    /// # Safety
    /// Both ranges are ours and do not overlap.
    pub(crate) unsafe fn copy(
        &self,
        lane: Lane,
        to: u64,
        from: u64,
        bytes: usize,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        self.check("cuMemcpyDtoD", unsafe {
            (self.api().cuMemcpyDtoDAsync_v2)(to, from, bytes, self.stream_of(lane))
        })
    }

    /// Sets device bytes, in the order of the lane's stream.
    ///
    /// # Safety
    /// The range is ours.
    pub(crate) unsafe fn fill(
        &self,
        lane: Lane,
        at: u64,
        byte: u8,
        bytes: usize,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        self.check("cuMemset", unsafe {
            (self.api().cuMemsetD8Async)(at, byte, bytes, self.stream_of(lane))
        })
    }

    /// Launches a kernel on a lane's stream.
    ///
    /// # Safety
    /// The arguments are what the kernel's signature says, and its pointers lead to memory of ours.
    pub(crate) unsafe fn launch(
        &self,
        lane: Lane,
        function: Function,
        [grid, block, shared]: [u32; 3],
        arguments: &Arguments,
    ) -> Result<(), CudaError> {
        let mut slots = [std::ptr::null_mut::<c_void>(); MOST_ARGUMENTS];
        for (slot, argument) in slots.iter_mut().zip(arguments.pointers()) {
            *slot = argument.cast_mut().cast();
        }
        // SAFETY: the caller's promise; the driver reads each slot before it returns.
        self.check("cuLaunchKernel", unsafe {
            (self.api().cuLaunchKernel)(
                function.handle(),
                grid,
                1,
                1,
                block,
                1,
                1,
                shared,
                self.stream_of(lane),
                slots.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        })
    }
}

impl Drop for DriverContext {
    fn drop(&mut self) {
        // Failures are ignored: either the process ends or the GPU is lost.
        let _ = self.enter();
        for stream in self.streams.into_iter().filter(|stream| !stream.is_null()) {
            // SAFETY: the stream is ours and nobody uses it after this.
            unsafe { (self.api().cuStreamDestroy_v2)(stream) };
        }
        // SAFETY: retained once, in `new`.
        unsafe { (self.api().cuDevicePrimaryCtxRelease_v2)(self.device) };
    }
}
