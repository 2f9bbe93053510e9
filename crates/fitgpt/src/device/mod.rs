//! Finds the device that computes, from the settings and the hardware. The rest of the program uses
//! [`Device`] and does not care which one it is.

mod cpu;
mod cuda;

use crate::bill::HostMemory;
use crate::fellow_ranks::Fellows;
use crate::screen;
use crate::ui::ReadHardware;
use ::cuda::{CudaError, LoadError};
use cpu::CpuDevice;
pub use cuda::{CudaDevice, nccl_id};
use page::Hardware as Load;
use plan::hardware::Hardware;
use plan::{Backend, BackendError, Bytes, Plan, Rank};
use search::{Machine, Planned};
use spec::{Memory, RequestedDtype, RunSpec};
use train::TrainError;

/// Percentage of the free memory that `ram='auto'` may use.
const USABLE: f64 = 90.0;

/// Host memory of the program itself, outside arena, buffers and data: code, stacks, tokenizer.
/// Measured: 16 to 18 MiB with two threads and up to four layers, of which 7 to 8 are the binary.
const PROCESS: u64 = 24 << 20;

/// The same per layer: tables of the plan, and memory that planning leaves behind. Measured totals:
/// 28 MiB with 100 layers, 44 with 300 and 73 with 512. Tests check this bound.
const PROCESS_LAYER: u64 = 128 << 10;

/// If a plan assumed too little for driver and code, the assumption grows by at least this much.
const STEP: Option<Bytes> = Bytes::new(1 << 20);

/// A rank's place on its machine.
#[derive(Clone, Copy, Debug)]
pub struct Seat {
    /// Its number among the ranks of this machine, from 0.
    pub local_rank: usize,
    /// How many there are.
    pub local_ranks: usize,
    /// Whether several ranks may use one GPU: MPI permits it, NCCL does not.
    pub may_share_gpu: bool,
    /// Whether a rank that sees one GPU has it for itself, because the launcher has hidden others.
    pub may_see_one_gpu: bool,
}

/// A device that can run plans.
pub enum Device {
    /// The host's processor.
    Cpu(CpuDevice),
    /// An NVIDIA GPU.
    Cuda(Box<CudaDevice>),
}

impl Device {
    /// Opens the requested device. For 'auto': the first usable GPU, else the CPU, with a line that
    /// says why a GPU is not used. If a setting requires a GPU (`gpu_setting`), it does not fall
    /// back to the CPU, on which the run would take a hundred times as long.
    pub fn find(
        asked: spec::RequestedDevice,
        gpu_setting: Option<String>,
    ) -> Result<Device, BackendError> {
        match asked {
            spec::RequestedDevice::Cpu => Ok(Device::Cpu(CpuDevice::new())),
            spec::RequestedDevice::Cuda(index) => match CudaDevice::open(index) {
                Ok(found) => Ok(Device::Cuda(Box::new(found))),
                Err(error) => {
                    let what = format!(
                        "device='cuda:{index}': {error}; use --device=cpu to run on the CPU"
                    );
                    Err(BackendError::Refused { what })
                }
            },
            spec::RequestedDevice::Auto => Device::best(gpu_setting),
        }
    }

