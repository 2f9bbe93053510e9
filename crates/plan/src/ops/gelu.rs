//! GELU, exact (nanoGPT) or in the tanh form (OpenAI's weights), and its backward in place.

use super::{Access, Check, Operand, Operation};
use crate::error::PlanError;
use crate::schedule::Backward;
use crate::tensor::{TensorId, Tensors};

/// Which GELU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GeluKind {
    /// `x Φ(x)` with the error function, as in nanoGPT.
    Erf,
    /// `x/2 (1 + tanh(√(2/π) (x + 0.044715 x³)))`, as in OpenAI's GPT-2 and llm.c.
    Tanh,
}

impl GeluKind {
    /// The name in listings and settings.
    pub const fn name(self) -> &'static str {
        match self {
            GeluKind::Erf => "erf",
            GeluKind::Tanh => "tanh",
        }
    }
}

/// Operations of GELU and of its gradient, for each number.
pub(super) const GELU: u64 = 20;
pub(super) const GELU_BACKWARD: u64 = 30;

/// `out = gelu(x)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Gelu {
    /// Any shape.
    pub x: TensorId,
    /// Like `x`.
    pub out: TensorId,
    /// Which GELU.
    pub kind: GeluKind,
}

/// `d = d · gelu'(x)`, in place: the gradient of the output becomes that of the input.
#[derive(Clone, Debug, PartialEq)]
pub struct GeluBackward {
    /// The forward's input. The re-emitting form overwrites it with the forward's output.
    pub x: TensorId,
    /// Gradient, in and out.
    pub d: TensorId,
    /// Which GELU.
    pub kind: GeluKind,
    /// Whether to overwrite `x` with the forward's output, recomputed: the forward did not keep it,
    /// and a later step reads it.
    pub again: bool,
}

impl Operation for Gelu {
    fn name(&self) -> &'static str {
        "gelu"
    }

    fn operands(&self) -> Vec<Operand> {
        vec![Operand::read("x", self.x), Operand::write("out", self.out)]
    }

    fn tensors_mut(&mut self) -> Vec<&mut TensorId> {
        let Self { x, out, .. } = self;
        vec![x, out]
    }

    fn attributes(&self) -> Vec<String> {
        vec![format!("kind={}", self.kind.name())]
    }

    fn check(&self, tensors: &Tensors) -> Result<(), PlanError> {
        let check = Check::new(self.name(), tensors);
        check.dims("out", self.out, check.shape(self.x).dims())?;
        check.one_type(&[("x", self.x), ("out", self.out)])
    }

    fn flops(&self, tensors: &Tensors) -> u64 {
        tensors.get(self.x).shape.elements().saturating_mul(GELU)
    }

    fn emit_backward(&self, backward: &mut Backward<'_>) -> Result<(), PlanError> {
        let d = backward.own_gradient_of(self.name(), self.out)?;
        backward.deliver(self.x, d)?;
        backward.push(GeluBackward { x: self.x, d, kind: self.kind, again: false })
    }
}

impl Operation for GeluBackward {
    fn name(&self) -> &'static str {
        "gelu_backward"
    }

    fn operands(&self) -> Vec<Operand> {
        let access = if self.again { Access::Update } else { Access::Read };
        vec![Operand::new("x", self.x, access), Operand::update("d", self.d)]
    }

    fn tensors_mut(&mut self) -> Vec<&mut TensorId> {
        let Self { x, d, .. } = self;
        vec![x, d]
    }

    fn attributes(&self) -> Vec<String> {
        let again = self.again.then(|| "again=gelu".to_string());
        [format!("kind={}", self.kind.name())].into_iter().chain(again).collect()
    }

    fn check(&self, tensors: &Tensors) -> Result<(), PlanError> {
        let check = Check::new(self.name(), tensors);
        check.dims("d", self.d, check.shape(self.x).dims())?;
        check.one_type(&[("x", self.x), ("d", self.d)])
    }

    fn flops(&self, tensors: &Tensors) -> u64 {
        tensors.get(self.x).shape.elements().saturating_mul(GELU_BACKWARD)
    }
}
