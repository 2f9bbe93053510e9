//! Launches of sums over tokens: a bias's gradient, the second stage of column sums, the losses of
//! sequences.

use super::count;
use crate::lowering::{Extent, Kernel, Lowering, Place, Source, arguments, format_name, pack_of};
use plan::gpu_scratch::{TOKENS_OF_A_PARTIAL_SUM, partial_sums};
use plan::{BackendError, Dtype, TensorId};

static SUMS: Source = Source { file: "sums.cu", parts: &[include_str!("sums.cu")] };

const THREADS: u32 = 128;
const SUM_COLUMNS: u64 = 32;
const SUM_THREADS: u32 = 256;

fn kernel(width: u64, dtype: Dtype, entry: &'static str) -> Kernel {
    let constants = vec![
        ("T", format_name(dtype).to_string()),
        ("WIDTH", width.to_string()),
        ("VEC", pack_of(width, &[dtype]).to_string()),
        ("PARTIAL_TOKENS", TOKENS_OF_A_PARTIAL_SUM.to_string()),
    ];
    Kernel { source: &SUMS, constants, entry }
}

/// A kernel whose constants do not matter.
fn plain(entry: &'static str) -> Kernel {
    kernel(1, Dtype::F32, entry)
}

/// `target += Σ rows of partials`; `(rows, columns, pitch)`.
pub(super) fn add_partials(
    cx: &mut Lowering<'_>,
    partials: Place,
    (rows, columns, pitch): (u64, u64, u64),
    target: Place,
) -> Result<(), BackendError> {
    let arguments = arguments![
        count(columns, "columns")?,
        count(rows, "partial sums")?,
        count(pitch, "columns")?,
        partials,
        target,
    ];
    let extent = Extent::new(columns.div_ceil(SUM_COLUMNS), SUM_THREADS);
    cx.launch(plain("add_partials"), extent, arguments)
}

/// `d_bias += Σ d_out`, through partial sums in the workspace.
pub(super) fn bias_gradient(
    cx: &mut Lowering<'_>,
    d_out: TensorId,
    partials: Place,
    d_bias: Place,
) -> Result<(), BackendError> {
    let (shape, dtype) = (cx.shape(d_out), cx.dtype(d_out));
    let (rows, width) = (shape.rows(), shape.width());
    let packs = width / pack_of(width, &[dtype]);
    let parts = partial_sums(rows);
    let blocks = parts * packs.div_ceil(u64::from(THREADS));
    let arguments = arguments![
        count(blocks, "blocks of tokens")?,
        count(rows, "tokens")?,
        cx.place(d_out)?,
        partials,
    ];
    let kernel = kernel(width, dtype, "column_partials");
    cx.launch(kernel, Extent::new(blocks, THREADS), arguments)?;
    add_partials(cx, partials, (parts, width, width), d_bias)
}

/// The summed loss of each sequence.
pub(super) fn row_losses(
    cx: &mut Lowering<'_>,
    token_loss: TensorId,
    row_loss: TensorId,
    (rows, positions): (u64, u64),
) -> Result<(), BackendError> {
    let arguments = arguments![
        count(rows, "sequences")?,
        cx.place(token_loss)?,
        cx.place(row_loss)?,
        count(positions, "positions")?,
        Place::Step,
    ];
    cx.launch(plain("row_losses"), Extent::new(rows, THREADS), arguments)
}
