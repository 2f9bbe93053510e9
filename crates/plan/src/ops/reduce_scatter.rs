//! The sum of a gradient over all ranks, divided among them. Every rank sends each other rank its
//! piece; each then adds what it received in the order of the ranks. So the sum has the same bits
//! however many ranks there are, as long as the groups of sequences behind it are the same.

use super::{Check, Elements, Operand, Operation};
use crate::error::PlanError;
use crate::ranks::Pieces;
use crate::tensor::{Dtype, TensorId, Tensors};

/// `total += g_0 + g_1 + …` over the ranks, for this rank's piece of a window of gradients.
#[derive(Clone, Debug, PartialEq)]
pub struct ReduceScatter {
    /// A window of this rank's gradients, flat f32. Zero afterwards, except this rank's piece when
    /// there is no `total`: then the sum is there.
    pub gradients: TensorId,
    /// What this rank's piece is added to, if an iteration has several rounds.
    pub total: Option<TensorId>,
    /// What every rank sends, and what arrives.
    pub workspace: TensorId,
    /// How the window is divided among the ranks.
    pub pieces: Pieces,
    /// The number format in which gradients travel: f32, or 16 bits rounded to nearest.
    pub wire: Dtype,
}

impl ReduceScatter {
    /// Bytes of the workspace: this rank's piece from every rank, and in 16 bits also what is sent.
    /// Nothing travels in a run of one rank.
    pub fn workspace_bytes(&self) -> Option<u64> {
        if self.pieces.ranks() == 1 {
            return Some(0);
        }
        let received = self.pieces.own().checked_mul(self.pieces.ranks() as u64)?;
        let sent = if self.wire == Dtype::F32 { 0 } else { self.pieces.total() };
        // What arrives begins where f32 may begin.
        let sent = sent.checked_mul(self.wire.size())?.next_multiple_of(4);
        received.checked_mul(self.wire.size())?.checked_add(sent)
    }
}

impl Operation for ReduceScatter {
    fn name(&self) -> &'static str {
        "reduce_scatter"
    }

    fn operands(&self) -> Vec<Operand> {
        let mut operands = vec![Operand::update("gradients", self.gradients).of(Elements::Single)];
        operands.extend(self.total.map(|id| Operand::update("total", id).of(Elements::Single)));
        operands.push(Operand::workspace(self.workspace));
        operands
    }

    fn tensors_mut(&mut self) -> Vec<&mut TensorId> {
        let Self { gradients, total, workspace, .. } = self;
        let mut all = vec![gradients];
        all.extend(total);
        all.push(workspace);
        all
    }

    fn attributes(&self) -> Vec<String> {
        vec![self.pieces.to_string(), format!("wire={}", self.wire)]
    }

    fn check(&self, tensors: &Tensors) -> Result<(), PlanError> {
        let check = Check::new(self.name(), tensors);
        check.dims("gradients", self.gradients, &[self.pieces.total()])?;
        if let Some(total) = self.total {
            check.dims("total", total, &[self.pieces.own()])?;
        }
        let is_float = matches!(self.wire, Dtype::F32 | Dtype::Bf16 | Dtype::F16);
        check.attribute(is_float, || format!("gradients cannot travel as {}", self.wire))
    }

    fn flops(&self, _: &Tensors) -> u64 {
        self.pieces.own().saturating_mul(self.pieces.ranks() as u64)
    }

    /// Bytes that this rank sends.
    fn wire_bytes(&self, _: &Tensors) -> u64 {
        (self.pieces.total() - self.pieces.own()).saturating_mul(self.wire.size())
    }
}
