//! AdamW over a flat range of parameters, as nanoGPT's optimizer does it. It zeroes the gradients
//! that it used, so that backward steps can always accumulate.

use super::{Check, Elements, Operand, Operation};
use crate::error::PlanError;
use crate::tensor::{Dtype, TensorId, Tensors};

/// `p = p (1 - lr wd) - lr m̂ / (√v̂ + eps)`, with the clip factor on the gradient.
#[derive(Clone, Debug, PartialEq)]
pub struct AdamW {
    /// Parameters, flat fp32; or only their lower halves, if they are `split`.
    pub weights: TensorId,
    /// Their copy in the compute format, rounded to nearest after the update; ties to even, or away
    /// from zero if they are `split`.
    pub copy: Option<TensorId>,
    /// Whether the fp32 parameters are in two halves: `copy`, in bfloat16, is the upper one
    /// ([`crate::half::split`]).
    pub split: bool,
    /// Their gradients. Zero afterwards, even when the update is skipped.
    pub gradients: TensorId,
    /// First moments. In 16 bits they are rounded stochastically, keyed by seed, step count and
    /// index. Rounding to nearest would lose updates, because a moment often changes by less than
    /// half a unit in the last place.
    pub m: TensorId,
    /// Second moments, likewise.
    pub v: TensorId,
    /// Clip factor, step count and skip flag.
    pub state: TensorId,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added after the square root.
    pub eps: f64,
    /// 0 for biases and gains.
    pub weight_decay: f64,
    /// Index of the first element among all parameters.
    pub first: u64,
}

impl Operation for AdamW {
    fn name(&self) -> &'static str {
        "adamw"
    }

    fn operands(&self) -> Vec<Operand> {
        let (weights, copied): (_, fn(&'static str, TensorId) -> Operand) = match self.split {
            true => (Elements::LowerHalves, Operand::update),
            false => (Elements::Single, Operand::write),
        };
        let mut operands = vec![
            Operand::update("weights", self.weights).of(weights),
            Operand::update("gradients", self.gradients).of(Elements::Single),
            Operand::update("m", self.m),
            Operand::update("v", self.v),
            Operand::read("state", self.state).of(Elements::Words),
        ];
        operands.extend(self.copy.map(|copy| copied("copy", copy)));
        operands
    }

    fn tensors_mut(&mut self) -> Vec<&mut TensorId> {
        let Self { weights, copy, gradients, m, v, state, .. } = self;
        let mut all = vec![weights, gradients, m, v, state];
        all.extend(copy);
        all
    }

    fn attributes(&self) -> Vec<String> {
        let AdamW { beta1, beta2, eps, weight_decay, first, .. } = self;
        vec![
            format!("first={first}"),
            format!("betas={beta1},{beta2}"),
            format!("eps={eps}"),
            format!("weight_decay={weight_decay}"),
        ]
    }

    fn check(&self, tensors: &Tensors) -> Result<(), PlanError> {
        let check = Check::new(self.name(), tensors);
        let &[elements] = check.rank("weights", self.weights, 1)? else { return Ok(()) };
        let rest = [("gradients", self.gradients), ("m", self.m), ("v", self.v)];
        for (name, tensor) in rest.into_iter().chain(self.copy.map(|copy| ("copy", copy))) {
            check.dims(name, tensor, &[elements])?;
        }
        check.one_type(&[("m", self.m), ("v", self.v)])?;
        let is_upper = |copy: TensorId| tensors.get(copy).dtype == Dtype::Bf16;
        check.attribute(!self.split || self.copy.is_some_and(is_upper), || {
            "split weights need a bf16 copy, their upper halves".to_string()
        })?;
        check.state(self.state)?;
        let unit = 0.0..1.0;
        let betas = unit.contains(&self.beta1) && unit.contains(&self.beta2);
        check.attribute(betas, || {
            format!("betas {} and {} must lie in [0, 1)", self.beta1, self.beta2)
        })?;
        check.attribute(self.eps >= 0.0 && self.weight_decay >= 0.0, || {
            format!("eps {} and weight decay {} must be ≥ 0", self.eps, self.weight_decay)
        })
    }

    fn flops(&self, tensors: &Tensors) -> u64 {
        tensors.get(self.weights).shape.elements().saturating_mul(15)
    }
}
