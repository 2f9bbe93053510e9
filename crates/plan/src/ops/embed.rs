//! Token plus position embedding, with nanoGPT's first dropout; and its backward, which adds each
//! token's gradient to its row in token order, so that the sum does not depend on threads.

use super::{Check, Dropout, Elements, Operand, Operation};
use crate::error::PlanError;
use crate::schedule::Backward;
use crate::tensor::{TensorId, Tensors};

/// Where the first token of each row stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PositionFrom {
    /// At position 0.
    Zero,
    /// At `StepInputs::position` (decode).
    Step,
}

/// `out[b, t] = dropout(wte[tokens[b, t]] + wpe[t])`.
#[derive(Clone, Debug, PartialEq)]
pub struct Embed {
    /// `[rows, positions]` ids.
    pub tokens: TensorId,
    /// `[vocabulary, width]`.
    pub wte: TensorId,
    /// `[block_size, width]`.
    pub wpe: TensorId,
    /// `[rows, positions, width]`.
    pub out: TensorId,
    /// Where positions start.
    pub position: PositionFrom,
    /// Dropout on the sum.
    pub dropout: Option<Dropout>,
}

/// `d_wte[token] += d`, `d_wpe[t] += d`, where `d` is the masked gradient.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbedBackward {
    /// `[rows, positions]` ids.
    pub tokens: TensorId,
    /// `[rows, positions, width]`.
    pub d_out: TensorId,
    /// `[vocabulary, width]` accumulator.
    pub d_wte: TensorId,
    /// `[block_size, width]` accumulator.
    pub d_wpe: TensorId,
    /// The forward's dropout.
    pub dropout: Option<Dropout>,
    /// The backend's own scratch: tokens in the order of their ids.
    pub workspace: TensorId,
}

fn check_tables(
    check: &Check<'_>,
    tokens: TensorId,
    [out, wte, wpe]: [(&str, TensorId); 3],
    dropout: Option<Dropout>,
) -> Result<(), PlanError> {
    let &[rows, positions] = check.rank("tokens", tokens, 2)? else { return Ok(()) };
    let width = check.shape(wte.1).width();
    check.dims(out.0, out.1, &[rows, positions, width])?;
    check.rank(wte.0, wte.1, 2)?;
    let &[block, _] = check.rank(wpe.0, wpe.1, 2)? else { return Ok(()) };
    check.dims(wpe.0, wpe.1, &[block, width])?;
    check.attribute(positions <= block, || {
        format!("{positions} positions, but only {block} are embedded")
    })?;
    check.attribute(dropout.is_none_or(|d| d.is_valid()), || {
        format!("dropout {dropout:?} is outside [0, 1)")
    })
}

impl Operation for Embed {
    fn name(&self) -> &'static str {
        "embed"
    }

    fn operands(&self) -> Vec<Operand> {
        vec![
            Operand::read("tokens", self.tokens).of(Elements::Ids),
            Operand::read("wte", self.wte),
            Operand::read("wpe", self.wpe),
            Operand::write("out", self.out),
        ]
    }

    fn tensors_mut(&mut self) -> Vec<&mut TensorId> {
        let Self { tokens, wte, wpe, out, .. } = self;
        vec![tokens, wte, wpe, out]
    }

    fn attributes(&self) -> Vec<String> {
        let from = match self.position {
            PositionFrom::Zero => "zero",
            PositionFrom::Step => "step",
        };
        let words = [format!("position={from}")].into_iter();
        words.chain(Dropout::word(self.dropout.as_ref())).collect()
    }

    fn check(&self, tensors: &Tensors) -> Result<(), PlanError> {
        let check = Check::new(self.name(), tensors);
        let tables = [("out", self.out), ("wte", self.wte), ("wpe", self.wpe)];
        check_tables(&check, self.tokens, tables, self.dropout)
    }

    fn flops(&self, tensors: &Tensors) -> u64 {
        tensors.get(self.out).shape.elements()
    }

    /// Only the rows that are looked up move, not the whole table.
    fn bytes(&self, tensors: &Tensors) -> u64 {
        tensors.bytes(self.out).get().saturating_mul(3)
    }

    fn emit_backward(&self, backward: &mut Backward<'_>) -> Result<(), PlanError> {
        if self.position != PositionFrom::Zero {
            let missing = "only sequences from position 0 are trained on".to_string();
            return Err(PlanError::NoGradient { op: self.name(), missing });
        }
        let d_out = backward.gradient_of(self.name(), self.out)?;
        let d_wte = backward.parameter_gradient(self.name(), self.wte)?;
        let d_wpe = backward.parameter_gradient(self.name(), self.wpe)?;
        let (tokens, dropout) = (self.tokens, self.dropout);
        backward.push_with_workspace(|workspace| EmbedBackward {
            tokens,
            d_out,
            d_wte,
            d_wpe,
            dropout,
            workspace,
        })
    }
}

impl Operation for EmbedBackward {
    fn name(&self) -> &'static str {
        "embed_backward"
    }

    fn operands(&self) -> Vec<Operand> {
        vec![
            Operand::read("tokens", self.tokens).of(Elements::Ids),
            Operand::read("d_out", self.d_out),
            Operand::update("d_wte", self.d_wte),
            Operand::update("d_wpe", self.d_wpe),
            Operand::workspace(self.workspace),
        ]
    }

    fn tensors_mut(&mut self) -> Vec<&mut TensorId> {
        let Self { tokens, d_out, d_wte, d_wpe, workspace, .. } = self;
        vec![tokens, d_out, d_wte, d_wpe, workspace]
    }

    fn attributes(&self) -> Vec<String> {
        Dropout::word(self.dropout.as_ref()).into_iter().collect()
    }

    fn check(&self, tensors: &Tensors) -> Result<(), PlanError> {
        let check = Check::new(self.name(), tensors);
        let tables = [("d_out", self.d_out), ("d_wte", self.d_wte), ("d_wpe", self.d_wpe)];
        check_tables(&check, self.tokens, tables, self.dropout)
    }

    fn flops(&self, tensors: &Tensors) -> u64 {
        tensors.get(self.d_out).shape.elements().saturating_mul(2)
    }

    /// As for the forward: two rows of gradient are updated for each token.
    fn bytes(&self, tensors: &Tensors) -> u64 {
        tensors.bytes(self.d_out).get().saturating_mul(5)
    }
}
