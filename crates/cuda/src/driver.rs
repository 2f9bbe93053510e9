//! The CUDA driver: the table of its functions that we call, and safe faces for what they manage.
//! Nothing newer than CUDA 12.0 is called. Every call that fails says which, in the driver's words.

use crate::library::{Library, LibraryError, Wanted, function_table};
use crate::nvml::GpuProcess;
use std::ffi::{CStr, CString, c_char, c_void};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The driver's library.
const DRIVER: Wanted = Wanted {
    name: "the NVIDIA driver (libcuda.so.1)",
    stem: "libcuda.so.1",
    majors: &[],
    before: &[],
    wheels: &[],
    install: "install NVIDIA's driver, 525 or newer",
};

/// CUDA 12.0, as the driver writes it.
const OLDEST: i32 = 12_000;

type Handle = *mut c_void;

function_table! {
    /// What we call of the driver.
    DriverApi {
        cuInit: fn(u32) -> i32,
        cuDriverGetVersion: fn(*mut i32) -> i32,
        cuGetErrorString: fn(i32, *mut *const c_char) -> i32,
        cuDeviceGetCount: fn(*mut i32) -> i32,
        cuDeviceGet: fn(*mut i32, i32) -> i32,
        cuDeviceGetName: fn(*mut c_char, i32, i32) -> i32,
        cuDeviceGetAttribute: fn(*mut i32, i32, i32) -> i32,
        cuDeviceTotalMem_v2: fn(*mut usize, i32) -> i32,
        cuDeviceGetPCIBusId: fn(*mut c_char, i32, i32) -> i32,
        cuDevicePrimaryCtxRetain: fn(*mut Handle, i32) -> i32,
        cuDevicePrimaryCtxRelease_v2: fn(i32) -> i32,
        cuCtxSetCurrent: fn(Handle) -> i32,
        cuMemGetInfo_v2: fn(*mut usize, *mut usize) -> i32,
        cuMemAlloc_v2: fn(*mut u64, usize) -> i32,
        cuMemFree_v2: fn(u64) -> i32,
        cuMemHostAlloc: fn(*mut Handle, usize, u32) -> i32,
        cuMemFreeHost: fn(Handle) -> i32,
        cuMemcpyHtoDAsync_v2: fn(u64, *const c_void, usize, Handle) -> i32,
        cuMemcpyDtoHAsync_v2: fn(*mut c_void, u64, usize, Handle) -> i32,
        cuMemsetD8Async: fn(u64, u8, usize, Handle) -> i32,
        cuStreamCreate: fn(*mut Handle, u32) -> i32,
        cuStreamDestroy_v2: fn(Handle) -> i32,
        cuStreamSynchronize: fn(Handle) -> i32,
        cuEventCreate: fn(*mut Handle, u32) -> i32,
        cuEventDestroy_v2: fn(Handle) -> i32,
        cuEventRecord: fn(Handle, Handle) -> i32,
        cuEventSynchronize: fn(Handle) -> i32,
        cuEventElapsedTime: fn(*mut f32, Handle, Handle) -> i32,
        cuModuleLoadData: fn(*mut Handle, *const c_void) -> i32,
        cuModuleUnload: fn(Handle) -> i32,
        cuModuleGetFunction: fn(*mut Handle, Handle, *const c_char) -> i32,
        cuFuncSetAttribute: fn(Handle, i32, i32) -> i32,
        cuLaunchKernel: fn(
            Handle, u32, u32, u32, u32, u32, u32, u32, Handle, *mut *mut c_void, *mut *mut c_void,
        ) -> i32,
        cuStreamBeginCapture_v2: fn(Handle, i32) -> i32,
        cuStreamEndCapture: fn(Handle, *mut Handle) -> i32,
        cuGraphInstantiateWithFlags: fn(*mut Handle, Handle, u64) -> i32,
        cuGraphUpload: fn(Handle, Handle) -> i32,
        cuGraphLaunch: fn(Handle, Handle) -> i32,
        cuGraphDestroy: fn(Handle) -> i32,
        cuGraphExecDestroy: fn(Handle) -> i32,
    }
}

