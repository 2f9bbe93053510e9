//! Token embedding, plus learned positions where the model has them, with nanoGPT's first dropout.
//! The backward adds each token's gradient to its row in token order, so that the sum does not
//! depend on threads.

use super::{Check, Dropout, Elements, Operand, Operation};
use crate::error::PlanError;
use crate::schedule::Backward;
use crate::tensor::{TensorId, Tensors};

/// The position of the first token of each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PositionFrom {
    /// At position 0.
    Zero,
    /// `StepInputs::position` (decode).
    Step,
}

/// `out[b, t] = dropout(wte[tokens[b, t]] + wpe[t])`, or without `wpe`.
#[derive(Clone, Debug, PartialEq)]
pub struct Embed {
    /// `[rows, positions]` ids.
    pub tokens: TensorId,
    /// `[vocabulary, width]`.
    pub wte: TensorId,
    /// `[block_size, width]`, where positions are learned.
    pub wpe: Option<TensorId>,
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
    /// `[block_size, width]` accumulator, where positions are learned.
    pub d_wpe: Option<TensorId>,
    /// The forward's dropout.
    pub dropout: Option<Dropout>,
    /// The backend's own scratch: tokens sorted by id.
    pub workspace: TensorId,
}

fn check_tables(
    check: &Check<'_>,
    tokens: TensorId,
    [out, wte]: [(&str, TensorId); 2],
    wpe: Option<(&str, TensorId)>,
    dropout: Option<Dropout>,
) -> Result<(), PlanError> {
    let &[rows, positions] = check.rank("tokens", tokens, 2)? else { return Ok(()) };
    let width = check.shape(wte.1).width();
    check.dims(out.0, out.1, &[rows, positions, width])?;
    check.rank(wte.0, wte.1, 2)?;
    if let Some((name, wpe)) = wpe {
        let &[block, _] = check.rank(name, wpe, 2)? else { return Ok(()) };
        check.dims(name, wpe, &[block, width])?;
        check.attribute(positions <= block, || {
            format!("{positions} positions, but only {block} are embedded")
        })?;
    }
    check.attribute(dropout.is_none_or(|d| d.is_valid()), || {
        format!("dropout {dropout:?} is outside [0, 1)")
    })
}

impl Operation for Embed {
    fn name(&self) -> &'static str {
        "embed"
    }

    fn operands(&self) -> Vec<Operand> {
        let tables = [
            Operand::read("tokens", self.tokens).of(Elements::Ids),
            Operand::read("wte", self.wte),
        ];
        let wpe = self.wpe.map(|wpe| Operand::read("wpe", wpe));
        tables.into_iter().chain(wpe).chain([Operand::write("out", self.out)]).collect()
    }

    fn tensors_mut(&mut self) -> Vec<&mut TensorId> {
        let Self { tokens, wte, wpe, out, .. } = self;
        [tokens, wte].into_iter().chain(wpe).chain([out]).collect()
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
        let wpe = self.wpe.map(|wpe| ("wpe", wpe));
        let tables = [("out", self.out), ("wte", self.wte)];
        check_tables(&check, self.tokens, tables, wpe, self.dropout)?;
        wpe.map_or(Ok(()), |wpe| check.one_type(&[("wte", self.wte), wpe]))
    }

    fn flops(&self, tensors: &Tensors) -> u64 {
        self.wpe.map_or(0, |_| tensors.get(self.out).shape.elements())
    }

    /// Only the rows that are looked up are moved, not the whole table.
    fn bytes(&self, tensors: &Tensors) -> u64 {
        tensors.bytes(self.out).get().saturating_mul(2 + u64::from(self.wpe.is_some()))
    }

    fn emit_backward(&self, backward: &mut Backward<'_>) -> Result<(), PlanError> {
        if self.position != PositionFrom::Zero {
            let missing = "only sequences from position 0 are trained on".to_string();
            return Err(PlanError::NoGradient { op: self.name(), missing });
        }
        let d_out = backward.gradient_of(self.name(), self.out)?;
        let d_wte = backward.parameter_gradient(self.name(), self.wte)?;
        let accumulator = |wpe| backward.parameter_gradient(self.name(), wpe);
        let d_wpe = self.wpe.map(accumulator).transpose()?;
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
        let read = [
            Operand::read("tokens", self.tokens).of(Elements::Ids),
            Operand::read("d_out", self.d_out),
        ];
        let gradients = std::iter::once(Operand::update("d_wte", self.d_wte))
            .chain(self.d_wpe.map(|d_wpe| Operand::update("d_wpe", d_wpe)))
            .map(|gradient| gradient.of(Elements::Single));
        let workspace = Operand::workspace(self.workspace);
        read.into_iter().chain(gradients).chain([workspace]).collect()
    }

    fn tensors_mut(&mut self) -> Vec<&mut TensorId> {
        let Self { tokens, d_out, d_wte, d_wpe, workspace, .. } = self;
        [tokens, d_out, d_wte].into_iter().chain(d_wpe).chain([workspace]).collect()
    }

    fn attributes(&self) -> Vec<String> {
        Dropout::word(self.dropout.as_ref()).into_iter().collect()
    }

    fn check(&self, tensors: &Tensors) -> Result<(), PlanError> {
        let check = Check::new(self.name(), tensors);
        let d_wpe = self.d_wpe.map(|d_wpe| ("d_wpe", d_wpe));
        let tables = [("d_out", self.d_out), ("d_wte", self.d_wte)];
        check_tables(&check, self.tokens, tables, d_wpe, self.dropout)
    }

    fn flops(&self, tensors: &Tensors) -> u64 {
        let tables = 1 + u64::from(self.d_wpe.is_some());
        tensors.get(self.d_out).shape.elements().saturating_mul(tables)
    }

    /// As for the forward: a row of each table's gradient is updated for each token.
    fn bytes(&self, tensors: &Tensors) -> u64 {
        let tables = 1 + u64::from(self.d_wpe.is_some());
        tensors.bytes(self.d_out).get().saturating_mul(1 + 2 * tables)
    }
}
