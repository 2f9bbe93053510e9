//! AdamW, which keeps two moments for each parameter element.

use crate::optimizer::{Optimizer, Rule, StateRow, UpdatePart};
use crate::program::Types;
use crate::run_tensors::missing;
use plan::ops::{self, Op};
use plan::{PlanError, Role};

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
}

impl Rule for AdamW {
    fn state(&self, types: &Types) -> Vec<StateRow> {
        let moment = |name| StateRow { name, dtype: types.moments, role: Role::Moment };
        vec![moment("m"), moment("v")]
    }

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    fn op(&self, part: UpdatePart<'_>) -> Result<Op, PlanError> {
        let UpdatePart { first, weight_decay, weights, copy, gradients, .. } = part;
        let &[m, v] = part.state else {
            return Err(missing("moments"));
        };
        let (state, AdamW { beta1, beta2, eps, .. }) = (part.step_state, *self);
        let op = ops::AdamW {
            weights,
            copy,
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