    /// As [`Device::find`], for one of several ranks on this machine: as in nanoGPT, each takes the
    /// GPU of its own number. Ranks on CPUs share the cores.
    pub fn of_rank(
        asked: spec::RequestedDevice,
        gpu_setting: Option<String>,
        seat: Seat,
    ) -> Result<Device, BackendError> {
        let gpus = match asked {
            spec::RequestedDevice::Cpu => 0,
            spec::RequestedDevice::Auto | spec::RequestedDevice::Cuda(_) => gpu_count() as usize,
        };
        let wants_gpu = gpu_setting.is_some() || matches!(asked, spec::RequestedDevice::Cuda(_));
        match (gpus, seat.may_share_gpu) {
            (0, _) if wants_gpu => Device::find(asked, gpu_setting),
            (0, _) => Ok(Device::Cpu(CpuDevice::sharing(seat.local_ranks))),
            (1, false) if seat.may_see_one_gpu => {
                let first = spec::RequestedDevice::Cuda(0);
                Ok(Device::find(first, gpu_setting)?.shared_by(seat, seat.local_ranks))
            }
            (gpus, false) if seat.local_rank >= gpus => {
                let what = format!(
                    "{} ranks on this machine, but {gpus} usable GPU{}; start one rank for each \
                     GPU (see `fitgpt devices` and CUDA_VISIBLE_DEVICES)",
                    seat.local_ranks,
                    if gpus == 1 { "" } else { "s" }
                );
                Err(BackendError::Refused { what })
            }
            (gpus, _) => {
                let index = (seat.local_rank % gpus) as u32;
                let found = Device::find(spec::RequestedDevice::Cuda(index), gpu_setting)?;
                Ok(found.shared_by(seat, gpus))
            }
        }
    }

    /// The same device, of which each rank uses its part: memory of the host, and of a GPU if there
    /// are more ranks than GPUs.
    fn shared_by(self, seat: Seat, gpus: usize) -> Device {
        match self {
            Device::Cuda(mut device) => {
                device.share(seat.local_ranks, seat.local_ranks.div_ceil(gpus.max(1)));
                Device::Cuda(device)
            }
            cpu => cpu,
        }
    }

