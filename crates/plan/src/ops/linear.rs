//! The matmul of a linear layer and the two matmuls of its gradients. Weights are `[out, in]`, as
//! nanoGPT's `nn.Linear` stores them. Where a backend computes a matmul and the GELU next to it in
//! one pass, `fuse` makes them one op, and likewise a matmul and the residual addition behind it.

use super::gelu::{GELU, GELU_BACKWARD};
use super::{Access, Check, Elements, GeluKind, Operand, Operation, matmul_flops};
use crate::error::PlanError;
use crate::schedule::Backward;
use crate::tensor::{TensorId, Tensors};

/// GELU of a linear layer's sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeluOfSums {
    /// Which GELU.
    pub kind: GeluKind,
    /// The sums themselves, like `out`, if a later step reads them.
    pub sums: Option<TensorId>,
}

/// The GELU that computed a linear layer's input: the gradient goes on through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeluBefore {
    /// Which GELU.
    pub kind: GeluKind,
    /// What GELU was computed of, like `d_x`.
    pub x: TensorId,
    /// Whether to overwrite `x` with GELU's result, as [`super::GeluBackward::again`].
    pub again: bool,
}

/// `out = x wᵀ + bias`, or GELU of that, or that and the residual stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    /// `[…, inputs]`.
    pub x: TensorId,
    /// `[outputs, inputs]`.
    pub w: TensorId,
    /// `[outputs]`.
    pub bias: Option<TensorId>,
    /// `[…, outputs]`.
    pub out: TensorId,
    /// GELU, if `out` is to have it.
    pub gelu: Option<GeluOfSums>,
    /// What is added before `out` is rounded, like `out`. Not with a GELU.
    pub residual: Option<TensorId>,
    /// The backend's own scratch (packed panels, a BLAS workspace).
    pub workspace: TensorId,
}

/// `d_x = d_out w`, or that times the slope of a GELU.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearBackwardInput {
    /// `[…, outputs]`.
    pub d_out: TensorId,
    /// `[outputs, inputs]`.
    pub w: TensorId,
    /// `[…, inputs]`.
    pub d_x: TensorId,
    /// The GELU before the layer, if `d_x` is to be the gradient of its input.
    pub gelu: Option<GeluBefore>,
    /// The backend's own scratch.
    pub workspace: TensorId,
}

/// `d_w += d_outᵀ x` and `d_bias += Σ d_out`, summed in blocks of 256 tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearBackwardWeight {
    /// `[…, outputs]`.
    pub d_out: TensorId,
    /// `[…, inputs]`.
    pub x: TensorId,
    /// `[outputs, inputs]` accumulator.
    pub d_w: TensorId,
    /// `[outputs]` accumulator.
    pub d_bias: Option<TensorId>,
    /// The backend's own scratch.
    pub workspace: TensorId,
}

/// The shape rule of all three, given the tensors that are shaped like `x`, `w` and `out`.
fn check_matmul(
    check: &Check<'_>,
    [x, w, out]: [(&str, TensorId); 3],
    bias: Option<(&str, TensorId)>,
) -> Result<(), PlanError> {
    let (inputs, outputs) = (check.shape(x.1).width(), check.shape(out.1).width());
    check.dims(w.0, w.1, &[outputs, inputs])?;
    let mut wanted = check.shape(x.1).dims().to_vec();
    if let Some(last) = wanted.last_mut() {
        *last = outputs;
    }
    check.dims(out.0, out.1, &wanted)?;
    bias.map_or(Ok(()), |(name, bias)| check.dims(name, bias, &[outputs]))
}

fn work(tensors: &Tensors, x: TensorId, w: TensorId) -> u64 {
    let w = tensors.get(w).shape;
    matmul_flops(tensors.get(x).shape.rows(), w.rows(), w.width())
}

fn elements(tensors: &Tensors, id: TensorId) -> u64 {
    tensors.get(id).shape.elements()
}

