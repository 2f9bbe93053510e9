//! Launches of layer normalisation.

use super::count;
use crate::constants::constants;
use crate::kernel_source::Source;
use crate::lowering::{Extent, Lowering, Mask, pack_of};
use crate::signature::{In, Out, R, T, WorkCount, signatures};
use crate::step::Step;
use plan::ops::LayerNorm;
use plan::{BackendError, Dtype, Shape};

signatures! {
    /// The norm, after the addition of a branch if there is one.
    Normalise = layernorm_forward(
        rows: WorkCount<u32>,
        x_btc: In<R>,
        branch_btc: In<T>,
        sum_btc: Out<R>,
        gain_c: In<T>,
        bias_c: In<T>,
        out_btc: Out<T>,
        mean_bt: Out<f32>,
        rstd_bt: Out<f32>,
        epsilon: f32,
        step: In<Step>,
        positions: u32,
        threshold: u32,
        tag: u32,
        scale: f32,
    );
}

constants! {
    Constants {
        T: Dtype,
        R: Dtype,
        WIDTH: u64,
        VEC: u64,
        ROW_THREADS: u64,
        THREADS: u64,
        ADD: bool,
        BIAS: bool,
        DROPOUT: bool,
    }
    fixed {}
}

pub(super) static LAYERNORM: Source = Source {
    file: "layernorm.cu",
    signatures: SIGNATURES,
    constants: Constants::NAMES,
    parts: &[include_str!("layernorm_rows.cuh"), include_str!("layernorm.cu")],
    warpgroups: false,
};

/// Packs of a row that one thread keeps in registers.
const PACKS_OF_A_THREAD: u64 = 8;
pub(super) const WARP: u64 = 32;
/// Threads of a block, unless a row needs more.
const USUAL_THREADS: u64 = 256;

/// How rows are divided among threads.
pub(super) struct Rows {
    /// Numbers that are moved together.
    pub(super) pack: u64,
    /// Threads of a row: a warp, or several.
    pub(super) row_threads: u64,
    /// Threads of a block.
    pub(super) threads: u64,
}

impl Rows {
    /// Rows of `width` in these formats, of which a thread has at most `packs` packs, unless no
    /// block has so many threads.
    pub(super) fn new(width: u64, formats: &[Dtype], packs: impl FnOnce(u64) -> u64) -> Rows {
        let pack = pack_of(width, formats);
        let wanted = (width / pack).div_ceil(packs(pack)).next_power_of_two();
        let row_threads = wanted.clamp(WARP, 1024);
        Rows { pack, row_threads, threads: row_threads.max(USUAL_THREADS) }
    }
}

/// Positions of a sequence; 1 for tensors without sequences.
pub(super) fn positions(shape: Shape) -> u64 {
    match *shape.dims() {
        [_, positions, _] => positions,
        _ => 1,
    }
}

pub(super) fn forward(cx: &mut Lowering<'_>, op: &LayerNorm) -> Result<(), BackendError> {
    let shape = cx.shape(op.x);
    let dropout = op.add.as_ref().and_then(|add| add.dropout);
    let (width, formats) = (shape.width(), [cx.dtype(op.out), cx.dtype(op.x)]);
    let Rows { pack, row_threads, threads } = Rows::new(width, &formats, |_| PACKS_OF_A_THREAD);
    let constants = Constants {
        T: formats[0],
        R: formats[1],
        WIDTH: width,
        VEC: pack,
        ROW_THREADS: row_threads,
        THREADS: threads,
        ADD: op.add.is_some(),
        BIAS: op.bias.is_some(),
        DROPOUT: dropout.is_some(),
    };
    let blocks = shape.rows().div_ceil(threads / row_threads);
    let Mask { threshold, tag, scale } = Mask::of(dropout);
    let kernel = Normalise {
        rows: WorkCount(count(shape.rows(), "tokens")?),
        x_btc: cx.read(op.x)?,
        branch_btc: cx.maybe_read(op.add.as_ref().map(|add| add.branch))?,
        sum_btc: cx.maybe_write(op.add.as_ref().map(|add| add.sum))?,
        gain_c: cx.read(op.gain)?,
        bias_c: cx.maybe_read(op.bias)?,
        out_btc: cx.write(op.out)?,
        mean_bt: cx.write(op.mean)?,
        rstd_bt: cx.write(op.rstd)?,
        epsilon: op.epsilon as f32,
        step: cx.step(),
        positions: positions(shape) as u32,
        threshold,
        tag,
        scale,
    };
    cx.launch(constants.module(&LAYERNORM), Extent::new(blocks, threads as u32), kernel)
}