/// A call that failed, or a driver that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CudaError {
    /// The library, or a function of it, is not there.
    Library(LibraryError),
    /// The driver's version, as it writes it, is below CUDA 12.0.
    TooOld {
        /// What it says.
        version: i32,
    },
    /// There is no GPU.
    NoDevice,
    /// That index is beyond the last GPU.
    NoSuchDevice {
        /// What was asked for.
        asked: u32,
        /// How many there are.
        count: u32,
    },
    /// The GPU's architecture is too old.
    Architecture {
        /// Its name.
        name: String,
        /// Its compute capability times ten.
        sm: u32,
    },
    /// There is no room for a context.
    Full {
        /// Who holds the memory.
        holders: Vec<GpuProcess>,
    },
    /// The compiler does not know the GPU's architecture.
    CompilerTooOld {
        /// The compiler's version.
        major: i32,
        /// Its second part.
        minor: i32,
        /// The architecture, times ten.
        sm: u32,
    },
    /// A call failed.
    Call {
        /// Which.
        call: &'static str,
        /// The driver's number.
        code: i32,
        /// The driver's words.
        said: String,
    },
    /// NVRTC refused a kernel.
    Compiler {
        /// The file.
        file: String,
        /// Its words.
        log: String,
    },
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CudaError::Library(error) => error.fmt(f),
            CudaError::TooOld { version } => {
                let (major, minor) = (version / 1000, version % 1000 / 10);
                write!(f, "the NVIDIA driver speaks CUDA {major}.{minor}, 12.0 is needed; ")?;
                f.write_str("install driver 525 or newer")
            }
            CudaError::NoDevice => {
                f.write_str("the NVIDIA driver sees no GPU (see nvidia-smi, CUDA_VISIBLE_DEVICES)")
            }
            CudaError::NoSuchDevice { asked, count } => {
                let s = if *count == 1 { "" } else { "s" };
                write!(f, "there is no GPU {asked}: this process sees {count} GPU{s}, ")?;
                f.write_str("counted from 0 (see `fitgpt devices`)")
            }
            CudaError::Architecture { name, sm } => {
                let (major, minor) = (sm / 10, sm % 10);
                write!(f, "{name} has compute capability {major}.{minor}, 8.0 is needed: ")?;
                f.write_str("RTX 30 series, A100 or newer")
            }
            CudaError::Full { holders } => {
                f.write_str("the GPU has no room for a context")?;
                let names: Vec<String> = holders.iter().map(ToString::to_string).collect();
                match names.is_empty() {
                    true => f.write_str("; end programs that use it"),
                    false => write!(f, "; its memory is held by {}", names.join(", ")),
                }
            }
            CudaError::CompilerTooOld { major, minor, sm } => {
                write!(f, "NVRTC {major}.{minor} does not know sm_{sm}; install a newer one, ")?;
                f.write_str("`pip install nvidia-cuda-nvrtc`")
            }
            CudaError::Call { call, code, said } => {
                write!(f, "{call}: {said} (error {code})")?;
                match STOPPED.contains(code) {
                    true => f.write_str("; the GPU stopped working in this run, see nvidia-smi"),
                    false => Ok(()),
                }
            }
            CudaError::Compiler { file, log } => write!(f, "NVRTC refused {file}: {log}"),
        }
    }
}

impl std::error::Error for CudaError {}

impl From<LibraryError> for CudaError {
    fn from(error: LibraryError) -> CudaError {
        CudaError::Library(error)
    }
}

/// The driver's number for memory that cannot be had.
pub(crate) const OUT_OF_MEMORY: i32 = 2;

/// The driver's numbers after which nothing works any more: a fault of memory or of a launch, an
/// uncorrectable error, a GPU that fell off the bus.
const STOPPED: [i32; 6] = [214, 700, 702, 715, 719, 999];

/// What a GPU is asked about, by the driver's numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Attribute {
    Multiprocessors = 16,
    Major = 75,
    Minor = 76,
}

/// The loaded driver.
pub struct Driver {
    api: DriverApi,
    version: i32,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CUDA driver {}", self.version)
    }
}

