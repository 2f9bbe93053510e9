//! Linear layers and their gradients: matmuls of cuBLASLt, and the column sum for a bias.

use super::sums;
use crate::cublaslt::Orientation;
use crate::lowering::{Lowering, Matmul, MatmulSpec};
use plan::ops::{Linear, LinearBackwardInput, LinearBackwardWeight};
use plan::{BackendError, Shape};

/// `out (+)= a b`, transposed according to `orientation`. The op's shape rule guarantees that all
/// sizes follow from the left operand and the result.
fn spec(orientation: Orientation, a: Shape, out: Shape) -> MatmulSpec {
    // Gradients of weights sum over tokens, and accumulate over slices.
    let is_weight = orientation == Orientation::TransposedTimes;
    MatmulSpec {
        orientation,
        m: out.rows(),
        n: out.width(),
        k: if is_weight { a.rows() } else { a.width() },
        accumulate: is_weight,
        scalars: None,
    }
}

pub(super) fn forward(cx: &mut Lowering<'_>, op: &Linear) -> Result<(), BackendError> {
    let spec = spec(Orientation::TimesTransposed, cx.shape(op.x), cx.shape(op.out));
    let operands = Matmul {
        a: cx.read(op.x)?,
        b: cx.read(op.w)?,
        out: cx.write(op.out)?,
        bias: op.bias.map(|bias| cx.read(bias)).transpose()?,
        scratch: cx.scratch(op.workspace)?,
    };
    cx.matmul(spec, operands)
}

pub(super) fn backward_input(
    cx: &mut Lowering<'_>,
    op: &LinearBackwardInput,
) -> Result<(), BackendError> {
    let spec = spec(Orientation::Plain, cx.shape(op.d_out), cx.shape(op.d_x));
    let operands = Matmul {
        a: cx.read(op.d_out)?,
        b: cx.read(op.w)?,
        out: cx.write(op.d_x)?,
        bias: None,
        scratch: cx.scratch(op.workspace)?,
    };
    cx.matmul(spec, operands)
}

pub(super) fn backward_weight(
    cx: &mut Lowering<'_>,
    op: &LinearBackwardWeight,
) -> Result<(), BackendError> {
    let spec = spec(Orientation::TransposedTimes, cx.shape(op.d_out), cx.shape(op.d_w));
    let scratch = cx.scratch(op.workspace)?;
    let operands = Matmul {
        a: cx.read(op.d_out)?,
        b: cx.read(op.x)?,
        out: cx.write(op.d_w)?,
        bias: None,
        scratch,
    };
    cx.matmul(spec, operands)?;
    if let Some(d_bias) = op.d_bias {
        let d_bias = cx.write(d_bias)?;
        sums::bias_gradient(cx, op.d_out, scratch, d_bias)?;
    }
    Ok(())
}