    /// Whether it is a GPU.
    pub fn is_gpu(&self) -> bool {
        matches!(self, Device::Cuda(_))
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
            // On a machine without an NVIDIA GPU there is nothing to report.
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
            // The user wants the GPU, not a run that takes a hundred times as long.
            Err(error @ CudaError::Full { .. }) => {
                let what = format!("{}: {error}; use --device=cpu to run on the CPU", gpu.name);
                Err(BackendError::Refused { what })
            }
            Err(error) => on_cpu(error),
        }
    }

    /// Its kind, which checkpoints record: devices of one kind give the same bits.
    pub fn kind(&self) -> String {
        match self {
            Device::Cpu(device) => device.kind(),
            Device::Cuda(device) => device.kind(),
        }
    }

    /// Its name for the user.
    pub fn name(&self) -> String {
        match self {
            Device::Cpu(device) => device.name(),
            Device::Cuda(device) => device.name(),
        }
    }

    /// What plans are made for: this device with the memory that the run may use.
    pub fn machine(&self, run: &RunSpec) -> Result<Machine, BackendError> {
        match self {
            Device::Cpu(device) => Ok(device.machine(run)),
            Device::Cuda(device) => device.machine(run),
        }
    }

    /// Its rates in the run's number format, for predictions: of the CPU measured now, within the
    /// run's memory; of a GPU from the table.
    pub fn measured(&self, run: &RunSpec) -> Hardware {
        match self {
            Device::Cpu(device) => device.measured(host_budget(run.ram)),
            Device::Cuda(device) => device.table(run.dtype == RequestedDtype::Float32),
        }
    }

    /// Connects it with those of the other ranks, before anything is planned: what that takes of
    /// its memory is then known.
    pub fn connect(&mut self, fellows: &mut Fellows, rank: Rank) -> Result<(), BackendError> {
        match self {
            Device::Cpu(device) => device.connect(fellows.exchange()),
            Device::Cuda(device) => device.connect(fellows, rank)?,
        }
        Ok(())
    }

    /// Plans and allocates the memory. If driver and code turn out to hold more than assumed, or
    /// another program has taken memory meanwhile, it plans again with the new numbers. Each plan
    /// has a smaller arena, so the loop ends with a plan or a refusal.
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
                // Ranks plan together: one cannot plan again while the others go on.
                Err(LoadError::OverBudget { outside_arena, .. }) if run.rank.has_others() => {
                    let held = Bytes::new(outside_arena).unwrap_or(Bytes::ZERO);
                    let what = format!(
                        "driver, code and NCCL hold {held}, more than planned for; give all ranks \
                         a --vram that is smaller by the difference, or --vram=80%"
                    );
                    return Err(BackendError::Refused { what }.into());
                }
                Err(LoadError::OverBudget { outside_arena, .. }) => {
                    say(&assume_held(machine, outside_arena))
                }
                Err(LoadError::Backend(BackendError::OutOfMemory { .. }))
                    if run.vram == Memory::Auto && self.has_less_than(machine) =>
                {
                    say("another program has taken memory: planning again");
                    *machine = self.machine(run)?;
                }
                Err(LoadError::Backend(error)) => return Err(self.named_holders(error).into()),
                Err(LoadError::Cuda(error)) => {
                    return Err(BackendError::Device { what: error.to_string() }.into());
                }
            }
        }
    }

    /// Proves the plan and allocates its memory. `machine` is what the plan was made for. If driver
    /// and libraries hold too much for it, the error has that number. `choices` are those of the
    /// run to resume.
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

    /// How many matmuls of a plan must be timed on this device before it runs. `choices` are those
    /// of the run to resume.
    pub fn untimed_matmuls(
        &self,
        plan: &Plan,
        run: &RunSpec,
        choices: &[(String, String)],
    ) -> Result<usize, BackendError> {
        match self {
            Device::Cpu(_) => Ok(0),
            Device::Cuda(device) => device.untimed_matmuls(plan, run, choices.to_vec()),
        }
    }

    /// Whether less memory is free now than the plan assumed.
    fn has_less_than(&self, machine: &Machine) -> bool {
        match self {
            Device::Cpu(_) => false,
            Device::Cuda(device) => device.has_less_than(machine),
        }
    }

    /// Adds the processes that hold memory to an out-of-memory error.
    fn named_holders(&self, error: BackendError) -> BackendError {
        match (self, error) {
            (Device::Cuda(device), BackendError::OutOfMemory { wanted }) => {
                let holders = device.holders();
                let what = format!("can no longer allocate {wanted} for the arena{holders}");
                BackendError::Refused { what }
            }
            (_, error) => error,
        }
    }

    /// Number of compute threads, if the device is the CPU.
    pub fn threads(&self) -> Option<u64> {
        match self {
            Device::Cpu(device) => Some(device.threads() as u64),
            Device::Cuda(_) => None,
        }
    }

    /// Bytes that the process holds on the device; none if the device is the CPU.
    pub fn held_bytes(&self) -> Option<u64> {
        match self {
            Device::Cpu(_) => None,
            Device::Cuda(device) => device.held_bytes(),
        }
    }

    /// Reads the load of the GPU that the run trains on, from any thread and without a context.
    /// None on a CPU, or without NVML.
    pub fn load_reader(&self) -> Option<ReadHardware> {
        let Device::Cuda(device) = self else { return None };
        let nvml = ::cuda::Nvml::load().ok()?;
        let gpu = nvml.gpu(&device.pci_bus_id())?;
        Some(Box::new(move || {
            let load = nvml.load_of(gpu);
            Some(Load {
                busy: load.busy_percent.map(f64::from),
                clock: load.clock.map(f64::from),
                temperature: load.temperature.map(f64::from),
                power: load.power.map(|milliwatts| f64::from(milliwatts) / 1e3),
            })
        }))
    }

    /// Peak floating-point operations per second.
    pub fn peak_flops(&self, run: &RunSpec) -> Option<f64> {
        match self {
            Device::Cpu(device) => device.peak_flops(),
            Device::Cuda(_) => Some(self.measured(run).matmul),
        }
    }
}

/// The next plan assumes what driver and code really hold; returns the line to print.
fn assume_held(machine: &mut Machine, held: u64) -> String {
    let held = Bytes::new(held).unwrap_or(machine.hardware.context);
    let more = STEP.and_then(|step| machine.hardware.context.plus(step)).unwrap_or(held);
    machine.hardware.context = held.max(more);
    format!("driver and code hold {held}: planning again with that")
}

