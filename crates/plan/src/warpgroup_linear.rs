//! Which linear layers a kernel of our own computes on Hopper (`linear_hopper.cu`), and how it
//! divides their output. It is here so that a plan can be made, and its time predicted, without the
//! GPU.

use crate::ops::Op;
use crate::tensor::{Dtype, Tensors};

/// A linear layer, or the gradient of its input, by warpgroups: a kernel of our own, which can
/// compute the GELU next to it in the same pass. Multiprocessors take tiles of its output in turn.
/// The last tiles are divided into panels if they leave a third of the multiprocessors idle or
/// more; columns to the right of all tiles always are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarpgroupLinear {
    /// Rows of the output: tokens.
    pub rows: u64,
    /// Columns of the output.
    pub columns: u64,
    /// Numbers that are summed for each output.
    pub inner: u64,
}

impl WarpgroupLinear {
    /// Rows and columns of a tile.
    pub const TILE: [u64; 2] = [128, 192];

    /// Columns of a panel.
    pub const PANEL: u64 = 64;

    /// The time of a panel that is computed alone, where a whole tile takes 1.
    const SINGLE: f64 = 0.42;

    /// With fewer tiles than this, the library is faster: it divides sums as well.
    const LEAST_TILES: u64 = 66;

    /// With fewer numbers in a sum, the matmul hides less of the GELU beside it. The narrowest
    /// model that was measured, nanoGPT's character model, has 384 and still gains.
    const LEAST_WITH_GELU: u64 = 384;

    /// An output must be this many times as wide as its input, as GPT's hidden layer is. Other
    /// matmuls have no GELU next to them, and for them the library's best algorithm is 1 % faster.
    /// Whether a GELU is there does not count, so that a layer has the same bits when it is
    /// computed again without one.
    const WIDER: u64 = 4;

    /// None if the library computes it: in f32, for few tokens, for outputs that are not wide, and
    /// where rows are not whole multiples of 16 bytes.
    pub fn new(dtype: Dtype, rows: u64, columns: u64, inner: u64) -> Option<WarpgroupLinear> {
        let sizes = WarpgroupLinear { rows, columns, inner };
        let is_whole = columns.is_multiple_of(8) && inner.is_multiple_of(8) && inner > 0;
        let is_wide = columns / WarpgroupLinear::WIDER >= inner;
        let is_used = is_whole && is_wide && matches!(dtype, Dtype::Bf16 | Dtype::F16);
        (is_used && sizes.tiles()? >= WarpgroupLinear::LEAST_TILES).then_some(sizes)
    }

    /// The kernel for an op.
    pub fn of(op: &Op, tensors: &Tensors) -> Option<WarpgroupLinear> {
        let (input, w, output) = match op {
            Op::Linear(op) => (op.x, op.w, op.out),
            Op::LinearBackwardInput(op) => (op.d_out, op.w, op.d_x),
            _ => return None,
        };
        let [input, w, output] = [input, w, output].map(|id| tensors.get(id));
        let (rows, columns, inner) =
            (output.shape.rows(), output.shape.width(), input.shape.width());
        let sizes = WarpgroupLinear::new(w.dtype, rows, columns, inner)?;
        (output.dtype == w.dtype).then_some(sizes)
    }

    /// Tiles of the output.
    fn tiles(self) -> Option<u64> {
        let [height, width] = WarpgroupLinear::TILE;
        self.rows.div_ceil(height).checked_mul(self.columns.div_ceil(width))
    }

    /// Whether a GELU is computed in the same pass.
    pub fn hides_gelu(self) -> bool {
        self.inner >= WarpgroupLinear::LEAST_WITH_GELU
    }

    /// The time that the multiprocessors need, where a whole tile takes 1. The kernel divides the
    /// output by the same rule (`pieces_of` in `linear_hopper.cu`).
    pub fn turns(self, multiprocessors: u64) -> f64 {
        let ([height, width], all) = (WarpgroupLinear::TILE, multiprocessors.max(1));
        let (down, panels) = (self.rows.div_ceil(height), width / WarpgroupLinear::PANEL);
        let tiles = down.saturating_mul(self.columns / width);
        let last = tiles % all;
        let divided = if last.saturating_mul(panels) <= 2 * all { last } else { 0 };
        let narrow = down.saturating_mul((self.columns % width).div_ceil(WarpgroupLinear::PANEL));
        let single = divided.saturating_mul(panels).saturating_add(narrow);
        let whole = (tiles - divided).div_ceil(all) as f64;
        whole + single.div_ceil(all) as f64 * WarpgroupLinear::SINGLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_layers_of_16_bits_run_on_warpgroups() {
        let is_used = |dtype, rows, columns, inner| {
            WarpgroupLinear::new(dtype, rows, columns, inner).is_some()
        };
        assert!(is_used(Dtype::Bf16, 65_536, 3072, 768) && is_used(Dtype::F16, 4096, 2304, 576));
        assert!(!is_used(Dtype::F32, 65_536, 3072, 768));
        assert!(!is_used(Dtype::Bf16, 65_536, 2304, 768), "queries, keys and values");
        assert!(!is_used(Dtype::Bf16, 65_536, 3076, 768), "rows that begin between 16 bytes");
        assert!(!is_used(Dtype::Bf16, 65_536, 3072, 0));
        // 16 tiles side by side.
        assert!(is_used(Dtype::Bf16, 513, 3072, 768) && !is_used(Dtype::Bf16, 512, 3072, 768));
    }

    #[test]
    fn the_last_tiles_are_divided_if_they_are_few() {
        let turns = |rows, columns, multiprocessors| {
            WarpgroupLinear { rows, columns, inner: 64 }.turns(multiprocessors)
        };
        // 62 times 132 tiles and 8 more, of three panels each.
        assert_eq!(turns(65_536, 3072, 132), 62.0 + WarpgroupLinear::SINGLE);
        // 90 tiles in one turn; 88 as 264 panels in two.
        assert_eq!(turns(90 * 128, 192, 132), 1.0);
        assert_eq!(turns(88 * 128, 192, 132), 2.0 * WarpgroupLinear::SINGLE);
        // 1320 tiles in ten turns, and 40 panels to their right.
        assert_eq!(turns(5120, 6400, 132), 10.0 + WarpgroupLinear::SINGLE);
        assert_eq!(turns(128, 192, 0), 1.0, "no division by zero");
    }
}
