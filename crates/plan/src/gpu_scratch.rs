//! What kernels of a GPU need beside their operands. It is here, not with the kernels, so that a
//! plan for a card that is not there is the plan that the card would get.

use crate::backend::Scratch;
use crate::bytes::Bytes;
use crate::ops::Op;
use crate::tensor::Tensors;

/// What a library of matmuls may use; its fast algorithms want no more.
const MATMULS: u64 = 32 << 20;

/// Sums over tokens (biases, gains) are made over so many at a time, whatever the GPU, and then
/// added in order: the same bits on every run.
pub const TOKENS_OF_A_PARTIAL_SUM: u64 = 64;

/// Rows of partial sums over so many tokens.
pub fn partial_sums(tokens: u64) -> u64 {
    tokens.div_ceil(TOKENS_OF_A_PARTIAL_SUM)
}

/// Scratch of the kernels for NVIDIA GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuScratch;

impl Scratch for GpuScratch {
    fn bytes(&self, op: &Op, tensors: &Tensors) -> Option<Bytes> {
        let elements = |id| tensors.get(id).shape.elements();
        let needed = match op {
            Op::Linear(_) | Op::LinearBackwardInput(_) | Op::HeadEval(_) | Op::HeadTrain(_) => {
                MATMULS
            }
            Op::LinearBackwardWeight(op) => {
                let shape = tensors.get(op.d_out).shape;
                let partials = partial_sums(shape.rows()).checked_mul(shape.width())?;
                MATMULS.max(partials.checked_mul(4)?)
            }
            // Gain's and bias's.
            Op::LayerNormBackward(op) => {
                let shape = tensors.get(op.x).shape;
                partial_sums(shape.rows()).checked_mul(shape.width())?.checked_mul(8)?
            }
            // Two arrays of ids and two of places, while they are sorted.
            Op::EmbedBackward(op) => elements(op.tokens).checked_mul(16)?,
            Op::Embed(_)
            | Op::LayerNorm(_)
            | Op::Attention(_)
            | Op::AttentionBackward(_)
            | Op::AttentionDecode(_)
            | Op::Gelu(_)
            | Op::GeluBackward(_)
            | Op::CacheStore(_)
            | Op::SelectPosition(_)
            | Op::GradNorm(_)
            | Op::LossScaler(_)
            | Op::AdamW(_)
            | Op::Transfer(_) => 0,
        };
        Bytes::new(needed)
    }
}
