//! Linear layers and their gradients: products of cuBLASLt, and the sum that a bias needs.

use super::{sums, unsupported};
use crate::cublaslt::Orientation;
use crate::lowering::{Lowering, ProductSpec};
use plan::ops::{Linear, LinearBackwardInput, LinearBackwardWeight};
use plan::{BackendError, TensorId};

/// Both factors of a product have one format.
fn same_format(cx: &Lowering<'_>, a: TensorId, b: TensorId) -> Result<(), BackendError> {
    let (a, b) = (cx.dtype(a), cx.dtype(b));
    if a == b { Ok(()) } else { Err(unsupported(format!("a product of {a} with {b}"))) }
}

pub(super) fn forward(cx: &mut Lowering<'_>, op: &Linear) -> Result<(), BackendError> {
    same_format(cx, op.x, op.w)?;
    let spec = ProductSpec {
        orientation: Orientation::TimesTransposed,
        m: cx.shape(op.x).rows(),
        n: cx.shape(op.w).rows(),
        k: cx.shape(op.w).width(),
        inputs: cx.dtype(op.x),
        output: cx.dtype(op.out),
        accumulate: false,
        scalars: None,
    };
    let places = [op.x, op.w, op.out, op.workspace];
    let [a, b, out, workspace] = places.map(|tensor| cx.place(tensor));
    let bias = op.bias.map(|bias| cx.place(bias)).transpose()?;
    cx.product(spec, [a?, b?, out?, workspace?], bias);
    Ok(())
}

pub(super) fn backward_input(
    cx: &mut Lowering<'_>,
    op: &LinearBackwardInput,
) -> Result<(), BackendError> {
    same_format(cx, op.d_out, op.w)?;
    let spec = ProductSpec {
        orientation: Orientation::Plain,
        m: cx.shape(op.d_out).rows(),
        n: cx.shape(op.w).width(),
        k: cx.shape(op.w).rows(),
        inputs: cx.dtype(op.d_out),
        output: cx.dtype(op.d_x),
        accumulate: false,
        scalars: None,
    };
    let places = [op.d_out, op.w, op.d_x, op.workspace];
    let [a, b, out, workspace] = places.map(|tensor| cx.place(tensor));
    cx.product(spec, [a?, b?, out?, workspace?], None);
    Ok(())
}

pub(super) fn backward_weight(
    cx: &mut Lowering<'_>,
    op: &LinearBackwardWeight,
) -> Result<(), BackendError> {
    same_format(cx, op.d_out, op.x)?;
    let spec = ProductSpec {
        orientation: Orientation::TransposedTimes,
        m: cx.shape(op.d_w).rows(),
        n: cx.shape(op.d_w).width(),
        k: cx.shape(op.x).rows(),
        inputs: cx.dtype(op.x),
        output: cx.dtype(op.d_w),
        accumulate: true,
        scalars: None,
    };
    let places = [op.d_out, op.x, op.d_w, op.workspace];
    let [a, b, out, workspace] = places.map(|tensor| cx.place(tensor));
    let workspace = workspace?;
    cx.product(spec, [a?, b?, out?, workspace], None);
    if let Some(d_bias) = op.d_bias {
        let d_bias = cx.place(d_bias)?;
        sums::bias_gradient(cx, op.d_out, workspace, d_bias)?;
    }
    Ok(())
}
