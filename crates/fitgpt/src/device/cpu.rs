//! The CPU as a device: its threads, the host's memory as its budget, and its measured rates.

use super::{fixed_host_memory, host_budget, share};
use cpu::{CpuBackend, CpuOptions, CpuScratch, Isa};
use plan::hardware::Hardware;
use plan::op_times::OpTimes;
use plan::{Backend, BackendError, Bytes, Dtype, Exchange, Plan, verify};
use search::Machine;
use spec::{Memory, RunSpec};
use std::cell::Cell;
use std::rc::Rc;

/// The CPU.
pub struct CpuDevice {
    threads: usize,
    isa: Isa,
    /// Processes of the run that share this machine's memory and cores.
    ranks_here: usize,
    /// What connects it with other ranks, until it is loaded.
    exchange: Cell<Option<Box<dyn Exchange>>>,
}

impl CpuDevice {
    /// Uses all threads that the process may use.
    pub fn new() -> CpuDevice {
        CpuDevice::sharing(1)
    }

    /// Uses this rank's part of the cores and the memory.
    pub fn sharing(ranks_here: usize) -> CpuDevice {
        let ranks_here = ranks_here.max(1);
        let (threads, isa) = (threads(ranks_here), Isa::best());
        CpuDevice { threads, isa, ranks_here, exchange: Cell::new(None) }
    }

    /// Connects it with other ranks.
    pub fn connect(&mut self, exchange: Option<Box<dyn Exchange>>) {
        self.exchange.set(exchange);
    }

    /// Its kind, which checkpoints record: devices of one kind give the same bits.
    pub fn kind(&self) -> String {
        "cpu".to_string()
    }

    /// Its name for the user.
    pub fn name(&self) -> String {
        let (threads, isa) = (self.threads, self.isa.name());
        let s = if threads == 1 { "" } else { "s" };
        match processor() {
            Some(processor) => format!("{processor}, {threads} thread{s}, {isa}"),
            None => format!("CPU, {threads} thread{s}, {isa}"),
        }
    }

    /// Number of compute threads.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Its vector instructions.
    pub fn instruction_set(&self) -> &'static str {
        self.isa.name()
    }

    /// The processor's name, if the system reports it.
    pub fn processor(&self) -> Option<String> {
        processor()
    }

    /// Its scratch memory in the arena.
    fn scratch(&self) -> CpuScratch {
        CpuScratch { threads: self.threads }
    }

    /// What plans are made for: this device with the memory that the run may use. The planner
    /// chooses by the rates, so they must not depend on how busy the machine is, or two runs would
    /// be cut differently. They are rough numbers, the same for every CPU.
    pub fn machine(&self, run: &RunSpec) -> Machine {
        let fixed = fixed_host_memory(run).map(|item| item.bytes);
        let hardware =
            Hardware { context: Bytes::sum(fixed).unwrap_or(Bytes::ZERO), ..self.table() };
        let scratch = Rc::new(self.scratch());
        let budget = match run.ram {
            Memory::Auto => share(host_budget(run.ram).get() / self.ranks_here as u64, 100.0),
            asked => host_budget(asked),
        };
        Machine { hardware, scratch, budget, host: None, compute: Dtype::F32 }
    }

    /// Rough numbers for any CPU.
    fn table(&self) -> Hardware {
        let free = cpu::available_bytes().unwrap_or(i64::MAX as u64);
        Hardware {
            name: self.name(),
            memory: share(free, 100.0),
            context: Bytes::ZERO,
            matmul: 1e11,
            attention: 3e10,
            bandwidth: 2e10,
            link: 2e10,
            network: plan::hardware::Network::NONE,
            launch: 2e-5,
            copy_wait: 0.0,
            multiprocessors: 0,
            warpgroups: false,
            times: OpTimes::default(),
        }
    }

    /// The same with rates measured now, for predictions.
    pub fn measured(&self, budget: Bytes) -> Hardware {
        let table = self.table();
        let peak = self.peak_flops().unwrap_or(table.matmul);
        let bandwidth =
            cpu::memory_bandwidth(self.threads, budget.get()).unwrap_or(table.bandwidth);
        let attention = peak * table.attention / table.matmul;
        Hardware { matmul: peak, attention, bandwidth, ..table }
    }

    /// Proves the plan and allocates its memory.
    pub fn load(&self, plan: Plan) -> Result<Box<dyn Backend>, BackendError> {
        let proved = verify(plan, self.scratch())?;
        let backend = CpuBackend::new(proved, CpuOptions::new(self.threads))?;
        Ok(match self.exchange.take() {
            Some(exchange) => Box::new(backend.among(exchange)),
            None => Box::new(backend),
        })
    }

    /// Peak floating-point operations per second, measured now.
    pub fn peak_flops(&self) -> Option<f64> {
        cpu::peak_flops(self.threads, self.isa).ok()
    }
}

/// All threads of this process, or fewer if OMP_NUM_THREADS says so, as in PyTorch. Ranks of one
/// machine share them, unless the launcher has given each its own cores.
fn threads(ranks_here: usize) -> usize {
    let there = std::thread::available_parallelism().map_or(1, usize::from);
    let asked = std::env::var("OMP_NUM_THREADS").ok().and_then(|text| text.trim().parse().ok());
    // A launcher that gives ranks cores of their own has divided them already.
    let is_divided = cores().is_some_and(|all| there < all);
    let shared = if is_divided { there } else { there / ranks_here };
    asked.unwrap_or(shared).clamp(1, there)
}

/// Cores of the machine, if the system tells: "0-7,16-23".
fn cores() -> Option<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let [first, last] = [first, last].map(|number| number.trim().parse::<usize>());
        Some(last.ok()?.checked_sub(first.ok()?)? + 1)
    };
    text.trim().split(',').map(count).sum()
}

/// The processor's name, if the system reports it.
fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    let name = line.split_once(':')?.1.split_whitespace().collect::<Vec<_>>().join(" ");
    (!name.is_empty()).then_some(name)
}
