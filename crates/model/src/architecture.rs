//! What an architecture supplies: its modules with their shapes, a forward pass, initial weights,
//! and what each level of recompute drops. All architectures share the rest. A new architecture is
//! a file like `gpt2.rs` and a line here.

use crate::activation::Activation;
use crate::dims::Dims;
use crate::forward::{AttendTo, Forward};
use crate::gpt2::Gpt2;
use crate::levels::Level;
use crate::params::{self, Module, Modules, Param, SizedModule};
use plan::{PlanError, TensorId};
use rng::torch::Generator;

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

    /// All parameters of a model of these sizes, in PyTorch's order.
    pub fn parameters(&self, dims: &Dims) -> Result<Vec<Param>, PlanError> {
        params::parameters(self.network(), dims)
    }

    /// The number of parameters to report; an architecture may leave some out of it.
    pub fn reported_parameters(&self, dims: &Dims) -> Result<u64, PlanError> {
        let all = self.parameters(dims)?;
        let reported = all.iter().filter(|param| self.network().is_reported(param.module));
        Ok(reported.map(|param| param.shape.elements()).fold(0, u64::saturating_add))
    }

    /// Weights of the matrices in all blocks. Embeddings, norms and biases do not count.
    pub fn block_weights(&self, dims: &Dims) -> u64 {
        let block = self.network().modules(dims).block;
        let of_a_block = block.iter().map(SizedModule::matrix_elements);
        of_a_block.fold(0, u64::saturating_add).saturating_mul(dims.n_layer)
    }

    /// Floating-point operations per token of training in a context of `positions`: six for each
    /// reported parameter, and attention.
    pub fn training_flops_per_token(&self, dims: &Dims, positions: u64) -> Result<f64, PlanError> {
        let attention = self.network().attention_flops(dims, positions);
        Ok(6.0 * self.reported_parameters(dims)? as f64 + attention)
    }

    /// Draws the initial weights. Calls `put` for pieces of each parameter of `params` (the table
    /// for these dims) with its index, the piece's first element and its values, in the order in
    /// which they become final. Afterwards `generator` is ready to draw the first batch.
    pub fn initialise(
        &self,
        dims: &Dims,
        params: &[Param],
        generator: &mut Generator,
        mut put: impl FnMut(usize, u64, &[f32]),
    ) {
        self.network().initialise(dims, params, generator, &mut put);
    }
}

/// What every architecture's file defines.
pub(crate) trait Network {
    /// The name in errors.
    fn name(&self) -> &'static str;

    /// The modules that hold parameters, with their shapes.
    fn modules(&self, dims: &Dims) -> Modules;

    /// Whether a module's parameters count in the number that is reported.
    fn is_reported(&self, module: Module) -> bool;

    /// Floating-point operations of a token's attention in training, forward and backward.
    fn attention_flops(&self, dims: &Dims, positions: u64) -> f64;

    /// See [`Architecture::initialise`].
    fn initialise(
        &self,
        dims: &Dims,
        params: &[Param],
        generator: &mut Generator,
        put: &mut dyn FnMut(usize, u64, &[f32]),
    );

    /// Emits the forward pass, from tokens to the input of the head.
    fn forward(
        &self,
        forward: &mut Forward<'_>,
        tokens: TensorId,
        attend_to: AttendTo<'_>,
    ) -> Result<TensorId, PlanError>;

    /// The module whose weight the head multiplies with.
    fn head(&self) -> Module;

    /// The shape of a layer's key-value cache for `rows` sequences.
    fn cache(&self, dims: &Dims, rows: u64) -> [u64; 5];

    /// The activations of a block that a level does not keep from forward to backward.
    fn dropped(&self, level: Level) -> &'static [Activation];

    /// The activations of a block that a level keeps in the host's memory meanwhile.
    fn offloaded(&self, level: Level) -> &'static [Activation];
}
