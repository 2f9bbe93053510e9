//! A copy between the memories of device and host. State that does not fit on the device passes
//! through it in windows; activations leave when the forward has used them, and return for the
//! backward.

use super::{Check, Elements, Operand, Operation};
use crate::error::PlanError;
use crate::tensor::{TensorId, Tensors};

/// `to = from`, element by element.
#[derive(Clone, Debug, PartialEq)]
pub struct Transfer {
    /// What is copied.
    pub from: TensorId,
    /// The destination, of the same type and shape.
    pub to: TensorId,
}

impl Operation for Transfer {
    fn name(&self) -> &'static str {
        "transfer"
    }

    fn operands(&self) -> Vec<Operand> {
        let both = [Operand::read("from", self.from), Operand::write("to", self.to)];
        both.map(|operand| operand.of(Elements::Any)).to_vec()
    }

    fn tensors_mut(&mut self) -> Vec<&mut TensorId> {
        vec![&mut self.from, &mut self.to]
    }

    fn check(&self, tensors: &Tensors) -> Result<(), PlanError> {
        let check = Check::new(self.name(), tensors);
        check.one_type(&[("from", self.from), ("to", self.to)])?;
        check.dims("to", self.to, check.shape(self.from).dims())
    }

    fn flops(&self, _: &Tensors) -> u64 {
        0
    }

    /// Bytes that cross between the memories.
    fn bytes(&self, tensors: &Tensors) -> u64 {
        tensors.bytes(self.from).get()
    }
}
