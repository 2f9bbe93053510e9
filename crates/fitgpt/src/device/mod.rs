//! Which device computes: found by what the run asks for and what is there. Everything else in the
//! program sees a device, never which.

mod cpu;
mod cuda;

use crate::bill::HostMemory;
use crate::screen;
use ::cuda::LoadError;
use cpu::CpuDevice;
pub use cuda::{CudaDevice, process as gpu_process};
use plan::{Backend, BackendError, Bytes, Plan};
use spec::{DtypeChoice, Machine, Memory, RunSpec};

/// Per cent of the free memory that are taken unasked; the rest is for what the host keeps beside.
const USABLE: f64 = 90.0;

/// A device that can run plans.
pub enum Device {
    /// The host's processor.
    Cpu(CpuDevice),
    /// An NVIDIA GPU.
    Cuda(Box<CudaDevice>),
}

impl Device {
    /// The device that was asked for, or why it cannot be had. Without a wish: the first GPU that
    /// can be used, else the CPU, and a line that says what a GPU that is there lacks.
    pub fn find(asked: spec::Device) -> Result<Device, BackendError> {
        match asked {
            spec::Device::Cpu => Ok(Device::Cpu(CpuDevice::new())),
            spec::Device::Cuda(index) => match CudaDevice::open(index) {
                Ok(found) => Ok(Device::Cuda(Box::new(found))),
                Err(error) => {
                    let what = format!("device='cuda': {error}; --device=cpu runs without");
                    Err(BackendError::Device { what })
                }
            },
            spec::Device::Auto => Ok(Device::best()),
        }
    }

    fn best() -> Device {
        if gpu_count() == 0 {
            return Device::Cpu(CpuDevice::new());
        }
        match CudaDevice::open(0) {
            Ok(found) => Device::Cuda(Box::new(found)),
            Err(error) => {
                screen::note(&format!("note: the GPU is not used: {error}"));
                Device::Cpu(CpuDevice::new())
            }
        }
    }

    /// Its kind, as checkpoints keep it: runs of one kind give the same bits.
    pub fn kind(&self) -> String {
        match self {
            Device::Cpu(device) => device.kind(),
            Device::Cuda(device) => device.kind(),
        }
    }

    /// For people.
    pub fn name(&self) -> String {
        match self {
            Device::Cpu(device) => device.name(),
            Device::Cuda(device) => device.name(),
        }
    }

    /// What plans are made for: this device with so much of its memory.
    pub fn machine(&self, run: &RunSpec) -> Result<Machine, BackendError> {
        match self {
            Device::Cpu(device) => Ok(device.machine(run.ram)),
            Device::Cuda(device) => device.machine(run),
        }
    }

    /// Its rates in a run's format, for predictions: measured now, or of the table.
    pub fn measured(&self, dtype: DtypeChoice) -> plan::device::Device {
        match self {
            Device::Cpu(device) => device.measured(),
            Device::Cuda(device) => device.table(dtype == DtypeChoice::Float32),
        }
    }

    /// Takes the plan's memory. `machine` is what the plan was made for; a plan that does not fit
    /// beside what driver and libraries really hold comes back with that figure. `choices` are
    /// those of the run that goes on.
    pub fn load(
        &self,
        plan: Plan,
        run: &RunSpec,
        machine: &Machine,
        choices: Vec<(String, String)>,
    ) -> Result<Box<dyn Backend>, LoadError> {
        match self {
            Device::Cpu(device) => Ok(device.load(plan)?),
            Device::Cuda(device) => device.load(plan, run, machine, choices),
        }
    }

    /// Whether less memory is free by now than a machine was given.
    pub fn has_less_than(&self, machine: &Machine) -> bool {
        match self {
            Device::Cpu(_) => false,
            Device::Cuda(device) => device.has_less_than(machine),
        }
    }

    /// A lack of memory, with the names of those who hold it.
    pub fn named_holders(&self, error: BackendError) -> BackendError {
        match (self, error) {
            (Device::Cuda(device), BackendError::OutOfMemory { wanted }) => {
                let holders = device.holders();
                let what = format!("{wanted} for the arena cannot be had any more{holders}");
                BackendError::Device { what }
            }
            (_, error) => error,
        }
    }

    /// Bytes that the process holds on the device, where that is another memory than the host's.
    pub fn held_bytes(&self) -> Option<u64> {
        match self {
            Device::Cpu(_) => None,
            Device::Cuda(device) => device.held_bytes(),
        }
    }

    /// Whether the host's memory beside the arena can be had, arena already taken.
    pub fn check_host_memory(&self, host: &[HostMemory]) -> Result<(), BackendError> {
        let wanted = Bytes::sum(host.iter().map(|item| item.bytes)).unwrap_or(Bytes::ZERO);
        match ::cpu::available_bytes() {
            Some(available) if wanted.get() > available => {
                Err(BackendError::OutOfMemory { wanted })
            }
            _ => Ok(()),
        }
    }

    /// Floating-point operations a second that it can do.
    pub fn peak_flops(&self, dtype: DtypeChoice) -> Option<f64> {
        match self {
            Device::Cpu(device) => device.peak_flops(),
            Device::Cuda(_) => Some(self.measured(dtype).products),
        }
    }
}

/// A refusal to load as an error of the backend, for callers that do not plan again.
pub fn backend_error(error: LoadError) -> BackendError {
    match error {
        LoadError::Backend(error) => error,
        over => BackendError::Device { what: format!("{over}; raise vram") },
    }
}

/// GPUs that plans can run on; none without a driver.
fn usable_gpus() -> Vec<::cuda::GpuInfo> {
    let found = ::cuda::Driver::load().and_then(|driver| ::cuda::gpus(&driver));
    found.unwrap_or_default().into_iter().filter(::cuda::GpuInfo::is_supported).collect()
}

/// How many GPUs there are that plans can run on.
pub fn gpu_count() -> u32 {
    usable_gpus().len() as u32
}

/// Bytes of the first of them.
pub fn gpu_memory() -> Option<u64> {
    usable_gpus().first().map(|gpu| gpu.memory)
}

/// Bytes of the host that a run may use.
pub fn host_budget(asked: Memory) -> Bytes {
    let free = ::cpu::available_bytes().unwrap_or(i64::MAX as u64);
    match asked {
        Memory::Auto => share(free, USABLE),
        Memory::Bytes(bytes) => bytes,
        Memory::Percent(percent) => share(::cpu::total_bytes().unwrap_or(free), percent),
    }
}

/// So many per cent of bytes.
pub fn share(bytes: u64, percent: f64) -> Bytes {
    let part = (bytes as f64 * percent / 100.0) as u64;
    Bytes::new(part.min(i64::MAX as u64)).unwrap_or(Bytes::ZERO)
}
