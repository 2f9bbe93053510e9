//! Fills a tensor with zeros, for sums that are added up over several steps.

use super::{Elements, Operand, Operation};
use crate::error::PlanError;
use crate::tensor::{TensorId, Tensors};

/// `tensor = 0`.
#[derive(Clone, Debug, PartialEq)]
pub struct Clear {
    /// What becomes zero.
    pub tensor: TensorId,
}

impl Operation for Clear {
    fn name(&self) -> &'static str {
        "clear"
    }

    fn operands(&self) -> Vec<Operand> {
        vec![Operand::write("tensor", self.tensor).of(Elements::Any)]
    }

    fn tensors_mut(&mut self) -> Vec<&mut TensorId> {
        vec![&mut self.tensor]
    }

    fn check(&self, _: &Tensors) -> Result<(), PlanError> {
        Ok(())
    }

    fn flops(&self, _: &Tensors) -> u64 {
        0
    }
}
