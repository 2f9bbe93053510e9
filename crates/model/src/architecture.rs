//! What an architecture supplies: its modules, their sizes, a forward pass, and what each level of
//! recompute drops. All architectures share the rest. A new architecture is a file like `gpt2.rs`
//! and a line here.

use crate::activation::Activation;
use crate::dims::Dims;
use crate::forward::{AttendTo, Forward};
use crate::gpt2::Gpt2;
use crate::levels::Level;
use crate::params::{Module, Modules, Size};
use plan::{PlanError, TensorId};

/// An architecture with its own attributes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Architecture {
    /// GPT-2, as nanoGPT writes it.
    Gpt2(Gpt2),
}

impl Architecture {
    pub(crate) fn network(&self) -> &dyn Network {
        match self {
            Architecture::Gpt2(gpt2) => gpt2,
        }
    }
}

/// What every architecture's file defines.
pub(crate) trait Network {
    /// The name in errors.
    fn name(&self) -> &'static str;

    /// The modules that hold parameters.
    fn modules(&self) -> Modules;

    /// The size of each dimension. No other code knows these formulas.
    fn size(&self, size: Size, dims: &Dims) -> u64;

    /// Emits the forward pass, from tokens to the input of the head.
    fn forward(
        &self,
        forward: &mut Forward<'_>,
        tokens: TensorId,
        attend_to: AttendTo<'_>,
    ) -> Result<TensorId, PlanError>;

    /// The module whose weight the head multiplies with.
    fn head(&self) -> Module;

    /// The activations of a block that a level does not keep from forward to backward.
    fn dropped(&self, level: Level) -> &'static [Activation];
}
