//! An NVIDIA GPU as a device: its budget from the memory that is free now, its measured context,
//! its rates from the table of GPUs.

use super::host_budget;
use crate::fellow_ranks::Fellows;
use crate::{interrupt, screen};
use ::cuda::{
    Communicator, CubinCache, CudaBackend, CudaError, CudaOptions, GRANULE, GRAPH_RESERVE, Gpu,
    LoadError, Nccl, NcclId, Transport,
};
use plan::hardware::{Card, Hardware};
use plan::{Backend, BackendError, Bytes, Plan, Rank, verify};
use search::Machine;
use spec::{Memory, RequestedDtype, RunSpec};

/// Memory left to other programs if `vram` is 'auto': a browser or a desktop may grow by this much.
const LEFT_TO_OTHERS: u64 = 256 << 20;

/// Assumed memory of kernels and matmuls, rather too high. It is measured once a plan is loaded.
const CODE_RESERVE: u64 = 16 << 20;

/// A GPU that is not in the table gets this card's rates per multiprocessor.
const UNKNOWN: (&str, f64) = ("RTX 4070", 46.0);

/// A GPU.
pub struct CudaDevice {
    gpu: Gpu,
    transport: Transport,
    /// Ranks of the run on this machine, and those of them on this GPU.
    ranks_here: u64,
    ranks_on_gpu: u64,
}

impl CudaDevice {
    /// Opens a GPU by its index.
    pub fn open(index: u32) -> Result<CudaDevice, CudaError> {
        let gpu = Gpu::open(index, CubinCache::standard())?;
        Ok(CudaDevice { gpu, transport: Transport::Alone, ranks_here: 1, ranks_on_gpu: 1 })
    }

    /// Uses only this rank's part of what is free.
    pub fn share(&mut self, ranks_here: usize, ranks_on_gpu: usize) {
        self.ranks_here = ranks_here.max(1) as u64;
        self.ranks_on_gpu = ranks_on_gpu.max(1) as u64;
    }

    /// Connects it with the GPUs of other ranks: by NCCL, or by MPI through the host's memory.
    pub fn connect(&mut self, fellows: &mut Fellows, rank: Rank) -> Result<(), BackendError> {
        self.transport = match (fellows.nccl_id(), fellows.exchange()) {
            (Some(id), _) => self.by_nccl(&id, rank)?,
            (None, Some(exchange)) => Transport::host(exchange),
            (None, None) => Transport::Alone,
        };
        Ok(())
    }

    fn by_nccl(&self, id: &[u8], rank: Rank) -> Result<Transport, BackendError> {
        let failed = |error: CudaError| BackendError::Refused { what: error.to_string() };
        let Ok(id) = NcclId::try_from(id) else {
            let what = format!("NCCL's id has {} bytes", id.len());
            return Err(BackendError::Internal { what });
        };
        let nccl = Nccl::load().map_err(failed)?;
        Ok(Transport::Nccl(Communicator::join(&self.gpu, &nccl, &id, rank).map_err(failed)?))
    }

    /// Architecture and library versions: GPUs with the same of all give the same bits.
    pub fn kind(&self) -> String {
        let info = self.gpu.info();
        let (major, minor) = self.gpu.compiler().version();
        let matmuls = self.gpu.matmuls().version();
        let sms = info.multiprocessors;
        format!("cuda sm_{} x{sms}, nvrtc {major}.{minor}, cublasLt {matmuls}", info.sm)
    }

    /// Its name for the user.
    pub fn name(&self) -> String {
        super::gpu_name(self.gpu.info())
    }

    /// The GPU with the memory that the run may use, including driver and libraries.
    pub fn machine(&self, run: &RunSpec) -> Result<Machine, BackendError> {
        let failed = |error: CudaError| BackendError::Device { what: error.to_string() };
        let (free, total) = self.gpu.memory().map_err(failed)?;
        let held = self.gpu.held_bytes().map_err(failed)?;
        let available = free.saturating_add(held);
        let budget = match run.vram {
            Memory::Auto => available.saturating_sub(LEFT_TO_OTHERS) / self.ranks_on_gpu,
            Memory::Bytes(bytes) => bytes.get(),
            Memory::Percent(percent) => super::share(total, percent).get(),
        };
        if budget > available {
            return Err(self.taken(budget, available));
        }
        let context = held.saturating_add(CODE_RESERVE + GRAPH_RESERVE).next_multiple_of(GRANULE);
        let single = run.dtype == RequestedDtype::Float32;
        let hardware = Hardware { context: bytes(context), ..self.table(single) };
        // Driver and libraries also hold host memory, and are loaded by now.
        let held = ::cpu::held_bytes().unwrap_or(0);
        let fixed = super::fixed_host_memory(run).map(|item| item.bytes.get());
        let fixed = fixed.into_iter().fold(held, u64::saturating_add);
        let host = match run.ram {
            Memory::Auto => host_budget(run.ram).get() / self.ranks_here,
            asked => host_budget(asked).get(),
        };
        let host = bytes(host.saturating_sub(fixed));
        Ok(Machine::gpu(hardware, run, bytes(budget), host))
    }

    /// Whether less memory is free now than the machine's budget.
    pub fn has_less_than(&self, machine: &Machine) -> bool {
        let free = self.gpu.memory().map(|(free, _)| free);
        let held = self.gpu.held_bytes();
        matches!((free, held), (Ok(free), Ok(held)) if free + held < machine.budget.get())
    }

