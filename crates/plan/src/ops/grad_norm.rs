//! The norm of all gradients, in two stages with a fixed number of partial sums, so that it depends
//! neither on threads nor on the device.

use super::{Check, Elements, Operand, Operation};
use crate::error::PlanError;
use crate::tensor::{TensorId, Tensors};

/// Elements whose squares are added to one partial sum.
pub const GRAD_NORM_BLOCK: u64 = 65_536;

/// `state.grad_norm = ‖gradients‖ / loss_scale`, `state.found_inf` when it is not finite.
#[derive(Clone, Debug, PartialEq)]
pub struct GradNorm {
    /// All gradients, flat.
    pub gradients: TensorId,
    /// `[blocks, 2]`: for each block of [`GRAD_NORM_BLOCK`] elements, the two words of an f64 sum
    /// of squares, which no finite f32 gradients can overflow.
    pub partials: TensorId,
    /// The step state.
    pub state: TensorId,
}

impl Operation for GradNorm {
    fn name(&self) -> &'static str {
        "grad_norm"
    }

    fn operands(&self) -> Vec<Operand> {
        vec![
            Operand::read("gradients", self.gradients).of(Elements::Single),
            Operand::write("partials", self.partials).of(Elements::WideSums),
            Operand::update("state", self.state).of(Elements::Words),
        ]
    }

    fn tensors_mut(&mut self) -> Vec<&mut TensorId> {
        let Self { gradients, partials, state } = self;
        vec![gradients, partials, state]
    }

    fn check(&self, tensors: &Tensors) -> Result<(), PlanError> {
        let check = Check::new(self.name(), tensors);
        let &[elements] = check.rank("gradients", self.gradients, 1)? else { return Ok(()) };
        check.dims("partials", self.partials, &[elements.div_ceil(GRAD_NORM_BLOCK), 2])?;
        check.state(self.state)
    }

    fn flops(&self, tensors: &Tensors) -> u64 {
        tensors.get(self.gradients).shape.elements().saturating_mul(2)
    }
}
