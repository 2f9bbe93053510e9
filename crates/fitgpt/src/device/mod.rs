//! Which device computes: found by what the run asks for and what is there. Everything else in the
//! program sees a device, never which.

mod cpu;
mod cuda;

use crate::bill::HostMemory;
use crate::screen;
use ::cuda::{CudaError, LoadError};
use cpu::CpuDevice;
pub use cuda::CudaDevice;
use plan::hardware::Hardware;
use plan::{Backend, BackendError, Bytes, Plan};
use search::{Machine, Planned};
use spec::{Memory, RequestedDtype, RunSpec};
use train::TrainError;

/// Per cent of the free memory that are taken unasked; the rest is for what the host keeps beside.
const USABLE: f64 = 90.0;

/// Host memory that the program takes beside arena, buffers and data: code, stacks, tokenizer.
/// 13 to 15 MiB were seen with two threads.
const PROCESS: u64 = 24 << 20;

/// The same for each layer: tables of the plan, and what planning leaves behind. 28 MiB were seen
/// in all with 100 layers, 44 with 300 and 73 with 512; tests hold it to this.
const PROCESS_LAYER: u64 = 128 << 10;

/// What a plan counts with grows by at least so much each time that it was too little.
const STEP: Option<Bytes> = Bytes::new(1 << 20);

/// A device that can run plans.
pub enum Device {
    /// The host's processor.
    Cpu(CpuDevice),
    /// An NVIDIA GPU.
    Cuda(Box<CudaDevice>),
}

impl Device {
    /// The device that was asked for, or why it cannot be had. Where it was left open: the first
    /// GPU that can be used, else the CPU, and a line that says what a GPU that is there lacks.
    /// Settings that only a GPU can give (`gpu_setting`) refuse the CPU: nobody wants a run that
    /// takes a hundred times as long.
    pub fn find(
        asked: spec::RequestedDevice,
        gpu_setting: Option<String>,
    ) -> Result<Device, BackendError> {
        match asked {
            spec::RequestedDevice::Cpu => Ok(Device::Cpu(CpuDevice::new())),
            spec::RequestedDevice::Cuda(index) => match CudaDevice::open(index) {
                Ok(found) => Ok(Device::Cuda(Box::new(found))),
                Err(error) => {
                    let what = format!("device='cuda:{index}': {error}; --device=cpu runs without");
                    Err(BackendError::Refused { what })
                }
            },
            spec::RequestedDevice::Auto => Device::best(gpu_setting),
        }
    }

    fn best(gpu_setting: Option<String>) -> Result<Device, BackendError> {
        let on_cpu = |error: CudaError| {
            if let Some(setting) = &gpu_setting {
                let what = format!(
                    "{setting} needs a GPU, and none can be used: {error}; use --device=cpu to run \
                     on the CPU anyway"
                );
                return Err(BackendError::Refused { what });
            }
            // On a machine without such a GPU there is nothing to say.
            if !matches!(error, CudaError::Library(_) | CudaError::NoDevice) {
                screen::note(&format!("note: the GPU is not used: {error}"));
            }
            Ok(Device::Cpu(CpuDevice::new()))
        };
        let all = match all_gpus() {
            Ok(all) => all,
            Err(error) => return on_cpu(error),
        };
        let Some(gpu) = all.iter().find(|gpu| gpu.is_supported()) else {
            let old = |gpu: &::cuda::GpuInfo| CudaError::Architecture {
                name: gpu.name.clone(),
                sm: gpu.sm,
            };
            return on_cpu(all.first().map_or(CudaError::NoDevice, old));
        };
        match CudaDevice::open(gpu.index) {
            Ok(found) => Ok(Device::Cuda(Box::new(found))),
            // Its user wants the GPU, not a run that takes a hundred times as long.
            Err(error @ CudaError::Full { .. }) => {
                let what = format!("{}: {error}; --device=cpu runs without", gpu.name);
                Err(BackendError::Refused { what })
            }
            Err(error) => on_cpu(error),
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
            Device::Cpu(device) => Ok(device.machine(run)),
            Device::Cuda(device) => device.machine(run),
        }
    }

    /// Its rates in a run's format, for predictions: measured now in no more memory than the run
    /// may use, or of the table.
    pub fn measured(&self, run: &RunSpec) -> Hardware {
        match self {
            Device::Cpu(device) => device.measured(host_budget(run.ram)),
            Device::Cuda(device) => device.table(run.dtype == RequestedDtype::Float32),
        }
    }

    /// Plans and takes the memory. Where driver and code turn out to hold more than was counted
    /// with, or another program took memory meanwhile, it plans again with what is so; each turn
    /// leaves less to the arena, so that it ends in a plan or in a refusal.
    pub fn load_planned<E: From<BackendError>>(
        &self,
        run: &RunSpec,
        machine: &mut Machine,
        choices: &[(String, String)],
        say: &dyn Fn(&str),
        mut plan: impl FnMut(&Machine) -> Result<Planned, E>,
    ) -> Result<(Planned, Box<dyn Backend>), E> {
        loop {
            let planned = plan(machine)?;
            match self.load(planned.plan.clone(), run, machine, choices.to_vec()) {
                Ok(backend) => return Ok((planned, backend)),
                Err(LoadError::OverBudget { outside_arena, .. }) => {
                    say(&count_with(machine, outside_arena))
                }
                Err(LoadError::Backend(BackendError::OutOfMemory { .. }))
                    if run.vram == Memory::Auto && self.has_less_than(machine) =>
                {
                    say("another program took memory meanwhile: planned again");
                    *machine = self.machine(run)?;
                }
                Err(LoadError::Backend(error)) => return Err(self.named_holders(error).into()),
                Err(LoadError::Cuda(error)) => {
                    return Err(BackendError::Device { what: error.to_string() }.into());
                }
            }
        }
    }

