//! AdamW, which keeps two moments for each parameter element.

use crate::optimizer::{Optimizer, Rule, StateRow, UpdatePart};
use crate::run_tensors::missing;
use plan::ops::{self, Op};
use plan::{Dtype, PlanError, Role};

/// AdamW's constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added after the square root.
    pub eps: f64,
    /// Applied to tensors of two or more dimensions.
    pub weight_decay: f64,
    /// The number format of both moments.
    pub moments: Dtype,
}

impl AdamW {
    /// nanoGPT's defaults; `eps` is PyTorch's.
    pub const NANOGPT: AdamW =
        AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1, moments: Dtype::F32 };
}

impl Rule for AdamW {
    fn state(&self) -> Vec<StateRow> {
        let moment = |name| StateRow { name, dtype: self.moments, role: Role::Moment };
        vec![moment("m"), moment("v")]
    }

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    fn op(&self, part: UpdatePart<'_>) -> Result<Op, PlanError> {
        let UpdatePart { first, weight_decay, weights, copy, split, gradients, .. } = part;
        let &[m, v] = part.state else {
            return Err(missing("moments"));
        };
        let (state, AdamW { beta1, beta2, eps, .. }) = (part.step_state, *self);
        let op = ops::AdamW {
            weights,
            copy,
            split,
            gradients,
            m,
            v,
            state,
            beta1,
            beta2,
            eps,
            weight_decay,
            first,
        };
        Ok(op.into())
    }
}

impl From<AdamW> for Optimizer {
    fn from(adamw: AdamW) -> Optimizer {
        Optimizer::AdamW(adamw)
    }
}
