//! Linear layers and their gradients: matmuls of cuBLASLt, and the column sum for a bias.

use super::{sums, unsupported};
use crate::cublaslt::Orientation;
use crate::lowering::{Lowering, MatmulSpec};
use plan::ops::{Linear, LinearBackwardInput, LinearBackwardWeight};
use plan::{BackendError, TensorId};

/// `out (+)= a b`, transposed according to `orientation`. The op's shape rule guarantees that all
/// sizes follow from the left operand and the result.
fn matmul(
    cx: &mut Lowering<'_>,
    orientation: Orientation,
    [a, b, out, workspace]: [TensorId; 4],
    bias: Option<TensorId>,
) -> Result<(), BackendError> {
    let (left, right) = (cx.dtype(a), cx.dtype(b));
    if left != right {
        return Err(unsupported(format!("a matmul of {left} with {right}")));
    }
    let (shape, result) = (cx.shape(a), cx.shape(out));
    // Gradients of weights sum over tokens, and accumulate over slices.
    let is_weight = orientation == Orientation::TransposedTimes;
    let spec = MatmulSpec {
        orientation,
        m: result.rows(),
        n: result.width(),
        k: if is_weight { shape.rows() } else { shape.width() },
        inputs: left,
        output: cx.dtype(out),
        accumulate: is_weight,
        scalars: None,
    };
    let [a, b, out, workspace] = [a, b, out, workspace].map(|tensor| cx.location(tensor));
    let bias = bias.map(|bias| cx.location(bias)).transpose()?;
    cx.matmul(spec, [a?, b?, out?, workspace?], bias);
    Ok(())
}

pub(super) fn forward(cx: &mut Lowering<'_>, op: &Linear) -> Result<(), BackendError> {
    let operands = [op.x, op.w, op.out, op.workspace];
    matmul(cx, Orientation::TimesTransposed, operands, op.bias)
}

pub(super) fn backward_input(
    cx: &mut Lowering<'_>,
    op: &LinearBackwardInput,
) -> Result<(), BackendError> {
    matmul(cx, Orientation::Plain, [op.d_out, op.w, op.d_x, op.workspace], None)
}

pub(super) fn backward_weight(
    cx: &mut Lowering<'_>,
    op: &LinearBackwardWeight,
) -> Result<(), BackendError> {
    let operands = [op.d_out, op.x, op.d_w, op.workspace];
    matmul(cx, Orientation::TransposedTimes, operands, None)?;
    if let Some(d_bias) = op.d_bias {
        let (d_bias, workspace) = (cx.write(d_bias)?, cx.scratch(op.workspace)?);
        sums::bias_gradient(cx, op.d_out, workspace, d_bias)?;
    }
    Ok(())
}
