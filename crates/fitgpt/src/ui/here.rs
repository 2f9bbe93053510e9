//! This machine as the planner of the page sees it, without opening a device.

use crate::device::{self, Device};
use crate::measure;
use cuda::GpuInfo;
use plan::Bytes;
use plan::hardware::{Card, Hardware};
use search::Machine;
use serde_json::{Value, json};
use spec::{Memory, RequestedDevice, RequestedDtype, RunSpec};
use std::sync::OnceLock;

/// Left to other programs, as `train` does with `vram='auto'`.
const LEFT_TO_OTHERS: u64 = 256 << 20;

/// A GPU that is not in the table gets this card's rates.
const UNKNOWN: &str = "RTX 4070";

/// This machine.
pub struct Here {
    gpu: Option<GpuInfo>,
    /// The CPU's rates, measured when they are first needed.
    rates: OnceLock<Option<Hardware>>,
    measures: bool,
}

impl Here {
    /// The CPU's rates are measured when somebody asks for a plan for it.
    pub fn measured_on_demand() -> Here {
        Here { gpu: device::first_gpu(), rates: OnceLock::new(), measures: true }
    }

    /// Nothing is measured: a run trains in this process.
    pub fn from_cache() -> Here {
        Here { gpu: device::first_gpu(), rates: OnceLock::new(), measures: false }
    }

    /// What plans for this machine are made for.
    pub fn document(&self) -> Value {
        match &self.gpu {
            Some(gpu) => json!({ "name": gpu.name, "kind": "gpu", "memory_bytes": gpu.memory }),
            None => {
                let memory = ::cpu::total_bytes().unwrap_or(0);
                let name = cpu().map_or_else(String::new, |cpu| cpu.name());
                json!({ "name": name, "kind": "cpu", "memory_bytes": memory })
            }
        }
    }

    /// Whether it has a GPU.
    pub fn has_gpu(&self) -> bool {
        self.gpu.is_some()
    }

    /// What a plan is made for, and the rates to predict its speed with, if they are known.
    pub fn machine(&self, run: &RunSpec) -> Result<(Machine, Option<Hardware>), String> {
        match &self.gpu {
            Some(gpu) => Ok(gpu_machine(gpu, run)),
            None => {
                let device = cpu().ok_or("this machine's CPU cannot be used")?;
                let machine = device.machine(run).map_err(|error| error.to_string())?;
                let times = measure::find(&device);
                let measured = || self.measures.then(|| device.measured(run));
                let rates = match times.is_empty() {
                    true => self.rates.get_or_init(measured).clone(),
                    false => Some(Hardware { times, ..machine.hardware.clone() }),
                };
                Ok((machine, rates))
            }
        }
    }
}

fn cpu() -> Option<Device> {
    Device::find(RequestedDevice::Cpu, None).ok()
}

fn gpu_machine(gpu: &GpuInfo, run: &RunSpec) -> (Machine, Option<Hardware>) {
    let single = run.dtype == RequestedDtype::Float32;
    let row = Card::find(&gpu.name);
    let known = row.or_else(|| Card::find(UNKNOWN)).map(|card| card.hardware(single));
    let memory = bytes(gpu.memory);
    let Some(known) = known else {
        // The table has that row; a machine without memory makes the planner say so otherwise.
        let none = Machine::gpu(empty(), run, Bytes::ZERO, Bytes::ZERO);
        return (none, None);
    };
    let mut hardware = Hardware { name: gpu.name.clone(), memory, ..known };
    hardware.warpgroups = gpu.sm == 90;
    let budget = match run.vram {
        Memory::Auto => bytes(gpu.memory.saturating_sub(LEFT_TO_OTHERS)),
        Memory::Bytes(asked) => asked.min(memory),
        Memory::Percent(percent) => device::share(gpu.memory, percent),
    };
    let times = measure::find_named(&device::gpu_name(gpu));
    let rates = Hardware { times, ..hardware.clone() };
    let machine = Machine::gpu(hardware, run, budget, device::host_budget(run.ram));
    (machine, row.map(|_| rates))
}

fn empty() -> Hardware {
    Hardware {
        name: String::new(),
        memory: Bytes::ZERO,
        context: Bytes::ZERO,
        matmul: 1.0,
        attention: 1.0,
        bandwidth: 1.0,
        link: 1.0,
        network: plan::hardware::Network::NONE,
        launch: 1.0,
        copy_wait: 0.0,
        multiprocessors: 0,
        warpgroups: false,
        times: plan::op_times::OpTimes::default(),
    }
}

fn bytes(count: u64) -> Bytes {
    Bytes::new(count).unwrap_or(Bytes::ZERO)
}