    /// Proves the plan and takes its memory. `machine` is what the plan was made for; a plan that
    /// does not fit beside what driver and libraries really hold comes back with that figure.
    /// `choices` are those of the run that goes on.
    fn load(
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
    fn has_less_than(&self, machine: &Machine) -> bool {
        match self {
            Device::Cpu(_) => false,
            Device::Cuda(device) => device.has_less_than(machine),
        }
    }

    /// A lack of memory, with the names of those who hold it.
    fn named_holders(&self, error: BackendError) -> BackendError {
        match (self, error) {
            (Device::Cuda(device), BackendError::OutOfMemory { wanted }) => {
                let holders = device.holders();
                let what = format!("{wanted} for the arena cannot be had any more{holders}");
                BackendError::Refused { what }
            }
            (_, error) => error,
        }
    }

    /// Threads that compute, where that is the host's processor.
    pub fn threads(&self) -> Option<u64> {
        match self {
            Device::Cpu(device) => Some(device.threads() as u64),
            Device::Cuda(_) => None,
        }
    }

    /// Bytes that the process holds on the device, where that is another memory than the host's.
    pub fn held_bytes(&self) -> Option<u64> {
        match self {
            Device::Cpu(_) => None,
            Device::Cuda(device) => device.held_bytes(),
        }
    }

    /// Floating-point operations a second that it can do.
    pub fn peak_flops(&self, run: &RunSpec) -> Option<f64> {
        match self {
            Device::Cpu(device) => device.peak_flops(),
            Device::Cuda(_) => Some(self.measured(run).matmul),
        }
    }
}

/// What driver and code turned out to hold becomes what the next plan counts with; gives the line
/// to say.
fn count_with(machine: &mut Machine, outside_arena: u64) -> String {
    let outside_arena = Bytes::new(outside_arena).unwrap_or(machine.hardware.context);
    let more = STEP.and_then(|step| machine.hardware.context.plus(step)).unwrap_or(outside_arena);
    machine.hardware.context = outside_arena.max(more);
    format!("driver and code hold {outside_arena}: planned again with that")
}

/// All GPUs that this process sees.
fn all_gpus() -> Result<Vec<::cuda::GpuInfo>, CudaError> {
    ::cuda::gpus(&*::cuda::Driver::load()?)
}

/// How many GPUs there are that plans can run on; none without a driver.
pub fn gpu_count() -> u32 {
    all_gpus().map_or(0, |all| all.iter().filter(|gpu| gpu.is_supported()).count() as u32)
}

/// Bytes of the GPU that is asked for, if it is there and can be used.
pub fn gpu_memory(asked: spec::RequestedDevice) -> Option<u64> {
    let all = all_gpus().ok()?;
    let wanted = |gpu: &&::cuda::GpuInfo| match asked {
        spec::RequestedDevice::Cuda(index) => gpu.index == index,
        spec::RequestedDevice::Auto => true,
        spec::RequestedDevice::Cpu => false,
    };
    all.iter().filter(|gpu| gpu.is_supported()).find(wanted).map(|gpu| gpu.memory)
}

/// Bytes of the host that a run may use: what is asked for, and never more than is free.
pub fn host_budget(asked: Memory) -> Bytes {
    // What the process holds by now is part of what a plan counts.
    let held = ::cpu::held_bytes().unwrap_or(0);
    let free = ::cpu::available_bytes().map_or(i64::MAX as u64, |free| free.saturating_add(held));
    match asked_of_host(asked) {
        Some(asked) => asked.min(share(free, 100.0)),
        None => share(free, USABLE),
    }
}

/// Bytes of the host that are asked for, if any.
fn asked_of_host(asked: Memory) -> Option<Bytes> {
    match asked {
        Memory::Auto => None,
        Memory::Bytes(bytes) => Some(bytes),
        Memory::Percent(percent) => {
            Some(share(::cpu::total_bytes().unwrap_or(i64::MAX as u64), percent))
        }
    }
}

/// What to say where more is asked for than is free.
pub fn host_notice(run: &RunSpec) -> Option<String> {
    let (asked, budget) = (asked_of_host(run.ram)?, host_budget(run.ram));
    let is_less = budget < asked;
    is_less.then(|| format!("ram={asked}: only {budget} is free; planning with that"))
}

/// What the host keeps whatever the plan: data that is not in files, and the program.
pub fn beside_any_plan(run: &RunSpec) -> [HostMemory; 2] {
    let data = if run.dataset == data::BUILTIN { data::corpus::MEMORY_BYTES } else { 0 };
    let program = PROCESS.saturating_add(PROCESS_LAYER.saturating_mul(run.n_layer));
    let items = [("data set", data), ("fitgpt itself", program)];
    items.map(|(name, bytes)| HostMemory { name, bytes: share(bytes, 100.0) })
}

/// Refuses to begin where not even the program has room: the system would end it without a word.
pub fn check_memory() -> Result<(), TrainError> {
    match ::cpu::available_bytes() {
        Some(free) if free < PROCESS => {
            let (free, wanted) = (share(free, 100.0), share(PROCESS, 100.0));
            Err(TrainError::NoMemory { free, wanted })
        }
        _ => Ok(()),
    }
}

/// So many per cent of bytes.
pub fn share(bytes: u64, percent: f64) -> Bytes {
    let part = (bytes as f64 * percent / 100.0) as u64;
    Bytes::new(part.min(i64::MAX as u64)).unwrap_or(Bytes::ZERO)
}
