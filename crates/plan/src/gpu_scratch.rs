//! Memory that GPU kernels need in addition to their operands. The formulas are here and not in the
//! CUDA crate, so that a plan can be made on a machine without the card and is the plan that the
//! card would get.

use crate::backend::Scratch;
use crate::bytes::Bytes;
use crate::ops::{AttentionBackward, Op};
use crate::tensor::{Dtype, Tensors};

/// Workspace of the matmul library. Its fast algorithms do not ask for more.
pub const MATMULS: u64 = 32 << 20;

/// Sums over tokens (for biases and gains) are computed for this many tokens at a time on every
/// GPU, and the partial sums are then added in order. So every run computes the same bits.
pub const TOKENS_OF_A_PARTIAL_SUM: u64 = 64;

/// Rows of the head's weight are a multiple of this. With an odd number of rows tensor cores cannot
/// read the logits, and the head takes 5.5 times as long (`docs/experiments.md`).
pub const HEAD_ROWS: u64 = 64;

/// Number of partial sums for this many tokens.
pub fn partial_sums(tokens: u64) -> u64 {
    tokens.div_ceil(TOKENS_OF_A_PARTIAL_SUM)
}

/// Scratch of the kernels for NVIDIA GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuScratch {
    /// Whether the GPU multiplies by warpgroups (Hopper), so that attention has other kernels.
    pub warpgroups: bool,
}

/// Attention by warpgroups. Blocks add up the gradient of queries in memory, a tile of queries at a
/// time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarpgroupAttention {
    /// The head's size, rounded up to what tensor cores take.
    pub pad: u64,
}

impl WarpgroupAttention {
    /// Queries of a tile.
    pub const QUERIES: u64 = 64;

    /// For heads of this size; none if the usual kernels compute them: in f32, with dropout, and
    /// where the head is small or does not begin where a 16-byte copy can.
    pub fn new(size: u64, dtype: Dtype, dropout: bool) -> Option<WarpgroupAttention> {
        let fits = (48..=128).contains(&size) && size.is_multiple_of(8);
        let is_used = fits && !dropout && matches!(dtype, Dtype::Bf16 | Dtype::F16);
        is_used.then(|| WarpgroupAttention { pad: size.next_multiple_of(16) })
    }

    /// Channels in which each of two warpgroups sums the gradient of queries: half of a narrow
    /// head, a panel of 64 of a wide one.
    pub fn channels(self) -> u64 {
        if self.pad <= 64 { self.pad / 2 } else { 64 }
    }

    /// Bytes of the gradient of one tile of queries.
    pub fn tile_bytes(self) -> u64 {
        WarpgroupAttention::QUERIES * 2 * self.channels() * 4
    }

    /// Tiles of all heads of `[rows, heads, positions]`.
    pub fn tiles(rows: u64, heads: u64, positions: u64) -> Option<u64> {
        let lines = rows.checked_mul(heads)?;
        lines.checked_mul(positions.div_ceil(WarpgroupAttention::QUERIES))
    }

    /// The sums, and for each tile the number of blocks that have added to it.
    fn scratch(self, op: &AttentionBackward, tensors: &Tensors) -> Option<u64> {
        let &[rows, heads, positions] = tensors.get(op.lse).shape.dims() else { return None };
        let tiles = WarpgroupAttention::tiles(rows, heads, positions)?;
        tiles.checked_mul(self.tile_bytes() + 4)
    }
}

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
            Op::AttentionBackward(op) => {
                let out = tensors.get(op.d_out);
                let size = out.shape.width() / op.heads.max(1);
                let kernels = WarpgroupAttention::new(size, out.dtype, op.dropout.is_some());
                match kernels.filter(|_| self.warpgroups) {
                    Some(kernels) => kernels.scratch(op, tensors)?,
                    None => 0,
                }
            }
            Op::Embed(_)
            | Op::LayerNorm(_)
            | Op::Attention(_)
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

    fn head_rows(&self, vocabulary: u64) -> u64 {
        vocabulary.checked_next_multiple_of(HEAD_ROWS).unwrap_or(vocabulary)
    }
}
