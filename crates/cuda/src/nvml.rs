//! NVML, the library behind nvidia-smi: how much of a GPU's memory is in use, and by which
//! processes.

use crate::library::{LibraryError, Origin, Wanted, function_table};
use std::ffi::{CString, c_char, c_void};

/// The library; it comes with the driver.
const NVML: Wanted = Wanted {
    name: "NVML (libnvidia-ml.so.1)",
    stem: "libnvidia-ml.so.1",
    majors: &[],
    before: &[],
    wheels: &[],
    origin: Origin::Driver("it comes with NVIDIA's driver"),
};

type Handle = *mut c_void;

function_table! {
    /// The NVML functions that we call.
    NvmlApi {
        nvmlInit_v2: fn() -> i32,
        nvmlShutdown: fn() -> i32,
        nvmlSystemGetDriverVersion: fn(*mut c_char, u32) -> i32,
        nvmlDeviceGetHandleByPciBusId_v2: fn(*const c_char, *mut Handle) -> i32,
        nvmlDeviceGetMemoryInfo: fn(Handle, *mut MemoryInfo) -> i32,
        nvmlDeviceGetComputeRunningProcesses_v3: fn(Handle, *mut u32, *mut ProcessInfo) -> i32,
        nvmlDeviceGetGraphicsRunningProcesses_v3: fn(Handle, *mut u32, *mut ProcessInfo) -> i32,
        nvmlDeviceGetUtilizationRates: fn(Handle, *mut [u32; 2]) -> i32,
        nvmlDeviceGetTemperature: fn(Handle, i32, *mut u32) -> i32,
        nvmlDeviceGetPowerUsage: fn(Handle, *mut u32) -> i32,
        nvmlDeviceGetClockInfo: fn(Handle, i32, *mut u32) -> i32,
    }
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct MemoryInfo {
    total: u64,
    free: u64,
    used: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ProcessInfo {
    pid: u32,
    bytes: u64,
    gpu_instance: u32,
    compute_instance: u32,
}

/// A process that holds memory of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuProcess {
    /// Its number.
    pub pid: u32,
    /// Its name, if this process may see it.
    pub name: Option<String>,
    /// Bytes that it holds; none if the driver does not report them.
    pub bytes: Option<u64>,
}

/// "python3 (PID 4242) 1.97 GiB".
impl std::fmt::Display for GpuProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (PID {})", self.name.as_deref().unwrap_or("a process"), self.pid)?;
        match self.bytes.and_then(plan::Bytes::new) {
            Some(bytes) => write!(f, " {bytes}"),
            None => Ok(()),
        }
    }
}

/// The load of a GPU at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuLoad {
    /// Percentage of time in which a kernel ran.
    pub busy_percent: Option<u32>,
    /// Degrees Celsius.
    pub temperature: Option<u32>,
    /// Milliwatts.
    pub power: Option<u32>,
    /// Megahertz of the multiprocessors.
    pub clock: Option<u32>,
}

/// The loaded library.
pub struct Nvml {
    api: NvmlApi,
}

impl std::fmt::Debug for Nvml {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NVML")
    }
}

/// More than the number of processes on any GPU.
const MOST_PROCESSES: usize = 512;

/// One GPU as NVML knows it.
#[derive(Clone, Copy, Debug)]
pub struct NvmlGpu(Handle);

// SAFETY: a handle that any thread may use.
unsafe impl Send for NvmlGpu {}

impl Nvml {
    /// Finds and starts the library.
    pub fn load() -> Result<Nvml, LibraryError> {
        let api = NvmlApi::load(NVML.find(None)?)?;
        // SAFETY: takes nothing.
        match unsafe { (api.nvmlInit_v2)() } {
            0 => Ok(Nvml { api }),
            _ => Err(LibraryError::Missing {
                name: NVML.name,
                install: NVML.install(None),
                tried: vec!["it does not start".to_string()],
            }),
        }
    }

    /// The driver's own version: "580.95.05".
    pub fn driver_version(&self) -> Option<String> {
        let mut text = [0u8; 96];
        // SAFETY: the buffer has the length that is given.
        let code = unsafe { (self.api.nvmlSystemGetDriverVersion)(text.as_mut_ptr().cast(), 95) };
        let text = std::ffi::CStr::from_bytes_until_nul(&text).ok()?;
        (code == 0).then(|| text.to_string_lossy().into_owned())
    }

