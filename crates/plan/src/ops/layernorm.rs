//! Layer normalisation, fused with the residual addition that precedes it, unless there is none (in
//! the first layer) or the matmul before it adds; and its backward, which updates the residual
//! gradient in place.

use super::{Access, Check, Dropout, Elements, Operand, Operation, Write};
use crate::error::PlanError;
use crate::report::Implied;
use crate::schedule::Backward;
use crate::tensor::{TensorId, Tensors};

/// The branch that is added to `x`: `sum = x + dropout(branch)`. The normalisation reads the stored
/// sum.
#[derive(Clone, Debug, PartialEq)]
pub struct Branch {
    /// The branch's output, like `x`.
    pub branch: TensorId,
    /// Dropout on the branch.
    pub dropout: Option<Dropout>,
    /// Where the sum is kept.
    pub sum: TensorId,
}

/// `out = (s - mean(s)) / sqrt(var(s) + epsilon) · gain + bias`, with `s` = `x` or the sum.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerNorm {
    /// `[…, width]`, the residual stream.
    pub x: TensorId,
    /// The branch to add first, if any.
    pub add: Option<Branch>,
    /// `[width]`.
    pub gain: TensorId,
    /// `[width]`.
    pub bias: Option<TensorId>,
    /// Like `x`.
    pub out: TensorId,
    /// One mean for each row of `x`.
    pub mean: TensorId,
    /// One reciprocal standard deviation for each row of `x`.
    pub rstd: TensorId,
    /// Added to the variance.
    pub epsilon: f64,
}

/// A branch's gradient, for a branch that has dropout or another format than the residual stream.
/// Otherwise its gradient is the stream's.
#[derive(Clone, Debug, PartialEq)]
pub struct BranchGradient {
    /// `d_branch = dropout(d_x)`.
    pub d_branch: TensorId,
    /// The forward's dropout.
    pub dropout: Option<Dropout>,
}

/// The re-emitting form: overwrites `d_out` with the forward's output, recomputed, because the
/// forward did not keep it and a later step reads it.
#[derive(Clone, Debug, PartialEq)]
pub struct NormalisedAgain {
    /// The forward's bias.
    pub bias: Option<TensorId>,
}

/// `d_x (+)= d(layernorm)`, gradients of gain and bias, and the branch's gradient.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerNormBackward {
    /// Gradient of the normalised output. The re-emitting form overwrites it with that output.
    pub d_out: TensorId,
    /// What was normalised.
    pub x: TensorId,
    /// From the forward.
    pub mean: TensorId,
    /// From the forward.
    pub rstd: TensorId,
    /// `[width]`.
    pub gain: TensorId,
    /// `[width]` accumulator.
    pub d_gain: TensorId,
    /// `[width]` accumulator.
    pub d_bias: Option<TensorId>,
    /// Gradient of `x`. Accumulates when the residual path has already added its part.
    pub d_x: TensorId,
    /// Whether `d_x` is overwritten or accumulated.
    pub write: Write,
    /// Set where the branch's gradient is not `d_x` itself.
    pub branch: Option<BranchGradient>,
    /// Set in the re-emitting form.
    pub again: Option<NormalisedAgain>,
    /// The backend's own scratch: partial sums of gain's and bias's gradients.
    pub workspace: TensorId,
}

impl LayerNorm {
    const NAME: &'static str = "layernorm";

    /// How listings show an epsilon.
    fn epsilon_word(epsilon: f64) -> String {
        format!("eps={epsilon:e}")
    }

    /// An epsilon that [`crate::report::steps_hash`] is to leave out.
    pub fn implied_epsilon(epsilon: f64) -> Implied {
        Implied { op: LayerNorm::NAME, attribute: LayerNorm::epsilon_word(epsilon) }
    }

    /// The tensors of the residual stream share one type, all other float tensors another.
    fn check_types(&self, check: &Check<'_>) -> Result<(), PlanError> {
        let mut beside = vec![("out", self.out), ("gain", self.gain)];
        beside.extend(self.bias.map(|bias| ("bias", bias)));
        if let Some(add) = &self.add {
            beside.push(("branch", add.branch));
            check.one_type(&[("x", self.x), ("sum", add.sum)])?;
        }
        check.one_type(&beside)
    }

