//! Launches of sums over tokens: a bias's gradient, the second stage of column sums, the losses of
//! sequences.

use super::count;
use crate::constants::constants;
use crate::kernel_source::{ModuleSpec, Source};
use crate::lowering::{Extent, Lowering, pack_of};
use crate::signature::{In, Out, T, WorkCount, signatures};
use crate::step::Step;
use plan::gpu_scratch::{TOKENS_OF_A_PARTIAL_SUM, partial_sums};
use plan::{BackendError, Dtype, TensorId};

signatures! {
    /// Sums of the columns over the rows of each part.
    ColumnPartials = column_partials(
        blocks: WorkCount<u32>,
        rows: u32,
        d_out: In<T>,
        partials: Out<f32>,
    );
    /// The second stage of every column sum.
    AddPartials = add_partials(
        columns: WorkCount<u32>,
        rows: u32,
        split: u32,
        partials: In<f32>,
        target: Out<f32>,
        second: Out<f32>,
    );
    /// The summed loss of each sequence.
    RowLosses = row_losses(
        rows: WorkCount<u32>,
        token_loss: In<f32>,
        row_loss: Out<f32>,
        positions: u32,
        step: In<Step>,
    );
}

constants! {
    Constants { T: Dtype, WIDTH: u64, VEC: u64, PARTIAL_TOKENS: u64 }
    fixed { THREADS, SUM_COLUMNS, SUM_ROWS }
}

pub(crate) static SUMS: Source = Source {
    file: "sums.cu",
    signatures: SIGNATURES,
    constants: Constants::NAMES,
    parts: &[include_str!("sums.cu")],
    warpgroups: false,
};

const THREADS: u32 = 256;
/// Threads of a block of the second stage: so many columns, and shares of the rows of each.
const SUM_COLUMNS: u32 = 32;
const SUM_ROWS: u32 = 32;

fn module(width: u64, dtype: Dtype) -> ModuleSpec {
    let (vec, tokens) = (pack_of(width, &[dtype]), TOKENS_OF_A_PARTIAL_SUM);
    Constants { T: dtype, WIDTH: width, VEC: vec, PARTIAL_TOKENS: tokens }.module(&SUMS)
}

/// For kernels that do not use the constants.
fn plain() -> ModuleSpec {
    module(1, Dtype::F32)
}

/// Adds the sums of `parts` rows of partial sums to the targets, which have `width` columns each:
/// the columns of a row are those of the first target, then those of the second if there is one.
pub(super) fn add_partials(
    cx: &mut Lowering<'_>,
    partials: In<f32>,
    (parts, width): (u64, u64),
    target: Out<f32>,
    second: Option<Out<f32>>,
) -> Result<(), BackendError> {
    let columns = if second.is_some() { 2 * width } else { width };
    let extent = Extent::new(columns.div_ceil(u64::from(SUM_COLUMNS)), SUM_COLUMNS * SUM_ROWS);
    let kernel = AddPartials {
        columns: WorkCount(count(columns, "columns")?),
        rows: count(parts, "partial sums")?,
        split: count(width, "columns")?,
        partials,
        target,
        second: second.unwrap_or_else(Out::nowhere),
    };
    cx.launch(plain(), extent, kernel)
}

/// `d_bias += Σ d_out`, through partial sums in the workspace.
pub(super) fn bias_gradient(
    cx: &mut Lowering<'_>,
    d_out: TensorId,
    partials: Out<f32>,
    d_bias: Out<f32>,
) -> Result<(), BackendError> {
    let (shape, dtype) = (cx.shape(d_out), cx.dtype(d_out));
    let (rows, width) = (shape.rows(), shape.width());
    let packs = width / pack_of(width, &[dtype]);
    let parts = partial_sums(rows);
    let blocks = parts * packs.div_ceil(32);
    let kernel = ColumnPartials {
        blocks: WorkCount(count(blocks, "blocks of tokens")?),
        rows: count(rows, "tokens")?,
        d_out: cx.read(d_out)?,
        partials,
    };
    cx.launch(module(width, dtype), Extent::new(blocks, THREADS), kernel)?;
    add_partials(cx, partials.read(), (parts, width), d_bias, None)
}

/// The summed loss of each sequence.
pub(super) fn row_losses(
    cx: &mut Lowering<'_>,
    token_loss: TensorId,
    row_loss: TensorId,
    (rows, positions): (u64, u64),
) -> Result<(), BackendError> {
    let kernel = RowLosses {
        rows: WorkCount(count(rows, "sequences")?),
        token_loss: cx.read(token_loss)?,
        row_loss: cx.write(row_loss)?,
        positions: count(positions, "positions")?,
        step: cx.step(),
    };
    cx.launch(plain(), Extent::new(rows, THREADS), kernel)
}
