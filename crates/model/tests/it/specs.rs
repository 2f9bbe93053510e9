//! Models and programs by their sizes, so that a test's table has one short row for each.

use fitgpt_model::{
    AdamW, Architecture, Dims, EvalSpec, GenerateSpec, Gpt2, ModelSpec, Optimizer, OptimizerSpec,
    ProgramSpec, TrainSpec, Types,
};
use plan::ops::{GeluKind, Op, Scaling};
use plan::{Bytes, Scratch, Tensors};
use std::rc::Rc;

/// nanoGPT's arguments in the order in which its configs give them.
pub const fn dims(
    [n_layer, n_head, n_embd]: [u64; 3],
    block_size: u64,
    vocab_size: u64,
    bias: bool,
) -> Dims {
    Dims { n_layer, n_head, n_embd, block_size, vocab_size, bias }
}

/// GPT-2 124M as nanoGPT trains it.
pub const GPT2: Dims = dims([12, 12, 768], 1024, 50304, false);

/// nanoGPT's optimizer.
pub const ADAMW: OptimizerSpec =
    OptimizerSpec { rule: Optimizer::AdamW(AdamW::NANOGPT), scaling: Scaling::Off, offload: None };

/// nanoGPT's model.
pub const NANOGPT: Architecture = Architecture::Gpt2(Gpt2 { gelu: GeluKind::Erf });

/// A program that does nothing yet.
pub fn model(dims: Dims, dropout: f32) -> ProgramSpec {
    ProgramSpec {
        model: ModelSpec { dims, dropout, architecture: NANOGPT, types: Types::F32 },
        train: None,
        eval: None,
        generate: None,
    }
}

/// Training in these slices of whole contexts.
pub fn train(dims: &Dims, slices: &[u64], head_chunk: u64) -> TrainSpec {
    TrainSpec {
        sharing: fitgpt_model::Sharing::NONE,
        slices: slices.to_vec(),
        positions: dims.block_size,
        head_chunk,
        loss_rows: slices.iter().copied().fold(1, u64::max),
        levels: Vec::new(),
        optimizer: ADAMW,
    }
}

/// Evaluation in these slices of whole contexts.
pub fn eval(dims: &Dims, slices: &[u64], head_chunk: u64) -> EvalSpec {
    EvalSpec {
        slices: slices.to_vec(),
        positions: dims.block_size,
        head_chunk,
        loss_rows: slices.iter().copied().fold(1, u64::max),
    }
}

/// Generation with these lengths of context.
pub fn generate(rows: u64, prefill: &[u64]) -> GenerateSpec {
    GenerateSpec { rows, prefill: prefill.to_vec() }
}

/// A backend that needs this many bytes for each op that has a workspace.
#[derive(Clone, Copy, Debug)]
pub struct Each(pub u64);

impl Scratch for Each {
    fn bytes(&self, op: &Op, _: &Tensors) -> Option<Bytes> {
        Bytes::new(op.workspace().map_or(0, |_| self.0))
    }
}

/// A mebibyte, about what a CPU needs.
pub fn scratch() -> Rc<dyn Scratch> {
    Rc::new(Each(1 << 20))
}

/// Nothing: the plan is the model's own.
pub fn no_scratch() -> Rc<dyn Scratch> {
    Rc::new(Each(0))
}