impl Driver {
    /// Finds and starts the driver.
    pub fn load() -> Result<Arc<Driver>, CudaError> {
        let api = DriverApi::load(Library::find(&DRIVER, None)?)?;
        let mut version = 0;
        // SAFETY: the pointer is to a local; allowed before `cuInit`.
        let code = unsafe { (api.cuDriverGetVersion)(&raw mut version) };
        let driver = Driver { api, version };
        driver.check("cuDriverGetVersion", code)?;
        if driver.version < OLDEST {
            return Err(CudaError::TooOld { version: driver.version });
        }
        // SAFETY: no argument but the reserved 0.
        match unsafe { (driver.api.cuInit)(0) } {
            100 => Err(CudaError::NoDevice),
            code => driver.check("cuInit", code).map(|()| Arc::new(driver)),
        }
    }

    /// The CUDA version that it speaks: 13000 is 13.0.
    pub fn version(&self) -> i32 {
        self.version
    }

    /// Where it was found.
    pub fn path(&self) -> &str {
        self.api.library.path()
    }

    /// Number of GPUs that this process may see.
    pub fn device_count(&self) -> Result<u32, CudaError> {
        let mut count = 0;
        // SAFETY: the pointer is to a local.
        self.check("cuDeviceGetCount", unsafe { (self.api.cuDeviceGetCount)(&raw mut count) })?;
        Ok(count.max(0) as u32)
    }

    pub(crate) fn device(&self, index: u32) -> Result<i32, CudaError> {
        let count = self.device_count()?;
        if count == 0 {
            return Err(CudaError::NoDevice);
        }
        if index >= count {
            return Err(CudaError::NoSuchDevice { asked: index, count });
        }
        let mut device = 0;
        // SAFETY: the pointer is to a local, the index is below the count.
        self.check("cuDeviceGet", unsafe {
            (self.api.cuDeviceGet)(&raw mut device, index as i32)
        })?;
        Ok(device)
    }

    pub(crate) fn name(&self, device: i32) -> Result<String, CudaError> {
        self.text("cuDeviceGetName", self.api.cuDeviceGetName, device)
    }

    pub(crate) fn pci_bus_id(&self, device: i32) -> Result<String, CudaError> {
        self.text("cuDeviceGetPCIBusId", self.api.cuDeviceGetPCIBusId, device)
    }

    fn text(
        &self,
        call: &'static str,
        function: unsafe extern "C" fn(*mut c_char, i32, i32) -> i32,
        device: i32,
    ) -> Result<String, CudaError> {
        let mut text = [0u8; 256];
        // SAFETY: the buffer has the length that is given; the last byte stays 0.
        self.check(call, unsafe { function(text.as_mut_ptr().cast(), 255, device) })?;
        let text = CStr::from_bytes_until_nul(&text).map(CStr::to_string_lossy);
        Ok(text.map(|text| text.into_owned()).unwrap_or_default())
    }

    pub(crate) fn attribute(&self, what: Attribute, device: i32) -> Result<u32, CudaError> {
        let mut value = 0;
        // SAFETY: the pointer is to a local.
        self.check("cuDeviceGetAttribute", unsafe {
            (self.api.cuDeviceGetAttribute)(&raw mut value, what as i32, device)
        })?;
        Ok(value.max(0) as u32)
    }

    pub(crate) fn total_memory(&self, device: i32) -> Result<u64, CudaError> {
        let mut bytes = 0;
        // SAFETY: the pointer is to a local.
        self.check("cuDeviceTotalMem", unsafe {
            (self.api.cuDeviceTotalMem_v2)(&raw mut bytes, device)
        })?;
        Ok(bytes as u64)
    }

    fn check(&self, call: &'static str, code: i32) -> Result<(), CudaError> {
        if code == 0 {
            return Ok(());
        }
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: the pointer is to a local; what it is set to is a constant of the driver.
        let known = unsafe { (self.api.cuGetErrorString)(code, &raw mut text) } == 0;
        let said = match known && !text.is_null() {
            // SAFETY: a constant string of the driver, as above.
            true => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
            false => "unknown".to_string(),
        };
        Err(CudaError::Call { call, code, said })
    }
}

/// A GPU's context with the one stream that everything runs on.
pub(crate) struct Context {
    driver: Arc<Driver>,
    device: i32,
    context: Handle,
    stream: Handle,
    /// Bytes of device memory that are taken through it now.
    allocated: AtomicU64,
}

