//! Launches of the gradient of layer normalisation.

use super::layernorm::{Rows, WARP, positions};
use super::{count, sums};
use crate::constants::constants;
use crate::kernel_source::{ModuleSpec, Source};
use crate::lowering::{Extent, Lowering, Mask};
use crate::signature::{In, Out, R, T, WorkCount, signatures};
use crate::step::Step;
use plan::gpu_scratch::{norm_partial_sums, norm_tokens_of_a_partial_sum};
use plan::ops::{LayerNormBackward, Write};
use plan::{BackendError, Dtype};

signatures! {
    /// The gradient. In the re-emitting form, `d_out` is overwritten with the output.
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
        BLOCKS: u64,
        PARTIAL_TOKENS: u64,
        BIAS: bool,
        DROPOUT: bool,
        ACCUMULATE: bool,
        BRANCH_GRADIENT: bool,
        BIAS_GRADIENT: bool,
        AGAIN: bool,
    }
    fixed {}
}

pub(super) static LAYERNORM_BACKWARD: Source = Source {
    file: "layernorm_backward.cu",
    signatures: SIGNATURES,
    constants: Constants::NAMES,
    parts: &[include_str!("layernorm_rows.cuh"), include_str!("layernorm_backward.cu")],
    warpgroups: false,
};

/// Threads that a multiprocessor must have room for: 128 registers for each.
const THREADS_AT_ONCE: u64 = 512;

/// Threads of a block. A wide row needs several warps; its block is as large as a multiprocessor
/// has room for, so that several rows are under way in it. A row's columns are summed in shared
/// memory, which limits it.
fn threads_of_a_block(width: u64, row_threads: u64, usual: u64) -> u64 {
    const SHARED: u64 = 47 << 10;
    let large = THREADS_AT_ONCE.max(usual);
    let fits = width * 4 * (large / row_threads) <= SHARED;
    if row_threads > WARP && fits { large } else { usual }
}

/// The kernel in the form of an op, and its threads.
fn module(cx: &Lowering<'_>, op: &LayerNormBackward) -> (ModuleSpec, u64) {
    let (width, formats) = (cx.shape(op.x).width(), [cx.dtype(op.d_out), cx.dtype(op.x)]);
    let branch = op.branch.as_ref();
    let has_dropout = branch.is_some_and(|branch| branch.dropout.is_some());
    // What fits 128 registers without a spill. It must not depend on `again`: the order of a row's
    // sum is the same at every level of recompute.
    let columns = match formats {
        [Dtype::F32, _] => 12,
        [_, Dtype::F32] => 16,
        _ => 24,
    };
    let Rows { pack, row_threads, threads } =
        Rows::new(width, &formats, |pack| (columns / pack).max(1));
    let threads = threads_of_a_block(width, row_threads, threads);
    let bias = op.again.as_ref().and_then(|again| again.bias);
    let constants = Constants {
        T: formats[0],
        R: formats[1],
        WIDTH: width,
        VEC: pack,
        ROW_THREADS: row_threads,
        THREADS: threads,
        BLOCKS: (THREADS_AT_ONCE / threads).max(1),
        PARTIAL_TOKENS: norm_tokens_of_a_partial_sum(cx.shape(op.x).rows()),
        BIAS: bias.is_some(),
        DROPOUT: has_dropout,
        ACCUMULATE: op.write == Write::Accumulate,
        BRANCH_GRADIENT: branch.is_some(),
        BIAS_GRADIENT: op.d_bias.is_some(),
        AGAIN: op.again.is_some(),
    };
    (constants.module(&LAYERNORM_BACKWARD), threads)
}

pub(super) fn launch(cx: &mut Lowering<'_>, op: &LayerNormBackward) -> Result<(), BackendError> {
    let shape = cx.shape(op.x);
    let width = shape.width();
    let parts = norm_partial_sums(shape.rows());
    let dropout = op.branch.as_ref().and_then(|branch| branch.dropout);
    let bias = op.again.as_ref().and_then(|again| again.bias);
    let (module, threads) = module(cx, op);
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
    cx.launch(module, Extent::new(parts, threads as u32), kernel)?;
    let d_gain = cx.write(op.d_gain)?;
    let d_bias = op.d_bias.map(|d_bias| cx.write(d_bias)).transpose()?;
    sums::add_partials(cx, partials.read(), (parts, width), d_gain, d_bias)
}
