//! The norm of gradients that are divided among ranks: each rank sums the squares of its pieces, in
//! the same blocks as [`super::GradNorm`], and every rank adds up all blocks. So the norm has the
//! same bits as on one rank.

use super::{Check, Elements, GRAD_NORM_BLOCK, Operand, Operation};
use crate::error::PlanError;
use crate::tensor::{TensorId, Tensors};

/// `partials[first_block + b] = Σ gradients²` over block `b`.
#[derive(Clone, Debug, PartialEq)]
pub struct SquareSums {
    /// A range of the gradients that begins with a block.
    pub gradients: TensorId,
    /// `[blocks, 2]`: for each block of all gradients the two words of an f64 sum.
    pub partials: TensorId,
    /// The first block of the range.
    pub first_block: u64,
}

impl Operation for SquareSums {
    fn name(&self) -> &'static str {
        "square_sums"
    }

    fn operands(&self) -> Vec<Operand> {
        vec![
            Operand::read("gradients", self.gradients).of(Elements::Single),
            Operand::update("partials", self.partials).of(Elements::WideSums),
        ]
    }

    fn tensors_mut(&mut self) -> Vec<&mut TensorId> {
        let Self { gradients, partials, .. } = self;
        vec![gradients, partials]
    }

    fn attributes(&self) -> Vec<String> {
        vec![format!("first_block={}", self.first_block)]
    }

    fn check(&self, tensors: &Tensors) -> Result<(), PlanError> {
        let check = Check::new(self.name(), tensors);
        let &[elements] = check.rank("gradients", self.gradients, 1)? else { return Ok(()) };
        let &[blocks, words] = check.rank("partials", self.partials, 2)? else { return Ok(()) };
        let end = self.first_block.checked_add(elements.div_ceil(GRAD_NORM_BLOCK));
        let is_inside = words == 2 && end.is_some_and(|end| end <= blocks);
        check.attribute(is_inside, || {
            let first = self.first_block;
            format!("{elements} elements from block {first} on have no room in {blocks} sums")
        })
    }

    fn flops(&self, tensors: &Tensors) -> u64 {
        tensors.get(self.gradients).shape.elements().saturating_mul(2)
    }
}

/// `state.grad_norm = √Σ partials / loss_scale`, `state.found_inf` when it is not finite.
#[derive(Clone, Debug, PartialEq)]
pub struct NormOfSums {
    /// `[ranks, blocks, 2]`: the sums of every rank, zero for blocks of other ranks.
    pub partials: TensorId,
    /// The step state.
    pub state: TensorId,
}

impl Operation for NormOfSums {
    fn name(&self) -> &'static str {
        "norm_of_sums"
    }

    fn operands(&self) -> Vec<Operand> {
        vec![
            Operand::read("partials", self.partials).of(Elements::WideSums),
            Operand::update("state", self.state).of(Elements::Words),
        ]
    }

    fn tensors_mut(&mut self) -> Vec<&mut TensorId> {
        vec![&mut self.partials, &mut self.state]
    }

    fn check(&self, tensors: &Tensors) -> Result<(), PlanError> {
        let check = Check::new(self.name(), tensors);
        let &[_, _, words] = check.rank("partials", self.partials, 3)? else { return Ok(()) };
        check.attribute(words == 2, || format!("sums of {words} words, not 2"))?;
        check.state(self.state)
    }

    fn flops(&self, tensors: &Tensors) -> u64 {
        tensors.get(self.partials).shape.rows()
    }
}
