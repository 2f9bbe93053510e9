//! Pieces that the ranks hold, put together on every rank: updated weights, sums of squares,
//! losses.

use super::{Check, Elements, Operand, Operation};
use crate::error::PlanError;
use crate::ranks::Pieces;
use crate::tensor::{TensorId, Tensors};

/// Piece `r` of `buffer` on every rank = what rank `r` holds.
#[derive(Clone, Debug, PartialEq)]
pub struct AllGather {
    /// This rank's piece, if it is not in the buffer already.
    pub piece: Option<TensorId>,
    /// All pieces, one after the other. Without `piece`, this rank's is there before the step.
    pub buffer: TensorId,
    /// How the buffer's elements are divided among the ranks.
    pub pieces: Pieces,
}

impl Operation for AllGather {
    fn name(&self) -> &'static str {
        "all_gather"
    }

    fn operands(&self) -> Vec<Operand> {
        let mut operands: Vec<Operand> =
            self.piece.map(|id| Operand::read("piece", id)).into_iter().collect();
        // A rank without a piece of its own only receives.
        operands.push(match self.piece.is_some() || self.pieces.own() == 0 {
            true => Operand::write("buffer", self.buffer),
            false => Operand::update("buffer", self.buffer),
        });
        operands.into_iter().map(|operand| operand.of(Elements::Any)).collect()
    }

    fn tensors_mut(&mut self) -> Vec<&mut TensorId> {
        let Self { piece, buffer, .. } = self;
        piece.iter_mut().chain([buffer]).collect()
    }

    fn attributes(&self) -> Vec<String> {
        vec![self.pieces.to_string()]
    }

    fn check(&self, tensors: &Tensors) -> Result<(), PlanError> {
        let check = Check::new(self.name(), tensors);
        check.dims("buffer", self.buffer, &[self.pieces.total()])?;
        let Some(piece) = self.piece else { return Ok(()) };
        check.dims("piece", piece, &[self.pieces.own()])?;
        check.one_type(&[("buffer", self.buffer), ("piece", piece)])
    }

    fn flops(&self, _: &Tensors) -> u64 {
        0
    }

    /// Bytes that this rank sends.
    fn wire_bytes(&self, tensors: &Tensors) -> u64 {
        let others = self.pieces.ranks() as u64 - 1;
        let size = tensors.get(self.buffer).dtype.size();
        self.pieces.own().saturating_mul(others).saturating_mul(size)
    }
}