// SAFETY: the handles may be used from any thread that has made the context its current one, which
// everybody here does with `enter` before a call or a series of them.
unsafe impl Send for Context {}
// SAFETY: as above; the driver's calls are safe to make from several threads.
unsafe impl Sync for Context {}

impl Context {
    /// Starts the GPU's context.
    pub(crate) fn new(driver: Arc<Driver>, device: i32) -> Result<Arc<Context>, CudaError> {
        let (mut context, mut stream) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the pointer is to a local.
        driver.check("cuDevicePrimaryCtxRetain", unsafe {
            (driver.api.cuDevicePrimaryCtxRetain)(&raw mut context, device)
        })?;
        let allocated = AtomicU64::new(0);
        let mut made = Context { driver, device, context, stream, allocated };
        made.enter()?;
        // SAFETY: the pointer is to a local. 1: it does not wait for the default stream.
        made.check("cuStreamCreate", unsafe { (made.api().cuStreamCreate)(&raw mut stream, 1) })?;
        made.stream = stream;
        Ok(Arc::new(made))
    }

    fn api(&self) -> &DriverApi {
        &self.driver.api
    }

    fn check(&self, call: &'static str, code: i32) -> Result<(), CudaError> {
        self.driver.check(call, code)
    }

    /// Makes the context the calling thread's.
    pub(crate) fn enter(&self) -> Result<(), CudaError> {
        // SAFETY: the context lives as long as `self`.
        self.check("cuCtxSetCurrent", unsafe { (self.api().cuCtxSetCurrent)(self.context) })
    }

    /// Bytes of device memory that are taken through it now.
    pub(crate) fn allocated(&self) -> u64 {
        self.allocated.load(Ordering::Relaxed)
    }

    /// The stream, for a library that launches on it.
    pub(crate) fn stream(&self) -> Handle {
        self.stream
    }

