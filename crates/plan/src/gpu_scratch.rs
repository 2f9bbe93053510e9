//! What kernels of a GPU need beside their operands. It is here, not with the kernels, so that a
//! plan for a card that is not there is the plan that the card would get.

use crate::backend::Scratch;
use crate::bytes::Bytes;
use crate::ops::{Op, TOKEN_BLOCK};
use crate::tensor::Tensors;

/// What a library of products may use; its fast algorithms want no more.
const PRODUCTS: u64 = 32 << 20;

/// Sums over tokens (biases, gains) are made in so many parts, whatever the GPU, and then added in
/// order: the same bits on every run.
const PARTIAL_SUMS: u64 = 128;

/// Scratch of the kernels for NVIDIA GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuScratch;

impl Scratch for GpuScratch {
    fn bytes(&self, op: &Op, tensors: &Tensors) -> Option<Bytes> {
        let elements = |id| tensors.get(id).shape.elements();
        let needed = match op {
            Op::Linear(_) | Op::LinearBackwardInput(_) | Op::HeadEval(_) | Op::HeadTrain(_) => {
                PRODUCTS
            }
            Op::LinearBackwardWeight(op) => {
                let width = tensors.get(op.d_out).shape.width();
                PRODUCTS.max(width.checked_mul(4 * PARTIAL_SUMS)?)
            }
            // The gradient of queries is summed over blocks of keys in f32.
            Op::AttentionBackward(op) => (elements(op.qkv) / 3).checked_mul(4)?,
            Op::AttentionDecode(op) => elements(op.cache).div_ceil(TOKEN_BLOCK).checked_mul(8)?,
            _ => 0,
        };
        Bytes::new(needed)
    }
}
