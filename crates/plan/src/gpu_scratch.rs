//! Memory that GPU kernels need in addition to their operands. The formulas are here and not in the
//! CUDA crate, so that a plan can be made on a machine without the card and is the plan that the
//! card would get.

use crate::backend::Scratch;
use crate::bytes::Bytes;
use crate::ops::{AttentionBackward, Op};
use crate::tensor::{Dtype, Shape, TensorId, Tensors};
use crate::warpgroup_linear::WarpgroupLinear;

/// Workspace of the matmul library. Its fast algorithms do not ask for more.
pub const MATMULS: u64 = 32 << 20;

/// Sums over tokens are computed for this many tokens at a time on every GPU (for the gains and
/// biases of layer norms for at most so many), and the partial sums are then added in order. So
/// every run computes the same bits.
pub const TOKENS_OF_A_PARTIAL_SUM: u64 = 64;

/// Rows of the head's weight are a multiple of this. With an odd number of rows tensor cores cannot
/// read the logits, and the head takes 5.5 times as long (`docs/experiments.md`).
pub const HEAD_ROWS: u64 = 64;

/// Number of partial sums for this many tokens.
pub fn partial_sums(tokens: u64) -> u64 {
    tokens.div_ceil(TOKENS_OF_A_PARTIAL_SUM)
}

/// Tokens of a partial sum in the gradient of layer normalisation, where a block of the kernel has
/// one. Small slices get smaller sums, so that there are enough blocks for a large GPU.
pub fn norm_tokens_of_a_partial_sum(tokens: u64) -> u64 {
    const BLOCKS: u64 = 256;
    const LEAST: u64 = 8;
    (tokens / BLOCKS / LEAST * LEAST).clamp(LEAST, TOKENS_OF_A_PARTIAL_SUM)
}

/// Number of partial sums in the gradient of layer normalisation.
pub fn norm_partial_sums(tokens: u64) -> u64 {
    tokens.div_ceil(norm_tokens_of_a_partial_sum(tokens))
}

/// Scratch of the kernels for NVIDIA GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuScratch {
    /// Whether the GPU multiplies by warpgroups (Hopper), so that attention has other kernels and
    /// f32 matmuls other layouts.
    pub warpgroups: bool,
}

/// A matrix of f32 that is transposed before a matmul. Warpgroups read f32 along the inner
/// dimension only, so a matmul is faster the more of its operands are stored that way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transposed {
    /// Rows of the matrix as it is stored.
    pub rows: u64,
    /// Its columns.
    pub columns: u64,
}

impl Transposed {
    /// The gradient of a weight gains more than the transposition takes if the wider operand is as
    /// wide as this, and over as many tokens.
    const LEAST_WIDTH: u64 = 512;
    const LEAST_TOKENS: u64 = 1024;
    /// The gradient of an input gains less by a transposed weight.
    const LEAST_TOKENS_OF_INPUT: u64 = 4096;

    /// None unless the kernel can move it four numbers at a time.
    fn new(dtype: Dtype, rows: u64, columns: u64) -> Option<Transposed> {
        let is_whole = rows.is_multiple_of(4) && columns.is_multiple_of(4);
        (dtype == Dtype::F32 && is_whole).then_some(Transposed { rows, columns })
    }

    /// The narrower of `d_out` and `x` (`other` wide and `width` wide) for a weight's gradient over
    /// `tokens`.
    pub fn for_weight(dtype: Dtype, tokens: u64, width: u64, other: u64) -> Option<Transposed> {
        let is_wide = width.max(other) >= Transposed::LEAST_WIDTH;
        let pays = is_wide && tokens >= Transposed::LEAST_TOKENS;
        Transposed::new(dtype, tokens, width.min(other)).filter(|_| pays)
    }

    /// The weight, for the gradient of a layer's input over `tokens`.
    pub fn for_input(dtype: Dtype, tokens: u64, weight: Shape) -> Option<Transposed> {
        let pays = tokens >= Transposed::LEAST_TOKENS_OF_INPUT;
        Transposed::new(dtype, weight.rows(), weight.width()).filter(|_| pays)
    }

    /// Its size in bytes, which follow those for matmuls.
    fn size(self) -> Option<u64> {
        self.rows.checked_mul(self.columns)?.checked_mul(4)
    }
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

