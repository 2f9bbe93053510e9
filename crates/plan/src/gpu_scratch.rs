//! Memory that GPU kernels need in addition to their operands. The formulas are here and not in the
//! CUDA crate, so that a plan can be made on a machine without the card and is the plan that the
//! card would get.

use crate::backend::Scratch;
use crate::bytes::Bytes;
use crate::ops::Op;
use crate::tensor::Tensors;

/// Workspace of the matmul library. Its fast algorithms do not ask for more.
const MATMULS: u64 = 32 << 20;

/// Sums over tokens (for biases and gains) are computed for this many tokens at a time on every
/// GPU, and the partial sums are then added in order. So every run computes the same bits.
pub const TOKENS_OF_A_PARTIAL_SUM: u64 = 64;

/// Number of partial sums for this many tokens.
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
            // For the gain and the bias.
            Op::LayerNormBackward(op) => {
                let shape = tensors.get(op.x).shape;
                partial_sums(shape.rows()).checked_mul(shape.width())?.checked_mul(8)?
            }
            // Two arrays of ids and two of positions, used while sorting.
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
