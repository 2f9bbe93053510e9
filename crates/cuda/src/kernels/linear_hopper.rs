//! Launches of linear layers and of the gradients of their inputs on Hopper's warpgroups, with the
//! GELU next to them.

use super::attention_hopper::{ALIGNMENT, PANEL_ROW, WARPGROUPS};
use super::gelu::FUNCTION;
use super::{SHARED_MEMORY, count};
use crate::constants::constants;
use crate::kernel_source::Source;
use crate::lowering::{Extent, Lowering};
use crate::signature::{In, Map, Out, T, WorkCount, signatures};
use plan::ops::{GeluKind, Linear, LinearBackwardInput, Op};
use plan::warpgroup_linear::WarpgroupLinear;
use plan::{BackendError, Dtype, TensorId};

signatures! {
    /// A matmul, and what follows it.
    Multiply = linear(
        rows: WorkCount<u32>,
        x: Map<T>,
        w: Map<T>,
        columns: u32,
        inner: u32,
        bias_n: In<T>,
        hidden_mn: Out<T>,
        out_mn: Out<T>,
    );
}

/// Stages of the ring of tiles.
const STAGES: u64 = 4;
/// Rows and columns of a tile of the output.
const TILE_ROWS: u64 = WarpgroupLinear::TILE[0];
const TILE_COLUMNS: u64 = WarpgroupLinear::TILE[1];
/// How many numbers of each row and each column a stage holds; also the columns of a panel.
const PANEL: u64 = WarpgroupLinear::PANEL;
/// Bytes of shared memory: the stages, the sums of a tile, and barriers.
const SHARED_BYTES: u64 = ALIGNMENT
    + STAGES * (TILE_ROWS + TILE_COLUMNS) * PANEL_ROW
    + TILE_ROWS * TILE_COLUMNS * 2
    + (2 * STAGES + 2) * 8;
const THREADS: u32 = 512;

constants! {
    Constants {
        T: Dtype,
        DOWN: bool,
        HAS_BIAS: bool,
        GELU: u32,
        TANH: bool,
        KEEP: bool,
        AGAIN: bool,
    }
    fixed { TILE_ROWS, TILE_COLUMNS, STAGES, SHARED_BYTES, THREADS }
}

pub(super) static LINEAR_HOPPER: Source = Source {
    file: "linear_hopper.cu",
    signatures: SIGNATURES,
    constants: Constants::NAMES,
    parts: &[
        SHARED_MEMORY,
        WARPGROUPS,
        include_str!("tensor_maps.cuh"),
        FUNCTION,
        include_str!("linear_hopper.cu"),
    ],
    warpgroups: true,
};

/// What the kernel computes beyond the matmul.
struct Form {
    constants: Constants,
    bias: Option<TensorId>,
    /// The tensor of GELU's input, and whether the kernel writes to it: the sums, or GELU's result
    /// in place of the input that it has read.
    hidden: Option<(TensorId, bool)>,
}

/// The kernel's numbers for GELU, in the order of its `enum`.
const NO_GELU: u32 = 0;
const GELU_OF_SUMS: u32 = 1;
const GELU_SLOPE: u32 = 2;

fn is_tanh(kind: GeluKind) -> bool {
    kind == GeluKind::Tanh
}

/// Launches a linear layer. False if the library computes it, as it does whenever the residual
/// stream is added.
pub(super) fn forward(cx: &mut Lowering<'_>, op: &Linear) -> Result<bool, BackendError> {
    let kernel = kernel_for(cx, &op.clone().into()).filter(|_| op.residual.is_none());
    let Some(sizes) = kernel else { return Ok(false) };
    let sums = op.gelu.and_then(|gelu| gelu.sums);
    let constants = Constants {
        T: cx.dtype(op.w),
        DOWN: false,
        HAS_BIAS: op.bias.is_some(),
        GELU: op.gelu.map_or(NO_GELU, |_| GELU_OF_SUMS),
        TANH: op.gelu.is_some_and(|gelu| is_tanh(gelu.kind)),
        KEEP: sums.is_some(),
        AGAIN: false,
    };
    let hidden = sums.map(|sums| (sums, true));
    let form = Form { constants, bias: op.bias, hidden };
    launch(cx, sizes, form, [op.x, op.w, op.out]).map(|()| true)
}

/// Launches the gradient of a layer's input. False if the library computes it.
pub(super) fn backward_input(
    cx: &mut Lowering<'_>,
    op: &LinearBackwardInput,
) -> Result<bool, BackendError> {
    let Some(sizes) = kernel_for(cx, &op.clone().into()) else { return Ok(false) };
    let constants = Constants {
        T: cx.dtype(op.w),
        DOWN: true,
        HAS_BIAS: false,
        GELU: op.gelu.map_or(NO_GELU, |_| GELU_SLOPE),
        TANH: op.gelu.is_some_and(|gelu| is_tanh(gelu.kind)),
        KEEP: false,
        AGAIN: op.gelu.is_some_and(|gelu| gelu.again),
    };
    let hidden = op.gelu.map(|gelu| (gelu.x, gelu.again));
    launch(cx, sizes, Form { constants, bias: None, hidden }, [op.d_out, op.w, op.d_x])
        .map(|()| true)
}

fn kernel_for(cx: &Lowering<'_>, op: &Op) -> Option<WarpgroupLinear> {
    WarpgroupLinear::of(op, cx.tensors()).filter(|_| cx.options().warpgroups)
}

fn launch(
    cx: &mut Lowering<'_>,
    sizes: WarpgroupLinear,
    form: Form,
    [x, w, out]: [TensorId; 3],
) -> Result<(), BackendError> {
    let WarpgroupLinear { rows, columns, inner } = sizes;
    let hidden = form.hidden.map(|(hidden, written)| cx.write_if(written, hidden)).transpose()?;
    let kernel = Multiply {
        rows: WorkCount(count(rows, "tokens")?),
        x: cx.map(x, [TILE_ROWS, PANEL])?,
        w: cx.map(w, [PANEL, PANEL])?,
        columns: count(columns, "columns of a matmul")?,
        inner: count(inner, "columns of a matmul")?,
        bias_n: cx.maybe_read(form.bias)?,
        hidden_mn: hidden.unwrap_or(Out::nowhere()),
        out_mn: cx.write(out)?,
    };
    let grid = u64::from(cx.options().multiprocessors.max(1));
    let extent = Extent { grid, block: THREADS, shared: SHARED_BYTES as u32 };
    cx.launch(form.constants.module(&LINEAR_HOPPER), extent, kernel)
}