/// All GPUs that this process sees.
fn all_gpus() -> Result<Vec<::cuda::GpuInfo>, CudaError> {
    ::cuda::gpus(&*::cuda::Driver::load()?)
}

/// The GPU that `device='auto'` would take, without opening it.
pub fn first_gpu() -> Option<::cuda::GpuInfo> {
    all_gpus().ok()?.into_iter().find(::cuda::GpuInfo::is_supported)
}

/// A GPU's name for the user, which also names its kept times.
pub fn gpu_name(info: &::cuda::GpuInfo) -> String {
    let memory = Bytes::new(info.memory).unwrap_or(Bytes::ZERO);
    let (major, minor) = (info.sm / 10, info.sm % 10);
    format!("{} ({memory}, compute capability {major}.{minor})", info.name)
}

/// Number of GPUs that plans can run on; 0 without a driver.
pub fn gpu_count() -> u32 {
    all_gpus().map_or(0, |all| all.iter().filter(|gpu| gpu.is_supported()).count() as u32)
}

/// Memory of the requested GPU, if it exists and can be used.
pub fn gpu_memory(asked: spec::RequestedDevice) -> Option<u64> {
    let all = all_gpus().ok()?;
    let wanted = |gpu: &&::cuda::GpuInfo| match asked {
        spec::RequestedDevice::Cuda(index) => gpu.index == index,
        spec::RequestedDevice::Auto => true,
        spec::RequestedDevice::Cpu => false,
    };
    all.iter().filter(|gpu| gpu.is_supported()).find(wanted).map(|gpu| gpu.memory)
}

/// Host memory that a run may use: what `ram` asks for, but never more than is free.
pub fn host_budget(asked: Memory) -> Bytes {
    // A plan also counts what the process already holds.
    let held = ::cpu::held_bytes().unwrap_or(0);
    let free = ::cpu::available_bytes().map_or(i64::MAX as u64, |free| free.saturating_add(held));
    match asked_of_host(asked) {
        Some(asked) => asked.min(share(free, 100.0)),
        None => share(free, USABLE),
    }
}

/// Host memory that `ram` asks for; none for 'auto'.
fn asked_of_host(asked: Memory) -> Option<Bytes> {
    match asked {
        Memory::Auto => None,
        Memory::Bytes(bytes) => Some(bytes),
        Memory::Percent(percent) => {
            Some(share(::cpu::total_bytes().unwrap_or(i64::MAX as u64), percent))
        }
    }
}

/// The notice if `ram` asks for more than is free.
pub fn host_notice(run: &RunSpec) -> Option<String> {
    let (asked, budget) = (asked_of_host(run.ram)?, host_budget(run.ram));
    let is_less = budget < asked;
    is_less.then(|| format!("ram={asked}: only {budget} is free; planning with that"))
}

/// Host memory that no plan changes: the built-in corpus, and the program itself.
pub fn fixed_host_memory(run: &RunSpec) -> [HostMemory; 2] {
    let data = if run.dataset == data::BUILTIN { data::corpus::MEMORY_BYTES } else { 0 };
    let program = PROCESS.saturating_add(PROCESS_LAYER.saturating_mul(run.n_layer));
    let items = [("data set", data), ("fitgpt itself", program)];
    items.map(|(name, bytes)| HostMemory { name, bytes: share(bytes, 100.0) })
}

/// Refuses to start without enough memory for the program itself: the system would just kill it.
pub fn check_memory() -> Result<(), TrainError> {
    match ::cpu::available_bytes() {
        Some(free) if free < PROCESS => {
            let (free, wanted) = (share(free, 100.0), share(PROCESS, 100.0));
            Err(TrainError::NoMemory { free, wanted })
        }
        _ => Ok(()),
    }
}

/// A percentage of bytes.
pub fn share(bytes: u64, percent: f64) -> Bytes {
    let part = (bytes as f64 * percent / 100.0) as u64;
    Bytes::new(part.min(i64::MAX as u64)).unwrap_or(Bytes::ZERO)
}
