//! Which device computes: found by what the run asks for and what is there.

use crate::bill::HostMemory;
use cpu::{CpuBackend, CpuOptions, CpuScratch, Isa};
use plan::op_times::OpTimes;
use plan::{Backend, BackendError, Bytes, Dtype, Plan, Scratch};
use spec::{Machine, Memory};
use std::rc::Rc;

/// Per cent of the free memory that are taken unasked; the rest is for what the host keeps beside.
const USABLE: f64 = 90.0;

/// A device that can run plans.
pub struct Device {
    threads: usize,
    isa: Isa,
}

impl Device {
    /// The device that was asked for, or why it cannot be had.
    pub fn find(asked: spec::Device) -> Result<Device, BackendError> {
        match asked {
            spec::Device::Auto | spec::Device::Cpu => {
                Ok(Device { threads: threads(), isa: Isa::best() })
            }
            spec::Device::Cuda(_) => {
                let what = "device='cuda': this version computes on the CPU only; use --device=cpu";
                Err(BackendError::Device { what: what.to_string() })
            }
        }
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

    /// What it needs of the arena for itself.
    pub fn scratch(&self) -> Rc<dyn Scratch> {
        Rc::new(CpuScratch { threads: self.threads })
    }

    /// What plans are made for: this device with so much of its memory. The rates decide between
    /// ways to cut a run and must not depend on how busy the machine is, or two runs would be cut
    /// differently; so they are round figures, the same on every CPU.
    pub fn machine(&self, asked: Memory) -> Machine {
        let budget = host_budget(asked);
        let free = cpu::available_bytes().unwrap_or(i64::MAX as u64);
        let device = plan::device::Device {
            name: self.name(),
            memory: share(free, 100.0),
            context: Bytes::ZERO,
            products: 1e11,
            attention: 3e10,
            bandwidth: 2e10,
            link: 2e10,
            launch: 2e-5,
            times: OpTimes::default(),
        };
        Machine { device, scratch: self.scratch(), budget, host: None, compute: Dtype::F32 }
    }

    /// The same with rates that were measured now, for predictions.
    pub fn measured(&self) -> plan::device::Device {
        let table = self.machine(Memory::Auto).device;
        let peak = self.peak_flops().unwrap_or(table.products);
        let bandwidth = cpu::memory_bandwidth(self.threads).unwrap_or(table.bandwidth);
        let attention = peak * table.attention / table.products;
        plan::device::Device { products: peak, attention, bandwidth, ..table }
    }

    /// Takes the plan's memory.
    pub fn load(&self, plan: Plan) -> Result<Box<dyn Backend>, BackendError> {
        Ok(Box::new(CpuBackend::new(plan, CpuOptions::new(self.threads))?))
    }

    /// Whether the host's memory beside the arena can be had, arena already taken.
    pub fn check_host_memory(&self, host: &[HostMemory]) -> Result<(), BackendError> {
        let wanted = Bytes::sum(host.iter().map(|item| item.bytes)).unwrap_or(Bytes::ZERO);
        match cpu::available_bytes() {
            Some(available) if wanted.get() > available => {
                Err(BackendError::OutOfMemory { wanted })
            }
            _ => Ok(()),
        }
    }

    /// Floating-point operations a second that it can do, measured now.
    pub fn peak_flops(&self) -> Option<f64> {
        cpu::peak_flops(self.threads, self.isa).ok()
    }
}

/// Bytes of the host that a run may use.
pub fn host_budget(asked: Memory) -> Bytes {
    let free = cpu::available_bytes().unwrap_or(i64::MAX as u64);
    match asked {
        Memory::Auto => share(free, USABLE),
        Memory::Bytes(bytes) => bytes,
        Memory::Percent(percent) => share(cpu::total_bytes().unwrap_or(free), percent),
    }
}

/// So many per cent of bytes.
pub fn share(bytes: u64, percent: f64) -> Bytes {
    let part = (bytes as f64 * percent / 100.0) as u64;
    Bytes::new(part.min(i64::MAX as u64)).unwrap_or(Bytes::ZERO)
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