impl Operation for Linear {
    fn name(&self) -> &'static str {
        match (self.gelu, self.residual) {
            (Some(_), _) => "linear_gelu",
            (None, Some(_)) => "linear_add",
            (None, None) => "linear",
        }
    }

    fn operands(&self) -> Vec<Operand> {
        let mut operands = vec![Operand::read("x", self.x), Operand::read("w", self.w)];
        operands.extend(self.bias.map(|bias| Operand::read("bias", bias)));
        operands.extend(self.residual.map(|residual| Operand::read("residual", residual)));
        let sums = self.gelu.and_then(|gelu| gelu.sums);
        operands.extend(sums.map(|sums| Operand::write("sums", sums)));
        operands.push(Operand::write("out", self.out));
        operands.push(Operand::workspace(self.workspace));
        operands
    }

    fn tensors_mut(&mut self) -> Vec<&mut TensorId> {
        let Self { x, w, out, workspace, bias, gelu, residual } = self;
        let mut all = vec![x, w, out, workspace];
        all.extend(bias);
        all.extend(residual);
        all.extend(gelu.as_mut().and_then(|gelu| gelu.sums.as_mut()));
        all
    }

    fn attributes(&self) -> Vec<String> {
        self.gelu.iter().map(|gelu| format!("gelu={}", gelu.kind.name())).collect()
    }

    fn check(&self, tensors: &Tensors) -> Result<(), PlanError> {
        let check = Check::new(self.name(), tensors);
        let operands = [("x", self.x), ("w", self.w), ("out", self.out)];
        check_matmul(&check, operands, self.bias.map(|bias| ("bias", bias)))?;
        check.one_type(&[("x", self.x), ("w", self.w)])?;
        if let Some(sums) = self.gelu.and_then(|gelu| gelu.sums) {
            check.dims("sums", sums, check.shape(self.out).dims())?;
            check.one_type(&[("out", self.out), ("sums", sums)])?;
        }
        let mut like_out = vec![("out", self.out)];
        like_out.extend(self.bias.map(|bias| ("bias", bias)));
        if let Some(residual) = self.residual {
            check.dims("residual", residual, check.shape(self.out).dims())?;
            like_out.push(("residual", residual));
            let both = || "a GELU and a residual stream".to_string();
            check.attribute(self.gelu.is_none(), both)?;
        }
        check.one_type(&like_out)
    }

    fn flops(&self, tensors: &Tensors) -> u64 {
        let gelu = self.gelu.map_or(0, |_| elements(tensors, self.out).saturating_mul(GELU));
        let added = self.residual.map_or(0, |_| elements(tensors, self.out));
        work(tensors, self.x, self.w).saturating_add(gelu).saturating_add(added)
    }

    /// The weight's gradient comes first, so that `x` is dead before its own gradient is allocated.
    fn emit_backward(&self, backward: &mut Backward<'_>) -> Result<(), PlanError> {
        let name = self.name();
        if self.gelu.is_some() || self.residual.is_some() {
            let missing = "the gradient of what is already part of it".to_string();
            return Err(PlanError::NoGradient { op: name, missing });
        }
        let (x, w) = (self.x, self.w);
        let d_out = backward.gradient_of(name, self.out)?;
        let d_x = backward.new_gradient(x)?;
        let d_w = backward.parameter_gradient(name, w)?;
        let d_bias = self.bias.map(|bias| backward.parameter_gradient(name, bias)).transpose()?;
        backward.push_with_workspace(|workspace| LinearBackwardWeight {
            d_out,
            x,
            d_w,
            d_bias,
            workspace,
        })?;
        let gelu = None;
        let input = |workspace| LinearBackwardInput { d_out, w, d_x, gelu, workspace };
        backward.push_with_workspace(input)
    }
}

impl Operation for LinearBackwardInput {
    fn name(&self) -> &'static str {
        if self.gelu.is_some() { "linear_backward_gelu" } else { "linear_backward_input" }
    }

    fn operands(&self) -> Vec<Operand> {
        let mut operands = vec![Operand::read("d_out", self.d_out), Operand::read("w", self.w)];
        operands.extend(self.gelu.map(|gelu| {
            let access = if gelu.again { Access::Update } else { Access::Read };
            Operand::new("x", gelu.x, access)
        }));
        operands.push(Operand::write("d_x", self.d_x));
        operands.push(Operand::workspace(self.workspace));
        operands
    }

    fn tensors_mut(&mut self) -> Vec<&mut TensorId> {
        let Self { d_out, w, d_x, workspace, gelu } = self;
        let mut all = vec![d_out, w, d_x, workspace];
        all.extend(gelu.as_mut().map(|gelu| &mut gelu.x));
        all
    }

    fn attributes(&self) -> Vec<String> {
        let Some(gelu) = self.gelu else { return Vec::new() };
        let again = gelu.again.then(|| "again=gelu".to_string());
        [format!("gelu={}", gelu.kind.name())].into_iter().chain(again).collect()
    }

    fn check(&self, tensors: &Tensors) -> Result<(), PlanError> {
        let check = Check::new(self.name(), tensors);
        check_matmul(&check, [("d_x", self.d_x), ("w", self.w), ("d_out", self.d_out)], None)?;
        if let Some(gelu) = self.gelu {
            check.dims("x", gelu.x, check.shape(self.d_x).dims())?;
            check.one_type(&[("d_x", self.d_x), ("x", gelu.x)])?;
        }
        check.one_type(&[("d_out", self.d_out), ("w", self.w)])
    }

    fn flops(&self, tensors: &Tensors) -> u64 {
        let gelu = self.gelu.map_or(0, |_| elements(tensors, self.d_x));
        work(tensors, self.d_x, self.w).saturating_add(gelu.saturating_mul(GELU_BACKWARD))
    }
}

impl Operation for LinearBackwardWeight {
    fn name(&self) -> &'static str {
        "linear_backward_weight"
    }

    fn operands(&self) -> Vec<Operand> {
        let mut operands = vec![
            Operand::read("d_out", self.d_out),
            Operand::read("x", self.x),
            Operand::update("d_w", self.d_w).of(Elements::Single),
        ];
        let d_bias = self.d_bias.map(|d_bias| Operand::update("d_bias", d_bias));
        operands.extend(d_bias.map(|d_bias| d_bias.of(Elements::Single)));
        operands.push(Operand::workspace(self.workspace));
        operands
    }

    fn tensors_mut(&mut self) -> Vec<&mut TensorId> {
        let Self { d_out, x, d_w, workspace, d_bias } = self;
        let mut all = vec![d_out, x, d_w, workspace];
        all.extend(d_bias);
        all
    }

    fn check(&self, tensors: &Tensors) -> Result<(), PlanError> {
        let check = Check::new(self.name(), tensors);
        let operands = [("x", self.x), ("d_w", self.d_w), ("d_out", self.d_out)];
        check_matmul(&check, operands, self.d_bias.map(|d_bias| ("d_bias", d_bias)))?;
        check.one_type(&[("d_out", self.d_out), ("x", self.x)])
    }

    fn flops(&self, tensors: &Tensors) -> u64 {
        work(tensors, self.x, self.d_w)
    }
}
