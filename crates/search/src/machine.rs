//! Where a plan is to run, and which levers its user permits there.

use model::Types;
use plan::hardware::Hardware;
use plan::{Bytes, Dtype, GpuScratch, Scratch};
use spec::{Offload, OptimizerState, RequestedDtype, Residual, RunSpec};
use std::rc::Rc;

/// Where a plan is to run.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its rates and memory.
    pub hardware: Hardware,
    /// What its backend needs for itself.
    pub scratch: Rc<dyn Scratch>,
    /// Bytes of the device that may be used, its context included.
    pub budget: Bytes,
    /// Bytes of the host that may be used for what the device has no room for; none where device
    /// and host are one.
    pub host: Option<Bytes>,
    /// The number format of products.
    pub compute: Dtype,
}

impl Machine {
    /// A GPU, in the number format that the run asks for.
    pub fn gpu(hardware: Hardware, run: &RunSpec, budget: Bytes, host: Bytes) -> Machine {
        let scratch = Rc::new(GpuScratch);
        Machine { hardware, scratch, budget, host: Some(host), compute: gpu_format(run.dtype) }
    }

    /// The formats of a run's numbers.
    pub fn types(&self, run: &RunSpec, levers: Levers) -> Types {
        let residual = match run.residual {
            Residual::Auto => self.compute,
            Residual::Float32 => Dtype::F32,
        };
        Types { compute: self.compute, residual, moments: levers.moments }
    }
}

/// bfloat16 unless the run says otherwise, as nanoGPT's default is on such cards.
pub fn gpu_format(dtype: RequestedDtype) -> Dtype {
    match dtype {
        RequestedDtype::Auto | RequestedDtype::Bfloat16 => Dtype::Bf16,
        RequestedDtype::Float16 => Dtype::F16,
        RequestedDtype::Float32 => Dtype::F32,
    }
}

/// What is done with the optimizer's state. It changes more than time, so only the user permits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levers {
    /// The number format of AdamW's moments.
    pub moments: Dtype,
    /// Moments and master weights live in host memory.
    pub offload: bool,
}

impl Levers {
    /// None pulled.
    pub const NONE: Levers = Levers { moments: Dtype::F32, offload: false };

    /// Those that the run permits on the machine, in the order in which they are preferred: exact
    /// numbers before rounded ones, the device before the host.
    pub fn permitted(run: &RunSpec, machine: &Machine) -> Vec<Levers> {
        let formats: &[Dtype] = match run.optimizer_state {
            OptimizerState::Float32 => &[Dtype::F32],
            OptimizerState::Bfloat16 => &[Dtype::Bf16],
            OptimizerState::Auto => &[Dtype::F32, Dtype::Bf16],
        };
        let places: &[bool] = match (run.offload, machine.host) {
            (Offload::Never, _) | (_, None) => &[false],
            (Offload::Optimizer, Some(_)) => &[true],
            (Offload::Auto, Some(_)) => &[false, true],
        };
        let at = |&offload: &bool| {
            formats.iter().map(move |&moments| Levers { moments, offload }).collect::<Vec<_>>()
        };
        places.iter().flat_map(at).collect()
    }
}
