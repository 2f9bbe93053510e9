//! Launches of layer normalisation and its gradient.

use super::{count, sums};
use crate::lowering::{
    Argument, Extent, Kernel, Lowering, Source, arguments, dropout_arguments, flag, format_name,
    pack_of,
};
use plan::gpu_scratch::{TOKENS_OF_A_PARTIAL_SUM, partial_sums};
use plan::ops::{LayerNorm, LayerNormBackward, Write};
use plan::{BackendError, Dtype, Shape};

static LAYERNORM: Source = Source { file: "layernorm.cu", parts: &[include_str!("layernorm.cu")] };

/// Packs of a row that one thread holds in registers.
const PACKS_OF_A_THREAD: u64 = 8;

/// How a row is shared out, and the constants that say so.
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

    fn kernel(self, flags: [(&'static str, bool); 6], entry: &'static str) -> Kernel {
        let mut constants = self.constants;
        constants.extend(flags.map(|(name, is)| (name, flag(is))));
        Kernel { source: &LAYERNORM, constants, entry }
    }
}

/// Positions of a sequence; 1 where there are no sequences.
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
    let kernel = rows.kernel(
        [
            ("ADD", op.add.is_some()),
            ("BIAS", op.bias.is_some()),
            ("DROPOUT", dropout.is_some()),
            ("ACCUMULATE", false),
            ("BRANCH_GRADIENT", false),
            ("AGAIN", false),
        ],
        "layernorm_forward",
    );
    let mut arguments = arguments![
        count(shape.rows(), "tokens")?,
        cx.place(op.x)?,
        cx.maybe(op.add.as_ref().map(|add| add.branch))?,
        cx.maybe(op.add.as_ref().map(|add| add.sum))?,
        cx.place(op.gain)?,
        cx.maybe(op.bias)?,
        cx.place(op.out)?,
        cx.place(op.mean)?,
        cx.place(op.rstd)?,
        crate::lowering::Place::Step,
        positions(shape) as u32,
    ];
    arguments.extend(dropout_arguments(dropout));
    cx.launch(kernel, Extent::new(blocks, threads as u32), arguments)
}

pub(super) fn backward(cx: &mut Lowering<'_>, op: &LayerNormBackward) -> Result<(), BackendError> {
    let shape = cx.shape(op.x);
    let width = shape.width();
    let rows = Rows::new(width, cx.dtype(op.d_out), cx.dtype(op.x));
    let threads = rows.threads_of_a_block();
    let parts = partial_sums(shape.rows());
    let dropout = op.branch.as_ref().and_then(|branch| branch.dropout);
    let bias = op.again.as_ref().and_then(|again| again.bias);
    let kernel = rows.kernel(
        [
            ("ADD", false),
            ("BIAS", bias.is_some()),
            ("DROPOUT", dropout.is_some()),
            ("ACCUMULATE", op.write == Write::Accumulate),
            ("BRANCH_GRADIENT", op.branch.is_some()),
            ("AGAIN", op.again.is_some()),
        ],
        "layernorm_backward",
    );
    let partials = cx.place(op.workspace)?;
    let mut arguments: Vec<Argument> = arguments![
        count(parts, "blocks of tokens")?,
        count(shape.rows(), "tokens")?,
        cx.place(op.d_out)?,
        cx.place(op.x)?,
        cx.place(op.mean)?,
        cx.place(op.rstd)?,
        cx.place(op.gain)?,
        cx.maybe(bias)?,
        cx.place(op.d_x)?,
        cx.maybe(op.branch.as_ref().map(|branch| branch.d_branch))?,
        partials,
        crate::lowering::Place::Step,
        positions(shape) as u32,
    ];
    arguments.extend(dropout_arguments(dropout));
    cx.launch(kernel, Extent::new(parts, threads as u32), arguments)?;
    let gain = cx.place(op.d_gain)?;
    sums::add_partials(cx, partials, (parts, width, 2 * width), gain)?;
    if let Some(d_bias) = op.d_bias {
        let bias = cx.place(d_bias)?;
        sums::add_partials(cx, partials.plus(4 * width), (parts, width, 2 * width), bias)?;
    }
    Ok(())
}