    /// Other processes that hold memory, for an error: "; other processes hold the rest: …", or
    /// nothing.
    pub fn holders(&self) -> String {
        let others: Vec<String> = self.gpu.others().iter().map(ToString::to_string).collect();
        match others.is_empty() {
            true => String::new(),
            false => format!("; other processes hold the rest: {}", others.join(", ")),
        }
    }

    /// The error if `vram` asks for more than is free, or than the card has.
    fn taken(&self, budget: u64, available: u64) -> BackendError {
        let (name, total) = (&self.gpu.info().name, self.gpu.info().memory);
        let (asked, free, all) = (bytes(budget), bytes(available), bytes(total));
        let what = match (budget > total, self.holders()) {
            (true, _) => format!("vram={asked}, but {name} has only {all}; lower vram"),
            (false, others) if others.is_empty() => {
                format!("vram={asked}, but {name} has only {free} free; lower vram")
            }
            (false, others) => format!(
                "vram={asked}, but {name} has only {free} free{others}; end them or lower vram"
            ),
        };
        BackendError::Refused { what }
    }

    /// Its row of the table, with its real memory.
    pub fn table(&self, single: bool) -> Hardware {
        let info = self.gpu.info();
        let row = Card::find(&info.name);
        let base = row.or_else(|| Card::find(UNKNOWN.0)).map(|row| row.hardware(single));
        let scale = if row.is_some() { 1.0 } else { f64::from(info.multiprocessors) / UNKNOWN.1 };
        let name = info.name.clone();
        let memory = bytes(info.memory);
        match base {
            Some(base) => Hardware {
                name,
                memory,
                matmul: base.matmul * scale,
                attention: base.attention * scale,
                bandwidth: base.bandwidth * scale,
                warpgroups: self.gpu.scratch().warpgroups,
                ..base
            },
            None => Hardware {
                name,
                memory,
                context: Bytes::ZERO,
                matmul: 5e13,
                attention: 2e13,
                bandwidth: 4e11,
                link: 2e10,
                network: plan::hardware::Network::NONE,
                launch: 5e-6,
                copy_wait: 4e-5,
                multiprocessors: 0,
                warpgroups: self.gpu.scratch().warpgroups,
                times: plan::op_times::OpTimes::default(),
            },
        }
    }

    /// Proves a plan and loads it within the machine's budget.
    pub fn load(
        &self,
        plan: Plan,
        run: &RunSpec,
        machine: &Machine,
        choices: Vec<(String, String)>,
    ) -> Result<Box<dyn Backend>, LoadError> {
        // Pinned memory cannot be swapped out: taking more than is free would stall the machine.
        if ::cpu::available_bytes().is_some_and(|free| plan.host_bytes.get() > free) {
            let wanted = plan.host_bytes;
            let what = format!(
                "the plan needs {wanted} of host memory, and less is free; lower ram, or set \
                 offload=False"
            );
            return Err(BackendError::Refused { what }.into());
        }
        let options =
            CudaOptions { budget: Some(machine.budget.get()), ..self.options(run, choices) };
        let proved = verify(plan, self.gpu.scratch()).map_err(BackendError::from)?;
        let missing = CudaBackend::to_compile(&self.gpu, &proved, &options)?;
        if missing > 0 {
            let sm = self.gpu.info().sm;
            screen::note(&format!("compiling {missing} kernel files for sm_{sm} (only once) …"));
        }
        let untimed = CudaBackend::to_time(&self.gpu, &proved, &options)?;
        if untimed > 0 {
            screen::note(&format!("timing {untimed} matmuls (only once, a few seconds) …"));
        }
        let load = || CudaBackend::new(&self.gpu, proved, &options);
        let loaded = if untimed > 0 { interrupt::nothing_to_save(load) } else { load() };
        if let Some(notice) = self.gpu.cache_notice() {
            screen::note(&format!("note: {notice}"));
        }
        Ok(Box::new(loaded?))
    }

    /// How many matmuls of a plan must be timed before it runs.
    pub fn untimed_matmuls(
        &self,
        plan: &Plan,
        run: &RunSpec,
        choices: Vec<(String, String)>,
    ) -> Result<usize, BackendError> {
        let proved = verify(plan.clone(), self.gpu.scratch())?;
        CudaBackend::to_time(&self.gpu, &proved, &self.options(run, choices))
    }

    /// Options without a budget.
    fn options(&self, run: &RunSpec, choices: Vec<(String, String)>) -> CudaOptions {
        let (graphs, autotune) = (run.compile, run.autotune);
        let transport = self.transport.clone();
        CudaOptions { graphs, autotune, choices, transport, ..CudaOptions::new(&self.gpu) }
    }

    /// Its PCI address as CUDA writes it.
    pub fn pci_bus_id(&self) -> String {
        self.gpu.info().pci_bus_id.clone()
    }

    /// Bytes that this process holds on the GPU.
    pub fn held_bytes(&self) -> Option<u64> {
        self.gpu.held_bytes().ok()
    }
}

fn bytes(count: u64) -> Bytes {
    Bytes::new(count).unwrap_or(Bytes::ZERO)
}

/// An id for the ranks that NCCL connects, made by the first one.
pub fn nccl_id() -> Result<Vec<u8>, BackendError> {
    let failed = |error: CudaError| BackendError::Refused { what: error.to_string() };
    Ok(Nccl::load().and_then(|nccl| nccl.unique_id()).map_err(failed)?.to_vec())
}
