//! What the update does with the gradient norm: skip or step, the factor on the gradients, Adam's
//! step count, and the loss scale of the next iteration. All of this is done on the device, in the
//! step state.

use super::{Check, Elements, Operand, Operation};
use crate::error::PlanError;
use crate::tensor::{TensorId, Tensors};

/// How the loss is scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scaling {
    /// No scaling (fp32, bf16). Gradients that are not finite are applied, as in nanoGPT.
    Off,
    /// As PyTorch's GradScaler: the scale doubles after `growth_interval` clean steps. On inf or
    /// NaN it is halved and the update is skipped.
    Dynamic {
        /// Clean steps before the scale doubles.
        growth_interval: u32,
    },
}

/// Reads `grad_norm` and `found_inf`, sets `grad_multiplier`, `skipped`, `updates`, `loss_scale`.
#[derive(Clone, Debug, PartialEq)]
pub struct LossScaler {
    /// The step state.
    pub state: TensorId,
    /// How the loss is scaled.
    pub scaling: Scaling,
}

impl Operation for LossScaler {
    fn name(&self) -> &'static str {
        "loss_scaler"
    }

    fn operands(&self) -> Vec<Operand> {
        vec![Operand::update("state", self.state).of(Elements::Words)]
    }

    fn tensors_mut(&mut self) -> Vec<&mut TensorId> {
        let Self { state, .. } = self;
        vec![state]
    }

    fn attributes(&self) -> Vec<String> {
        vec![match self.scaling {
            Scaling::Off => "scaling=off".to_string(),
            Scaling::Dynamic { growth_interval } => format!("scaling={growth_interval}"),
        }]
    }

    fn check(&self, tensors: &Tensors) -> Result<(), PlanError> {
        let check = Check::new(self.name(), tensors);
        let never = Scaling::Dynamic { growth_interval: 0 };
        check.attribute(self.scaling != never, || "growth_interval must be at least 1".into())?;
        check.state(self.state)
    }

    fn flops(&self, _: &Tensors) -> u64 {
        0
    }
}