    /// Bytes of the device's memory that are free, and all of them.
    pub(crate) fn memory(&self) -> Result<(u64, u64), CudaError> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the pointers are to locals; the context is current.
        self.check("cuMemGetInfo", unsafe {
            (self.api().cuMemGetInfo_v2)(&raw mut free, &raw mut total)
        })?;
        Ok((free as u64, total as u64))
    }

    /// Waits until everything launched has ended. A GPU that failed says so here.
    pub(crate) fn synchronize(&self) -> Result<(), CudaError> {
        self.enter()?;
        // SAFETY: the stream is ours.
        self.check("cuStreamSynchronize", unsafe { (self.api().cuStreamSynchronize)(self.stream) })
    }

    /// Copies host bytes to the device; done when the stream gets there.
    ///
    /// # Safety
    /// `to` has room for all of `from`. `from` is pinned and unchanged until the copy is done, or
    /// pageable: then the call itself waits.
    pub(crate) unsafe fn upload(
        &self,
        to: u64,
        from: *const u8,
        bytes: usize,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        self.check("cuMemcpyHtoD", unsafe {
            (self.api().cuMemcpyHtoDAsync_v2)(to, from.cast(), bytes, self.stream)
        })
    }

    /// Copies device bytes to the host; done when the stream gets there.
    ///
    /// # Safety
    /// `to` has room for `bytes` and is not touched until the stream was waited for.
    pub(crate) unsafe fn download(
        &self,
        to: *mut u8,
        from: u64,
        bytes: usize,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        self.check("cuMemcpyDtoH", unsafe {
            (self.api().cuMemcpyDtoHAsync_v2)(to.cast(), from, bytes, self.stream)
        })
    }

    /// Sets device bytes.
    ///
    /// # Safety
    /// The range is ours.
    pub(crate) unsafe fn fill(&self, at: u64, byte: u8, bytes: usize) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        self.check("cuMemset", unsafe {
            (self.api().cuMemsetD8Async)(at, byte, bytes, self.stream)
        })
    }

    /// Launches a kernel. `arguments` has a slot of 8 bytes for each parameter.
    ///
    /// # Safety
    /// The arguments are what the kernel's signature says, and its pointers lead to memory of ours.
    pub(crate) unsafe fn launch(
        &self,
        function: Function,
        grid: u32,
        block: u32,
        shared: u32,
        arguments: &[u64],
    ) -> Result<(), CudaError> {
        let mut slots = [std::ptr::null_mut::<c_void>(); MOST_ARGUMENTS];
        for (slot, argument) in slots.iter_mut().zip(arguments) {
            *slot = std::ptr::from_ref(argument).cast_mut().cast();
        }
        // SAFETY: the caller's promise; the driver reads each slot before it returns.
        self.check("cuLaunchKernel", unsafe {
            (self.api().cuLaunchKernel)(
                function.0,
                grid,
                1,
                1,
                block,
                1,
                1,
                shared,
                self.stream,
                slots.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // Nothing can be done about a failure here: the process ends or the GPU is lost.
        let _ = self.enter();
        // SAFETY: the stream is ours and nobody uses it after this.
        unsafe { (self.api().cuStreamDestroy_v2)(self.stream) };
        // SAFETY: retained once, in `new`.
        unsafe { (self.api().cuDevicePrimaryCtxRelease_v2)(self.device) };
    }
}

/// The most parameters that a kernel of ours has.
pub(crate) const MOST_ARGUMENTS: usize = 20;

/// A kernel of a loaded module. It is valid as long as its module.
#[derive(Clone, Copy)]
pub(crate) struct Function(Handle);

// SAFETY: a handle that any thread may use once the context is current.
unsafe impl Send for Function {}

/// Loaded code.
pub(crate) struct Module {
    context: Arc<Context>,
    module: Handle,
}

// SAFETY: as for `Context`.
unsafe impl Send for Module {}

impl Module {
    /// Loads a cubin.
    pub(crate) fn new(context: &Arc<Context>, cubin: &[u8]) -> Result<Module, CudaError> {
        context.enter()?;
        let mut module = std::ptr::null_mut();
        // SAFETY: the pointer is to a local; the image is a whole ELF file, which has its own
        // length, and the driver copies it.
        context.check("cuModuleLoadData", unsafe {
            (context.api().cuModuleLoadData)(&raw mut module, cubin.as_ptr().cast())
        })?;
        Ok(Module { context: context.clone(), module })
    }

    /// A kernel by name, permitted so much dynamic shared memory.
    pub(crate) fn function(&self, name: &str, shared: u32) -> Result<Function, CudaError> {
        const MAX_DYNAMIC_SHARED: i32 = 8;
        const SHARED_CARVEOUT: i32 = 9;
        const ALL: i32 = 100;
        let symbol = CString::new(name).unwrap_or_default();
        let mut function = std::ptr::null_mut();
        let context = &self.context;
        // SAFETY: the pointers are to locals.
        context.check("cuModuleGetFunction", unsafe {
            (context.api().cuModuleGetFunction)(&raw mut function, self.module, symbol.as_ptr())
        })?;
        if shared > 0 {
            // SAFETY: the function is that of the module.
            context.check("cuFuncSetAttribute", unsafe {
                (context.api().cuFuncSetAttribute)(function, MAX_DYNAMIC_SHARED, shared as i32)
            })?;
            // Else the driver may leave room for one block where two would fit.
            // SAFETY: as above.
            context.check("cuFuncSetAttribute", unsafe {
                (context.api().cuFuncSetAttribute)(function, SHARED_CARVEOUT, ALL)
            })?;
        }
        Ok(Function(function))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let _ = self.context.enter();
        // SAFETY: ours; nothing of it runs, the owner has waited.
        unsafe { (self.context.api().cuModuleUnload)(self.module) };
    }
}

/// Device memory.
pub(crate) struct DeviceMemory {
    context: Arc<Context>,
    address: u64,
    bytes: u64,
}

impl DeviceMemory {
    /// Takes memory, or says that it cannot be had.
    pub(crate) fn new(context: &Arc<Context>, bytes: u64) -> Result<DeviceMemory, CudaError> {
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

/// Host memory that the device copies from and to without a stop between.
pub(crate) struct PinnedMemory {
    context: Arc<Context>,
    start: *mut u8,
    bytes: usize,
}

// SAFETY: plain memory that the value owns.
unsafe impl Send for PinnedMemory {}

impl PinnedMemory {
    /// Takes memory, or says that it cannot be had.
    pub(crate) fn new(context: &Arc<Context>, bytes: u64) -> Result<PinnedMemory, CudaError> {
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

/// A mark on the stream.
pub(crate) struct Event {
    context: Arc<Context>,
    event: Handle,
}

// SAFETY: as for `Context`.
unsafe impl Send for Event {}

impl Event {
    /// A mark that measures time, or one that only orders.
    pub(crate) fn new(context: &Arc<Context>, timed: bool) -> Result<Event, CudaError> {
        const DISABLE_TIMING: u32 = 2;
        context.enter()?;
        let mut event = std::ptr::null_mut();
        let flags = if timed { 0 } else { DISABLE_TIMING };
        // SAFETY: the pointer is to a local.
        context.check("cuEventCreate", unsafe {
            (context.api().cuEventCreate)(&raw mut event, flags)
        })?;
        Ok(Event { context: context.clone(), event })
    }

    pub(crate) fn record(&self) -> Result<(), CudaError> {
        let context = &self.context;
        // SAFETY: both handles are ours.
        context.check("cuEventRecord", unsafe {
            (context.api().cuEventRecord)(self.event, context.stream)
        })
    }

    /// Waits until the stream has passed the mark.
    pub(crate) fn wait(&self) -> Result<(), CudaError> {
        // SAFETY: ours.
        self.context.check("cuEventSynchronize", unsafe {
            (self.context.api().cuEventSynchronize)(self.event)
        })
    }

    /// Seconds between two marks that the stream has passed.
    pub(crate) fn seconds_since(&self, earlier: &Event) -> Result<f64, CudaError> {
        let mut ms = 0.0;
        // SAFETY: the pointer is to a local, both events are ours.
        self.context.check("cuEventElapsedTime", unsafe {
            (self.context.api().cuEventElapsedTime)(&raw mut ms, earlier.event, self.event)
        })?;
        Ok(f64::from(ms) / 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = self.context.enter();
        // SAFETY: ours, and destroyed once.
        unsafe { (self.context.api().cuEventDestroy_v2)(self.event) };
    }
}

/// Launches that were recorded once and run as one.
pub(crate) struct Graph {
    context: Arc<Context>,
    executable: Handle,
}

// SAFETY: as for `Context`.
unsafe impl Send for Graph {}

impl Graph {
    /// Records what `launches` puts on the stream, and uploads it.
    pub(crate) fn capture(
        context: &Arc<Context>,
        launches: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<Graph, CudaError> {
        const THREAD_LOCAL: i32 = 1;
        context.enter()?;
        // SAFETY: the stream is ours and idle.
        context.check("cuStreamBeginCapture", unsafe {
            (context.api().cuStreamBeginCapture_v2)(context.stream, THREAD_LOCAL)
        })?;
        let launched = launches();
        let mut graph = std::ptr::null_mut();
        // SAFETY: the pointer is to a local. The capture must end also where a launch failed.
        let ended = context.check("cuStreamEndCapture", unsafe {
            (context.api().cuStreamEndCapture)(context.stream, &raw mut graph)
        });
        launched.and(ended)?;
        let mut executable = std::ptr::null_mut();
        // SAFETY: the pointer is to a local, the graph was just made.
        let made = context.check("cuGraphInstantiate", unsafe {
            (context.api().cuGraphInstantiateWithFlags)(&raw mut executable, graph, 0)
        });
        // SAFETY: the executable does not need it any more.
        unsafe { (context.api().cuGraphDestroy)(graph) };
        made?;
        let graph = Graph { context: context.clone(), executable };
        // SAFETY: both handles are ours. What the upload takes is taken now, not at first launch.
        context.check("cuGraphUpload", unsafe {
            (context.api().cuGraphUpload)(graph.executable, context.stream)
        })?;
        Ok(graph)
    }

    pub(crate) fn launch(&self) -> Result<(), CudaError> {
        // SAFETY: both handles are ours.
        self.context.check("cuGraphLaunch", unsafe {
            (self.context.api().cuGraphLaunch)(self.executable, self.context.stream)
        })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let _ = self.context.enter();
        // SAFETY: ours, and destroyed once; the owner has waited.
        unsafe { (self.context.api().cuGraphExecDestroy)(self.executable) };
    }
}
