//! Launches of layer normalisation and its gradient.

use super::{count, sums};
use crate::lowering::{Extent, Lowering, Mask, ModuleSpec, Source, flag, format_name, pack_of};
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

pub(super) static LAYERNORM: Source =
    Source { file: "layernorm.cu", signatures: SIGNATURES, parts: &[include_str!("layernorm.cu")] };

/// Packs of a row that one thread keeps in registers.
const PACKS_OF_A_THREAD: u64 = 8;

/// How a row is divided among threads, and the constants for the kernel.
struct Rows {
    threads: u64,
    constants: Vec<(&'static str, String)>,
}

impl Rows {
    /// For rows of `width` in the formats of the branch and the residual stream.
    fn new(width: u64, branch: Dtype, residual: Dtype) -> Rows {
        let pack = pack_of(width, &[branch, residual]);
        let wanted = (width / pack).div_ceil(PACKS_OF_A_THREAD).next_power_of_two();
        let threads = wanted.clamp(32, 1024);
        let constants = vec![
            ("T", format_name(branch).to_string()),
            ("R", format_name(residual).to_string()),
            ("WIDTH", width.to_string()),
            ("VEC", pack.to_string()),
            ("ROW_THREADS", threads.to_string()),
            ("PARTIAL_TOKENS", TOKENS_OF_A_PARTIAL_SUM.to_string()),
        ];
        Rows { threads, constants }
    }

    fn threads_of_a_block(&self) -> u64 {
        if self.threads == 32 { 256 } else { self.threads }
    }

    fn module(self, flags: [(&'static str, bool); 6]) -> ModuleSpec {
        let mut constants = self.constants;
        constants.extend(flags.map(|(name, is)| (name, flag(is))));
        ModuleSpec { source: &LAYERNORM, constants }
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
    let rows = Rows::new(shape.width(), cx.dtype(op.out), cx.dtype(op.x));
    let threads = rows.threads_of_a_block();
    let blocks = shape.rows().div_ceil(threads / rows.threads);
    let dropout = op.add.as_ref().and_then(|add| add.dropout);
    let module = rows.module([
        ("ADD", op.add.is_some()),
        ("BIAS", op.bias.is_some()),
        ("DROPOUT", dropout.is_some()),
        ("ACCUMULATE", false),
        ("BRANCH_GRADIENT", false),
        ("AGAIN", false),
    ]);
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
    cx.launch(module, Extent::new(blocks, threads as u32), kernel)
}

pub(super) fn backward(cx: &mut Lowering<'_>, op: &LayerNormBackward) -> Result<(), BackendError> {
    let shape = cx.shape(op.x);
    let width = shape.width();
    let rows = Rows::new(width, cx.dtype(op.d_out), cx.dtype(op.x));
    let threads = rows.threads_of_a_block();
    let parts = partial_sums(shape.rows());
    let dropout = op.branch.as_ref().and_then(|branch| branch.dropout);
    let bias = op.again.as_ref().and_then(|again| again.bias);
    let module = rows.module([
        ("ADD", false),
        ("BIAS", bias.is_some()),
        ("DROPOUT", dropout.is_some()),
        ("ACCUMULATE", op.write == Write::Accumulate),
        ("BRANCH_GRADIENT", op.branch.is_some()),
        ("AGAIN", op.again.is_some()),
    ]);
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
    let (sums, d_gain) = (partials.read(), cx.write(op.d_gain)?);
    sums::add_partials(cx, sums, (parts, width, 2 * width), d_gain)?;
    if let Some(d_bias) = op.d_bias {
        let d_bias = cx.write(d_bias)?;
        sums::add_partials(cx, sums.plus(4 * width), (parts, width, 2 * width), d_bias)?;
    }
    Ok(())
}
