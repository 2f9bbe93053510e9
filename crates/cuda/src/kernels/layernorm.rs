//! Launches of layer normalisation and its gradient.

use super::{count, sums};
use crate::constants::constants;
use crate::lowering::{Extent, Lowering, Mask, Source, pack_of};
use crate::signature::{In, Out, R, T, WorkCount, signatures};
use crate::step::Step;
use plan::gpu_scratch::{TOKENS_OF_A_PARTIAL_SUM, partial_sums};
use plan::ops::{LayerNorm, LayerNormBackward, Write};
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
    /// Its gradient. In the re-emitting form, `d_out` is overwritten with the output.
    NormGradient = layernorm_backward(
        blocks: WorkCount<u32>,
        rows: u32,
        d_out_btc: Out<T>,
        x_btc: In<R>,
        mean_bt: In<f32>,
        rstd_bt: In<f32>,
        gain_c: In<T>,
        bias_c: In<T>,
        d_x_btc: Out<R>,
        d_branch_btc: Out<T>,
        partials: Out<f32>,
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
        PARTIAL_TOKENS: u64,
        ADD: bool,
        BIAS: bool,
        DROPOUT: bool,
        ACCUMULATE: bool,
        BRANCH_GRADIENT: bool,
        AGAIN: bool,
    }
    fixed {}
}

pub(super) static LAYERNORM: Source = Source {
    file: "layernorm.cu",
    signatures: SIGNATURES,
    constants: Constants::NAMES,
    parts: &[include_str!("layernorm.cu")],
    warpgroups: false,
};

/// Packs of a row that one thread keeps in registers.
const PACKS_OF_A_THREAD: u64 = 8;

/// A row's warp, of several in a block; wider rows have a block for each.
const WARP: u64 = 32;
const THREADS_OF_WARPS: u64 = 256;

impl Constants {
    /// For rows of `width` in the formats of the branch and the residual stream: how they are
    /// divided among threads. The flags are still to be set.
    fn new(width: u64, branch: Dtype, residual: Dtype) -> Constants {
        let pack = pack_of(width, &[branch, residual]);
        let wanted = (width / pack).div_ceil(PACKS_OF_A_THREAD).next_power_of_two();
        let row_threads = wanted.clamp(WARP, 1024);
        Constants {
            T: branch,
            R: residual,
            WIDTH: width,
            VEC: pack,
            ROW_THREADS: row_threads,
            THREADS: if row_threads == WARP { THREADS_OF_WARPS } else { row_threads },
            PARTIAL_TOKENS: TOKENS_OF_A_PARTIAL_SUM,
            ADD: false,
            BIAS: false,
            DROPOUT: false,
            ACCUMULATE: false,
            BRANCH_GRADIENT: false,
            AGAIN: false,
        }
    }
}

/// Positions of a sequence; 1 for tensors without sequences.
fn positions(shape: Shape) -> u64 {
    match *shape.dims() {
        [_, positions, _] => positions,
        _ => 1,
    }
}

pub(super) fn forward(cx: &mut Lowering<'_>, op: &LayerNorm) -> Result<(), BackendError> {
    let shape = cx.shape(op.x);
    let dropout = op.add.as_ref().and_then(|add| add.dropout);
    let constants = Constants {
        ADD: op.add.is_some(),
        BIAS: op.bias.is_some(),
        DROPOUT: dropout.is_some(),
        ..Constants::new(shape.width(), cx.dtype(op.out), cx.dtype(op.x))
    };
    let threads = constants.THREADS;
    let blocks = shape.rows().div_ceil(threads / constants.ROW_THREADS);
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

pub(super) fn backward(cx: &mut Lowering<'_>, op: &LayerNormBackward) -> Result<(), BackendError> {
    let shape = cx.shape(op.x);
    let width = shape.width();
    let parts = partial_sums(shape.rows());
    let dropout = op.branch.as_ref().and_then(|branch| branch.dropout);
    let bias = op.again.as_ref().and_then(|again| again.bias);
    let constants = Constants {
        BIAS: bias.is_some(),
        DROPOUT: dropout.is_some(),
        ACCUMULATE: op.write == Write::Accumulate,
        BRANCH_GRADIENT: op.branch.is_some(),
        AGAIN: op.again.is_some(),
        ..Constants::new(width, cx.dtype(op.d_out), cx.dtype(op.x))
    };
    let partials = cx.scratch(op.workspace)?;
    let Mask { threshold, tag, scale } = Mask::of(dropout);
    let kernel = NormGradient {
        blocks: WorkCount(count(parts, "blocks of tokens")?),
        rows: count(shape.rows(), "tokens")?,
        d_out_btc: cx.write_if(op.again.is_some(), op.d_out)?,
        x_btc: cx.read(op.x)?,
        mean_bt: cx.read(op.mean)?,
        rstd_bt: cx.read(op.rstd)?,
        gain_c: cx.read(op.gain)?,
        bias_c: cx.maybe_read(bias)?,
        d_x_btc: cx.write(op.d_x)?,
        d_branch_btc: cx.maybe_write(op.branch.as_ref().map(|branch| branch.d_branch))?,
        partials,
        step: cx.step(),
        positions: positions(shape) as u32,
        threshold,
        tag,
        scale,
    };
    let extent = Extent::new(parts, constants.THREADS as u32);
    cx.launch(constants.module(&LAYERNORM), extent, kernel)?;
    let (sums, d_gain) = (partials.read(), cx.write(op.d_gain)?);
    sums::add_partials(cx, sums, (parts, width, 2 * width), d_gain)?;
    if let Some(d_bias) = op.d_bias {
        let d_bias = cx.write(d_bias)?;
        sums::add_partials(cx, sums.plus(4 * width), (parts, width, 2 * width), d_bias)?;
    }
    Ok(())
}
