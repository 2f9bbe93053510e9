//! Transposes an operand of a TF32 matmul into the workspace, behind what the matmul itself uses.

use super::count;
use crate::constants::constants;
use crate::kernel_source::Source;
use crate::lowering::{Extent, Lowering};
use crate::signature::{In, MatmulInput, Out, WorkCount, signatures};
use plan::gpu_scratch::{MATMULS, Transposed};
use plan::{BackendError, TensorId};

signatures! {
    /// A transposed copy of a matrix.
    Transpose = transpose(
        blocks: WorkCount<u32>,
        from_rc: In<f32>,
        to_cr: Out<f32>,
        rows: u32,
        columns: u32,
    );
}

/// Of the tile that a block moves.
const SIDE: u32 = 32;
const THREADS: u32 = 128;

constants! {
    Constants { SIDE: u32, THREADS: u32 }
    fixed {}
}

pub(super) static TRANSPOSE: Source = Source {
    file: "transpose.cu",
    signatures: SIGNATURES,
    constants: Constants::NAMES,
    parts: &[include_str!("transpose.cu")],
    warpgroups: false,
};

/// The matrix, if this lowering transposes what a matmul reads faster that way.
pub(super) fn wanted(cx: &Lowering<'_>, matrix: Option<Transposed>) -> Option<Transposed> {
    let options = cx.options();
    matrix.filter(|_| options.tf32 && options.warpgroups)
}

/// Transposes a matrix into an op's workspace. A matmul of the op reads it there.
pub(super) fn launch(
    cx: &mut Lowering<'_>,
    matrix: Transposed,
    from_rc: In<f32>,
    workspace: TensorId,
) -> Result<In<MatmulInput>, BackendError> {
    let Transposed { rows, columns } = matrix;
    let side = u64::from(SIDE);
    let grid = rows.div_ceil(side) * columns.div_ceil(side);
    let kernel = Transpose {
        blocks: WorkCount(count(grid, "tiles")?),
        from_rc,
        to_cr: cx.scratch(workspace)?.plus(MATMULS),
        rows: count(rows, "rows")?,
        columns: count(columns, "columns")?,
    };
    let module = Constants { SIDE, THREADS }.module(&TRANSPOSE);
    cx.launch(module, Extent::new(grid, THREADS), kernel)?;
    Ok(cx.scratch(workspace)?.plus(MATMULS).read())
}