    /// The GPU at a PCI address as CUDA writes it.
    pub fn gpu(&self, pci_bus_id: &str) -> Option<NvmlGpu> {
        let id = CString::new(pci_bus_id).ok()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: a NUL-terminated string and a pointer to a local.
        let code =
            unsafe { (self.api.nvmlDeviceGetHandleByPciBusId_v2)(id.as_ptr(), &raw mut handle) };
        (code == 0).then_some(NvmlGpu(handle))
    }

    /// Bytes of a GPU's memory in use, by all processes.
    pub fn used(&self, gpu: NvmlGpu) -> Option<u64> {
        self.memory(gpu).map(|(_, _, used)| used)
    }

    /// Bytes of a GPU's memory: total, free, in use. What the driver reserves counts as in use.
    pub fn memory(&self, gpu: NvmlGpu) -> Option<(u64, u64, u64)> {
        let mut info = MemoryInfo::default();
        // SAFETY: the pointer is to a local of the library's layout.
        let code = unsafe { (self.api.nvmlDeviceGetMemoryInfo)(gpu.0, &raw mut info) };
        (code == 0).then_some((info.total, info.free, info.used))
    }

    /// Where it was found.
    pub fn path(&self) -> &str {
        self.api.library.path()
    }

    /// Processes that hold memory of a GPU, the largest first.
    pub fn processes(&self, gpu: NvmlGpu) -> Vec<GpuProcess> {
        let mut found: Vec<GpuProcess> = Vec::new();
        self.each_holder(gpu, &mut |pid, bytes| {
            if found.iter().all(|process| process.pid != pid) {
                found.push(GpuProcess { pid, name: name_of(pid), bytes });
            }
        });
        found.sort_by_key(|process| (std::cmp::Reverse(process.bytes), process.pid));
        found
    }

    /// Bytes that this process holds on a GPU, if the driver reports them. The training loop calls
    /// it, so it does not allocate.
    pub fn own_bytes(&self, gpu: NvmlGpu) -> Option<u64> {
        let own = std::process::id();
        let mut found = None;
        self.each_holder(gpu, &mut |pid, bytes| {
            if pid == own && found.is_none() {
                found = Some(bytes);
            }
        });
        found.flatten().filter(|&bytes| bytes > 0)
    }

    /// Calls `visit` with the id of each process that holds memory, and its bytes. A process may
    /// appear twice.
    fn each_holder(&self, gpu: NvmlGpu, visit: &mut dyn FnMut(u32, Option<u64>)) {
        let lists = [
            self.api.nvmlDeviceGetComputeRunningProcesses_v3,
            self.api.nvmlDeviceGetGraphicsRunningProcesses_v3,
        ];
        for list in lists {
            let mut all = [ProcessInfo::default(); MOST_PROCESSES];
            let mut count = all.len() as u32;
            // SAFETY: room for as many entries as `count` says.
            let code = unsafe { list(gpu.0, &raw mut count, all.as_mut_ptr()) };
            let count = if code == 0 { count as usize } else { 0 };
            for info in all.iter().take(count) {
                visit(info.pid, (info.bytes != u64::MAX).then_some(info.bytes));
            }
        }
    }

    /// The GPU's load now.
    pub fn load_of(&self, gpu: NvmlGpu) -> GpuLoad {
        const MULTIPROCESSORS: i32 = 1;
        let (mut rates, mut degrees, mut power, mut clock) = ([0; 2], 0, 0, 0);
        // SAFETY: pointers to locals of the library's layouts.
        let codes = unsafe {
            [
                (self.api.nvmlDeviceGetUtilizationRates)(gpu.0, &raw mut rates),
                (self.api.nvmlDeviceGetTemperature)(gpu.0, 0, &raw mut degrees),
                (self.api.nvmlDeviceGetPowerUsage)(gpu.0, &raw mut power),
                (self.api.nvmlDeviceGetClockInfo)(gpu.0, MULTIPROCESSORS, &raw mut clock),
            ]
        };
        GpuLoad {
            busy_percent: (codes[0] == 0).then_some(rates[0]),
            temperature: (codes[1] == 0).then_some(degrees),
            power: (codes[2] == 0).then_some(power),
            clock: (codes[3] == 0).then_some(clock),
        }
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // SAFETY: started once in `load`.
        unsafe { (self.api.nvmlShutdown)() };
    }
}

/// A process's name, if the system reports it.
fn name_of(pid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim().to_string())
}
