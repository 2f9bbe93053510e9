//! Linear layers: three matmuls of `gemm`, and the bias gradient. A GELU or a residual stream that
//! is part of the op follows as a pass of its own.

use super::gelu;
use super::gemm::{Matmul, Matrix, matmul};
use crate::executor::StepContext;
use crate::isa::for_each_isa;
use crate::pool::Output;
use plan::BackendError;
use plan::ops::{
    GeluBefore, Linear, LinearBackwardInput, LinearBackwardWeight, TOKEN_BLOCK, Write,
};

/// `out = x wᵀ + bias`, or GELU of that, or that and the residual stream.
pub(crate) fn forward(cx: &StepContext<'_>, op: &Linear) -> Result<(), BackendError> {
    let isa = cx.isa;
    let (inner, columns) = (cx.width(op.x), cx.width(op.out));
    let (x_btk, w_nk) = (cx.memory.read(op.x), cx.memory.read(op.w));
    let operands = Matmul {
        a: Matrix::rows(x_btk, inner),
        b: Matrix::transposed(w_nk, inner),
        inner,
        columns,
        bias: op.bias.map(|bias| cx.memory.read(bias)),
        write: Write::Overwrite,
    };
    let sums = op.gelu.and_then(|gelu| gelu.sums);
    let (scratch, sums_btn) =
        (cx.memory.write(op.workspace), cx.memory.write(sums.unwrap_or(op.out)));
    matmul(cx.pool, isa, scratch, &operands, sums_btn);
    match (op.gelu, sums) {
        (None, _) => {}
        (Some(gelu), None) => gelu::in_place(cx, gelu.kind, sums_btn),
        (Some(gelu), Some(_)) => gelu::apply(cx, gelu.kind, sums_btn, cx.memory.write(op.out)),
    }
    if let Some(residual) = op.residual {
        let (residual_btn, outputs_of) = (cx.memory.read(residual), [Output::new(sums_btn, 1)]);
        cx.pool.split(residual_btn.len(), outputs_of, |_, range, [out]| {
            for (out, &stream) in out.iter_mut().zip(&residual_btn[range]) {
                *out += stream;
            }
        });
    }
    Ok(())
}

/// `d_x = d_out w`, or that times the slope of a GELU.
pub(crate) fn backward_input(
    cx: &StepContext<'_>,
    op: &LinearBackwardInput,
) -> Result<(), BackendError> {
    let isa = cx.isa;
    let (inner, columns) = (cx.width(op.d_out), cx.width(op.d_x));
    let (d_out_btn, w_nk) = (cx.memory.read(op.d_out), cx.memory.read(op.w));
    let operands = Matmul {
        a: Matrix::rows(d_out_btn, inner),
        b: Matrix::rows(w_nk, columns),
        inner,
        columns,
        bias: None,
        write: Write::Overwrite,
    };
    let (scratch, d_x_btk) = (cx.memory.write(op.workspace), cx.memory.write(op.d_x));
    matmul(cx.pool, isa, scratch, &operands, d_x_btk);
    match op.gelu {
        None => {}
        Some(GeluBefore { kind, x, again: true }) => {
            gelu::gradient_and_value(cx, kind, cx.memory.write(x), d_x_btk);
        }
        Some(GeluBefore { kind, x, again: false }) => {
            gelu::gradient(cx, kind, cx.memory.read(x), d_x_btk);
        }
    }
    Ok(())
}

/// `d_w += d_outᵀ x`, `d_bias += Σ d_out`.
pub(crate) fn backward_weight(
    cx: &StepContext<'_>,
    op: &LinearBackwardWeight,
) -> Result<(), BackendError> {
    let isa = cx.isa;
    let (outputs, inputs) = (cx.width(op.d_out), cx.width(op.x));
    let (d_out_btn, x_btk) = (cx.memory.read(op.d_out), cx.memory.read(op.x));
    let operands = Matmul {
        a: Matrix::transposed(d_out_btn, outputs),
        b: Matrix::rows(x_btk, inputs),
        inner: d_out_btn.len() / outputs,
        columns: inputs,
        bias: None,
        write: Write::Accumulate,
    };
    let (scratch, d_w_nk) = (cx.memory.write(op.workspace), cx.memory.write(op.d_w));
    matmul(cx.pool, isa, scratch, &operands, d_w_nk);
    if let Some(d_bias) = op.d_bias {
        let outputs_of = [Output::new(cx.memory.write(d_bias), 1)];
        cx.pool.split(outputs, outputs_of, |_, columns, [sums]| {
            sum_columns(isa, d_out_btn, outputs, columns.start, sums);
        });
    }
    Ok(())
}

/// Columns summed at a time, so that the running sums stay in registers or L1.
const STRIP: usize = 128;

for_each_isa! {
    /// `sums[i] += Σ rows[t][first + i]`: each token block is summed from zero, and the blocks in
    /// order.
    fn sum_columns(rows: &[f32], width: usize, first: usize, sums: &mut [f32]) {
        for (strip, sums) in sums.chunks_mut(STRIP).enumerate() {
            let start = first + strip * STRIP;
            for block in rows.chunks(width * TOKEN_BLOCK as usize) {
                let mut partial = [0.0f32; STRIP];
                let partial = &mut partial[..sums.len()];
                for row in block.chunks_exact(width) {
                    for (sum, &value) in partial.iter_mut().zip(&row[start..]) {
                        *sum += value;
                    }
                }
                for (sum, &value) in sums.iter_mut().zip(partial.iter()) {
                    *sum += value;
                }
            }
        }
    }
}