    /// For heads of this size; none if the usual kernels compute them: in f32, and where the head
    /// is small or does not begin where a 16-byte copy can.
    pub fn new(size: u64, dtype: Dtype) -> Option<WarpgroupAttention> {
        let fits = (48..=128).contains(&size) && size.is_multiple_of(8);
        let is_used = fits && matches!(dtype, Dtype::Bf16 | Dtype::F16);
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

impl GpuScratch {
    /// For a matmul, and for one of its operands transposed.
    fn matmul(self, transposed: Option<Transposed>) -> Option<u64> {
        match transposed.filter(|_| self.warpgroups) {
            Some(transposed) => MATMULS.checked_add(transposed.size()?),
            None => Some(MATMULS),
        }
    }
}

impl Scratch for GpuScratch {
    fn bytes(&self, op: &Op, tensors: &Tensors) -> Option<Bytes> {
        let elements = |id| tensors.get(id).shape.elements();
        let (shape, dtype) =
            (|id: TensorId| tensors.get(id).shape, |id: TensorId| tensors.get(id).dtype);
        let needed = match op {
            Op::Linear(_) | Op::HeadEval(_) => MATMULS,
            Op::LinearBackwardInput(op) => {
                let tokens = shape(op.d_out).rows();
                self.matmul(Transposed::for_input(dtype(op.w), tokens, shape(op.w)))?
            }
            Op::HeadTrain(op) => {
                let (tokens, columns) = (shape(op.slab).rows(), shape(op.slab).width());
                let width = shape(op.x).width();
                self.matmul(Transposed::for_weight(dtype(op.x), tokens, width, columns))?
            }
            Op::LinearBackwardWeight(op) => {
                let (d_out, width) = (shape(op.d_out), shape(op.x).width());
                let partials = partial_sums(d_out.rows()).checked_mul(d_out.width())?;
                let transposed =
                    Transposed::for_weight(dtype(op.x), d_out.rows(), width, d_out.width());
                self.matmul(transposed)?.max(partials.checked_mul(4)?)
            }
            // For the gain and the bias.
            Op::LayerNormBackward(op) => {
                let shape = tensors.get(op.x).shape;
                norm_partial_sums(shape.rows()).checked_mul(shape.width())?.checked_mul(8)?
            }
            // Two arrays of ids and two of positions, used while sorting.
            Op::EmbedBackward(op) => elements(op.tokens).checked_mul(16)?,
            Op::AttentionBackward(op) => {
                let out = tensors.get(op.d_out);
                let size = out.shape.width() / op.heads.max(1);
                let kernels = WarpgroupAttention::new(size, out.dtype);
                match kernels.filter(|_| self.warpgroups) {
                    Some(kernels) => kernels.scratch(op, tensors)?,
                    None => 0,
                }
            }
            Op::ReduceScatter(op) => op.workspace_bytes()?,
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
            | Op::Transfer(_)
            | Op::Clear(_)
            | Op::SquareSums(_)
            | Op::NormOfSums(_)
            | Op::AllGather(_) => 0,
        };
        Bytes::new(needed)
    }

    fn head_rows(&self, vocabulary: u64) -> u64 {
        vocabulary.checked_next_multiple_of(HEAD_ROWS).unwrap_or(vocabulary)
    }

    /// A GELU if warpgroups compute the layer; the residual stream if the matmul library does.
    fn computes_joined(&self, op: &Op, tensors: &Tensors) -> bool {
        let layer = WarpgroupLinear::of(op, tensors).filter(|_| self.warpgroups);
        match op {
            Op::Linear(linear) if linear.residual.is_some() => layer.is_none(),
            _ => layer.is_some_and(WarpgroupLinear::hides_gelu),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_f32_matrices_of_whole_packs_that_pay_are_transposed() {
        let weight = |dtype, tokens| Transposed::for_weight(dtype, tokens, 768, 3072);
        let narrower = Transposed { rows: 12288, columns: 768 };
        assert_eq!(weight(Dtype::F32, 12288), Some(narrower));
        assert_eq!(Transposed::for_weight(Dtype::F32, 12288, 3072, 768), Some(narrower));
        assert_eq!(weight(Dtype::Bf16, 12288), None);
        assert_eq!(weight(Dtype::F32, 12286), None);
        assert_eq!(weight(Dtype::F32, 256), None);
        assert_eq!(Transposed::for_weight(Dtype::F32, 12288, 384, 384), None);
        let shape = Shape::new(&[2304, 768]).unwrap();
        let whole = Transposed { rows: 2304, columns: 768 };
        assert_eq!(Transposed::for_input(Dtype::F32, 4096, shape), Some(whole));
        assert_eq!(Transposed::for_input(Dtype::F32, 2048, shape), None);
    }

    #[test]
    fn small_slices_have_small_partial_sums_of_norms() {
        for (tokens, of_a_sum, sums) in [
            (1, 8, 1),
            (3072, 8, 384),
            (5120, 16, 320),
            (5121, 16, 321),
            (12288, 48, 256),
            (16384, 64, 256),
            (65536, 64, 1024),
        ] {
            assert_eq!(norm_tokens_of_a_partial_sum(tokens), of_a_sum, "{tokens}");
            assert_eq!(norm_partial_sums(tokens), sums, "{tokens}");
        }
    }

    #[test]
    fn transposed_operands_need_scratch_on_hopper_only() {
        let matrix = Some(Transposed { rows: 12288, columns: 768 });
        let scratch = |warpgroups| GpuScratch { warpgroups }.matmul(matrix);
        assert_eq!(scratch(false), Some(MATMULS));
        assert_eq!(scratch(true), Some(MATMULS + 12288 * 768 * 4));
        assert_eq!(GpuScratch { warpgroups: true }.matmul(None), Some(MATMULS));
    }
}
