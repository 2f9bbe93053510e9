//! Linear layers and their gradients: matmuls of cuBLASLt, or on Hopper's warpgroups kernels of our
//! own, and the column sum for a bias.

use super::{gelu, linear_hopper, sums, transpose};
use crate::cublaslt::Orientation;
use crate::lowering::{Lowering, Matmul, MatmulSpec};
use crate::signature::{In, MatmulInput};
use plan::gpu_scratch::Transposed;
use plan::ops::{Linear, LinearBackwardInput, LinearBackwardWeight};
use plan::{BackendError, Shape};

/// `out = a b`, transposed according to `orientation`. The op's shape rule guarantees that all
/// sizes follow from the left operand and the result.
fn spec(orientation: Orientation, a: Shape, out: Shape) -> MatmulSpec {
    let (m, n, k) = (out.rows(), out.width(), a.width());
    MatmulSpec { orientation, m, n, k, accumulate: false, scalars: None }
}

pub(super) fn forward(cx: &mut Lowering<'_>, op: &Linear) -> Result<(), BackendError> {
    if linear_hopper::forward(cx, op)? {
        return Ok(());
    }
    let sums = op.gelu.and_then(|gelu| gelu.sums).unwrap_or(op.out);
    let spec = spec(Orientation::TimesTransposed, cx.shape(op.x), cx.shape(op.out));
    let operands = Matmul {
        a: cx.read(op.x)?,
        b: cx.read(op.w)?,
        out: cx.write(sums)?,
        bias: op.bias.map(|bias| cx.read(bias)).transpose()?,
        residual: op.residual.map(|residual| cx.read(residual)).transpose()?,
        scratch: cx.scratch(op.workspace)?,
    };
    cx.matmul(spec, operands)?;
    op.gelu.map_or(Ok(()), |of| gelu::apply(cx, of.kind, sums, op.out))
}

pub(super) fn backward_input(
    cx: &mut Lowering<'_>,
    op: &LinearBackwardInput,
) -> Result<(), BackendError> {
    if linear_hopper::backward_input(cx, op)? {
        return Ok(());
    }
    let (d_out, w) = (cx.shape(op.d_out), cx.shape(op.w));
    let matrix = Transposed::for_input(cx.dtype(op.w), d_out.rows(), w);
    let (orientation, b) = match transpose::wanted(cx, matrix) {
        Some(matrix) => {
            let w = cx.read(op.w)?;
            let turned = transpose::launch(cx, matrix, w, op.workspace)?;
            (Orientation::TimesTransposed, turned)
        }
        None => (Orientation::Plain, cx.read(op.w)?),
    };
    let operands = Matmul {
        a: cx.read(op.d_out)?,
        b,
        out: cx.write(op.d_x)?,
        bias: None,
        residual: None,
        scratch: cx.scratch(op.workspace)?,
    };
    cx.matmul(spec(orientation, d_out, cx.shape(op.d_x)), operands)?;
    op.gelu.map_or(Ok(()), |gelu| gelu::slope(cx, gelu, op.d_x))
}

/// The operands of a weight's gradient as its matmul reads them: the narrower one may be
/// transposed.
fn weight_operands(
    cx: &mut Lowering<'_>,
    op: &LinearBackwardWeight,
) -> Result<(Orientation, [In<MatmulInput>; 2]), BackendError> {
    let (d_out, x) = (cx.shape(op.d_out), cx.shape(op.x));
    let matrix = Transposed::for_weight(cx.dtype(op.x), x.rows(), x.width(), d_out.width());
    let Some(matrix) = transpose::wanted(cx, matrix) else {
        return Ok((Orientation::TransposedTimes, [cx.read(op.d_out)?, cx.read(op.x)?]));
    };
    let narrower = if x.width() <= d_out.width() { op.x } else { op.d_out };
    let from = cx.read(narrower)?;
    let turned = transpose::launch(cx, matrix, from, op.workspace)?;
    Ok(match narrower == op.x {
        true => (Orientation::BothTransposed, [cx.read(op.d_out)?, turned]),
        false => (Orientation::Plain, [turned, cx.read(op.x)?]),
    })
}

/// Gradients of weights sum over tokens, and accumulate over slices.
pub(super) fn backward_weight(
    cx: &mut Lowering<'_>,
    op: &LinearBackwardWeight,
) -> Result<(), BackendError> {
    let (d_w, tokens) = (cx.shape(op.d_w), cx.shape(op.x).rows());
    let (orientation, [a, b]) = weight_operands(cx, op)?;
    let (m, n, k) = (d_w.rows(), d_w.width(), tokens);
    let spec = MatmulSpec { orientation, m, n, k, accumulate: true, scalars: None };
    let scratch = cx.scratch(op.workspace)?;
    let out = cx.write(op.d_w)?;
    let operands = Matmul { a, b, out, bias: None, residual: None, scratch };
    cx.matmul(spec, operands)?;
    if let Some(d_bias) = op.d_bias {
        let d_bias = cx.write(d_bias)?;
        sums::bias_gradient(cx, op.d_out, scratch, d_bias)?;
    }
    Ok(())
}
