//! The CPU as a device: its threads, the host's memory as its budget, rates measured in passing.

use super::{beside_any_plan, host_budget, share};
use cpu::{CpuBackend, CpuOptions, CpuScratch, Isa};
use plan::hardware::Hardware;
use plan::op_times::OpTimes;
use plan::{Backend, BackendError, Bytes, Dtype, Plan, verify};
use search::Machine;
use spec::RunSpec;
use std::rc::Rc;

/// The CPU.
pub struct CpuDevice {
    threads: usize,
    isa: Isa,
}

impl CpuDevice {
    /// All threads that the process may use.
    pub fn new() -> CpuDevice {
        CpuDevice { threads: threads(), isa: Isa::best() }
    }

    /// Its kind, as checkpoints keep it: runs of one kind give the same bits.
    pub fn kind(&self) -> String {
        "cpu".to_string()
    }

    /// For people.
    pub fn name(&self) -> String {
        let (threads, isa) = (self.threads, self.isa.name());
        let s = if threads == 1 { "" } else { "s" };
        match processor() {
            Some(processor) => format!("{processor}, {threads} thread{s}, {isa}"),
            None => format!("CPU, {threads} thread{s}, {isa}"),
        }
    }

    /// Threads that compute.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Its vector instructions.
    pub fn instruction_set(&self) -> &'static str {
        self.isa.name()
    }

    /// The processor in its maker's words, where the system tells.
    pub fn processor(&self) -> Option<String> {
        processor()
    }

    /// What it needs of the arena for itself.
    fn scratch(&self) -> CpuScratch {
        CpuScratch { threads: self.threads }
    }

    /// What plans are made for: this device with so much of its memory. The rates decide between
    /// ways to cut a run and must not depend on how busy the machine is, or two runs would be cut
    /// differently; so they are round figures, the same on every CPU.
    pub fn machine(&self, run: &RunSpec) -> Machine {
        let beside = beside_any_plan(run).map(|item| item.bytes);
        let hardware =
            Hardware { context: Bytes::sum(beside).unwrap_or(Bytes::ZERO), ..self.table() };
        let (scratch, budget) = (Rc::new(self.scratch()), host_budget(run.ram));
        Machine { hardware, scratch, budget, host: None, compute: Dtype::F32 }
    }

    /// Round figures.
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
            launch: 2e-5,
            times: OpTimes::default(),
        }
    }

    /// The same with rates that were measured now, for predictions.
    pub fn measured(&self, budget: Bytes) -> Hardware {
        let table = self.table();
        let peak = self.peak_flops().unwrap_or(table.matmul);
        let bandwidth =
            cpu::memory_bandwidth(self.threads, budget.get()).unwrap_or(table.bandwidth);
        let attention = peak * table.attention / table.matmul;
        Hardware { matmul: peak, attention, bandwidth, ..table }
    }

    /// Proves the plan and takes its memory.
    pub fn load(&self, plan: Plan) -> Result<Box<dyn Backend>, BackendError> {
        let proved = verify(plan, self.scratch())?;
        Ok(Box::new(CpuBackend::new(proved, CpuOptions::new(self.threads))?))
    }

    /// Floating-point operations a second that it can do, measured now.
    pub fn peak_flops(&self) -> Option<f64> {
        cpu::peak_flops(self.threads, self.isa).ok()
    }
}

/// All that the system gives this process, or fewer where OMP_NUM_THREADS says so, as for PyTorch.
fn threads() -> usize {
    let there = std::thread::available_parallelism().map_or(1, usize::from);
    let asked = std::env::var("OMP_NUM_THREADS").ok().and_then(|text| text.trim().parse().ok());
    asked.unwrap_or(there).clamp(1, there)
}

/// The processor's name, where the system tells.
fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    let name = line.split_once(':')?.1.split_whitespace().collect::<Vec<_>>().join(" ");
    (!name.is_empty()).then_some(name)
}