    /// The op to recompute: if the sum is still there, the normalisation alone. It reads the stored
    /// sum in any case, so the bits are the same.
    pub(super) fn again(&self, is_there: &dyn Fn(TensorId) -> bool) -> LayerNorm {
        match &self.add {
            Some(add) if is_there(add.sum) => LayerNorm { x: add.sum, add: None, ..self.clone() },
            _ => self.clone(),
        }
    }
}

impl Operation for LayerNorm {
    fn name(&self) -> &'static str {
        LayerNorm::NAME
    }

    fn operands(&self) -> Vec<Operand> {
        let mut operands = vec![Operand::read("x", self.x)];
        if let Some(add) = &self.add {
            operands.push(Operand::read("branch", add.branch));
            operands.push(Operand::write("sum", add.sum));
        }
        operands.push(Operand::read("gain", self.gain));
        operands.extend(self.bias.map(|bias| Operand::read("bias", bias)));
        operands.push(Operand::write("out", self.out));
        operands.push(Operand::write("mean", self.mean).of(Elements::Single));
        operands.push(Operand::write("rstd", self.rstd).of(Elements::Single));
        operands
    }

    fn tensors_mut(&mut self) -> Vec<&mut TensorId> {
        let Self { x, gain, out, mean, rstd, bias, add, epsilon: _ } = self;
        let mut all = vec![x, gain, out, mean, rstd];
        all.extend(bias);
        all.extend(add.iter_mut().flat_map(|add| [&mut add.branch, &mut add.sum]));
        all
    }

    fn attributes(&self) -> Vec<String> {
        let dropout = self.add.as_ref().and_then(|add| add.dropout.as_ref());
        let epsilon = LayerNorm::epsilon_word(self.epsilon);
        [epsilon].into_iter().chain(Dropout::word(dropout)).collect()
    }

    fn check(&self, tensors: &Tensors) -> Result<(), PlanError> {
        let check = Check::new(self.name(), tensors);
        let shape = check.shape(self.x);
        check.dims("out", self.out, shape.dims())?;
        if let Some(add) = &self.add {
            check.dims("branch", add.branch, shape.dims())?;
            check.dims("sum", add.sum, shape.dims())?;
            check.attribute(add.dropout.is_none_or(|d| d.is_valid()), || {
                format!("dropout {:?} is outside [0, 1)", add.dropout)
            })?;
        }
        check.dims("gain", self.gain, &[shape.width()])?;
        if let Some(bias) = self.bias {
            check.dims("bias", bias, &[shape.width()])?;
        }
        for (name, statistics) in [("mean", self.mean), ("rstd", self.rstd)] {
            check.dims(name, statistics, &[shape.rows()])?;
        }
        self.check_types(&check)?;
        let epsilon = self.epsilon as f32;
        check.attribute(epsilon > 0.0 && epsilon.is_finite(), || {
            format!("epsilon {} is not above 0 and finite as f32", self.epsilon)
        })
    }

    fn flops(&self, tensors: &Tensors) -> u64 {
        tensors.get(self.x).shape.elements().saturating_mul(8)
    }

    fn emit_backward(&self, backward: &mut Backward<'_>) -> Result<(), PlanError> {
        let name = self.name();
        let d_out = backward.gradient_of(name, self.out)?;
        let normalised = self.add.as_ref().map_or(self.x, |add| add.sum);
        let (d_x, write) = match backward.delivered(normalised) {
            Some(d_x) => (d_x, Write::Accumulate),
            None => (backward.new_gradient(normalised)?, Write::Overwrite),
        };
        let is_apart = |add: &&Branch| {
            add.dropout.is_some() || backward.dtype(add.branch) != backward.dtype(normalised)
        };
        let branch = match self.add.as_ref().filter(is_apart) {
            Some(add) => {
                let d_branch = backward.new_gradient(add.branch)?;
                Some(BranchGradient { d_branch, dropout: add.dropout })
            }
            None => None,
        };
        let d_gain = backward.parameter_gradient(name, self.gain)?;
        let d_bias = self.bias.map(|bias| backward.parameter_gradient(name, bias)).transpose()?;
        let (x, mean, rstd, gain) = (normalised, self.mean, self.rstd, self.gain);
        if let Some(add) = &self.add {
            backward.deliver(self.x, d_x)?;
            if branch.is_none() {
                backward.deliver(add.branch, d_x)?;
            }
        }
        backward.push_with_workspace(|workspace| LayerNormBackward {
            d_out,
            x,
            mean,
            rstd,
            gain,
            d_gain,
            d_bias,
            d_x,
            write,
            branch,
            again: None,
            workspace,
        })
    }
}

