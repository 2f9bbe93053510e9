//! The machine that a plan is for, and the options for optimizer state that its user permits.

use model::Types;
use plan::hardware::Hardware;
use plan::{Bytes, Dtype, GpuScratch, Scratch};
use spec::{GradCheckpoint, Offload, OptimizerState, RequestedDtype, Residual, RunSpec};
use std::rc::Rc;

/// The machine that a plan is for.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its rates and memory.
    pub hardware: Hardware,
    /// The scratch that its backend needs.
    pub scratch: Rc<dyn Scratch>,
    /// Bytes of device memory that may be used, its context included.
    pub budget: Bytes,
    /// Bytes of host memory that may be used for what does not fit on the device. None if
    /// device and host are the same.
    pub host: Option<Bytes>,
    /// The number format of matmuls.
    pub compute: Dtype,
}

impl Machine {
    /// A GPU, in the number format that the run asks for.
    pub fn gpu(hardware: Hardware, run: &RunSpec, budget: Bytes, host: Bytes) -> Machine {
        let scratch = Rc::new(GpuScratch { warpgroups: hardware.warpgroups });
        Machine { hardware, scratch, budget, host: Some(host), compute: gpu_format(run.dtype) }
    }

    /// Whether layers of a run may keep activations in host memory. Not in a run of several ranks:
    /// those of one host share its link, and each would decide by what is free on its own host.
    pub fn may_offload_activations(&self, run: &RunSpec) -> bool {
        let is_asked = match run.offload {
            Offload::Never | Offload::Optimizer => false,
            Offload::Activations | Offload::Auto => true,
        };
        let may_choose = run.grad_checkpoint == GradCheckpoint::Auto && !run.rank.has_others();
        is_asked && may_choose && self.host.is_some()
    }

    /// The number formats of a run.
    pub fn types(&self, run: &RunSpec) -> Types {
        let residual = match run.residual {
            Residual::Auto => self.compute,
            Residual::Float32 => Dtype::F32,
        };
        Types { compute: self.compute, residual }
    }
}

/// bfloat16 unless the run chooses another, as nanoGPT's default is on such cards.
pub fn gpu_format(dtype: RequestedDtype) -> Dtype {
    match dtype {
        RequestedDtype::Auto | RequestedDtype::Bfloat16 => Dtype::Bf16,
        RequestedDtype::Float16 => Dtype::F16,
        RequestedDtype::Float32 => Dtype::F32,
    }
}

/// How the optimizer's state is stored. This changes more than time, so only the user can permit
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateOptions {
    /// The number format of the optimizer's state.
    pub format: Dtype,
    /// Whether the state and the master weights are in host memory.
    pub offload: bool,
}

impl StateOptions {
    /// f32 state on the device, as in nanoGPT.
    pub const DEFAULT: StateOptions = StateOptions { format: Dtype::F32, offload: false };

    /// The options that the run permits on this machine, in order of preference: exact numbers
    /// before rounded ones, the device before the host.
    pub fn permitted(run: &RunSpec, machine: &Machine) -> Vec<StateOptions> {
        let formats: &[Dtype] = match run.optimizer_state {
            OptimizerState::Float32 => &[Dtype::F32],
            OptimizerState::Bfloat16 => &[Dtype::Bf16],
            OptimizerState::Auto => &[Dtype::F32, Dtype::Bf16],
        };
        let places: &[bool] = match (run.offload, machine.host) {
            (Offload::Never | Offload::Activations, _) | (_, None) => &[false],
            (Offload::Optimizer, Some(_)) => &[true],
            (Offload::Auto, Some(_)) => &[false, true],
        };
        let at = |&offload: &bool| {
            let options = move |&format| StateOptions { format, offload };
            formats.iter().map(options).collect::<Vec<_>>()
        };
        places.iter().flat_map(at).collect()
    }
}