impl LayerNormBackward {
    /// As in the forward: one type for the residual stream, one for all other float tensors.
    fn check_types(&self, check: &Check<'_>) -> Result<(), PlanError> {
        let mut beside = vec![("d_out", self.d_out), ("gain", self.gain)];
        beside.extend(self.branch.as_ref().map(|branch| ("d_branch", branch.d_branch)));
        let bias = self.again.as_ref().and_then(|again| again.bias);
        beside.extend(bias.map(|bias| ("bias", bias)));
        check.one_type(&[("x", self.x), ("d_x", self.d_x)])?;
        check.one_type(&beside)
    }
}

impl Operation for LayerNormBackward {
    fn name(&self) -> &'static str {
        "layernorm_backward"
    }

    fn operands(&self) -> Vec<Operand> {
        let access = if self.again.is_some() { Access::Update } else { Access::Read };
        let mut operands = vec![
            Operand::new("d_out", self.d_out, access),
            Operand::read("x", self.x),
            Operand::read("mean", self.mean).of(Elements::Single),
            Operand::read("rstd", self.rstd).of(Elements::Single),
            Operand::read("gain", self.gain),
            Operand::update("d_gain", self.d_gain).of(Elements::Single),
        ];
        let d_bias = self.d_bias.map(|d_bias| Operand::update("d_bias", d_bias));
        operands.extend(d_bias.map(|d_bias| d_bias.of(Elements::Single)));
        operands.push(Operand::new("d_x", self.d_x, self.write.access()));
        operands.extend(self.branch.as_ref().map(|b| Operand::write("d_branch", b.d_branch)));
        let bias = self.again.as_ref().and_then(|again| again.bias);
        operands.extend(bias.map(|bias| Operand::read("bias", bias)));
        operands.push(Operand::workspace(self.workspace));
        operands
    }

    fn tensors_mut(&mut self) -> Vec<&mut TensorId> {
        let Self {
            d_out, x, mean, rstd, gain, d_gain, d_x, workspace, d_bias, branch, again, ..
        } = self;
        let mut all = vec![d_out, x, mean, rstd, gain, d_gain, d_x, workspace];
        all.extend(d_bias);
        all.extend(branch.iter_mut().map(|branch| &mut branch.d_branch));
        all.extend(again.iter_mut().filter_map(|again| again.bias.as_mut()));
        all
    }

    fn attributes(&self) -> Vec<String> {
        let dropout = self.branch.as_ref().and_then(|branch| branch.dropout.as_ref());
        let again = self.again.as_ref().map(|_| "again=normalised".to_string());
        let words = [format!("d_x={}", self.write.name())].into_iter().chain(again);
        words.chain(Dropout::word(dropout)).collect()
    }

    fn check(&self, tensors: &Tensors) -> Result<(), PlanError> {
        let check = Check::new(self.name(), tensors);
        let shape = check.shape(self.x);
        check.dims("d_out", self.d_out, shape.dims())?;
        check.dims("d_x", self.d_x, shape.dims())?;
        if let Some(branch) = &self.branch {
            check.dims("d_branch", branch.d_branch, shape.dims())?;
            check.attribute(branch.dropout.is_none_or(|d| d.is_valid()), || {
                format!("dropout {:?} is outside [0, 1)", branch.dropout)
            })?;
        }
        for (name, statistics) in [("mean", self.mean), ("rstd", self.rstd)] {
            check.dims(name, statistics, &[shape.rows()])?;
        }
        check.dims("gain", self.gain, &[shape.width()])?;
        check.dims("d_gain", self.d_gain, &[shape.width()])?;
        if let Some(d_bias) = self.d_bias {
            check.dims("d_bias", d_bias, &[shape.width()])?;
        }
        if let Some(bias) = self.again.as_ref().and_then(|again| again.bias) {
            check.dims("bias", bias, &[shape.width()])?;
        }
        self.check_types(&check)
    }

    fn flops(&self, tensors: &Tensors) -> u64 {
        tensors.get(self.x).shape.elements().saturating_mul(14)
    }
}
