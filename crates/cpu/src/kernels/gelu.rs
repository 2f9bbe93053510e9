//! GELU and its gradient, element by element.

use crate::executor::StepContext;
use crate::isa::{Isa, for_each_isa};
use crate::math::{erf, exp, tanh};
use crate::pool::Output;
use plan::BackendError;
use plan::ops::{Gelu, GeluBackward, GeluKind};

const SQRT_HALF: f32 = std::f32::consts::FRAC_1_SQRT_2;
/// 1/√(2π).
const NORMAL_PEAK: f32 = 0.398_942_3;
/// √(2/π).
const TANH_SCALE: f32 = 0.797_884_6;
const TANH_CUBE: f32 = 0.044_715;

/// Elements of a unit of work.
const UNIT: usize = 4096;

/// `out = gelu(x)`.
pub(crate) fn forward(cx: &StepContext<'_>, op: &Gelu) -> Result<(), BackendError> {
    apply(cx, op.kind, cx.memory.read(op.x), cx.memory.write(op.out));
    Ok(())
}

/// `d *= gelu'(x)`.
pub(crate) fn backward(cx: &StepContext<'_>, op: &GeluBackward) -> Result<(), BackendError> {
    let d = cx.memory.write(op.d);
    match op.again {
        true => gradient_and_value(cx, op.kind, cx.memory.write(op.x), d),
        false => gradient(cx, op.kind, cx.memory.read(op.x), d),
    }
    Ok(())
}

/// GELU of `x`.
pub(super) fn apply(cx: &StepContext<'_>, kind: GeluKind, x: &[f32], out: &mut [f32]) {
    let isa = cx.isa;
    cx.pool.split(x.len().div_ceil(UNIT), [Output::new(out, UNIT)], |_, units, [out]| {
        let x = &x[units.start * UNIT..][..out.len()];
        value(isa, kind, x, out);
    });
}

/// GELU of `x`, which replaces it.
pub(super) fn in_place(cx: &StepContext<'_>, kind: GeluKind, x: &mut [f32]) {
    let isa = cx.isa;
    cx.pool.split(x.len().div_ceil(UNIT), [Output::new(x, UNIT)], |_, _, [x]| {
        replace(x, |x, out| value(isa, kind, x, out));
    });
}

/// `d *= gelu'(x)`.
pub(super) fn gradient(cx: &StepContext<'_>, kind: GeluKind, x: &[f32], d: &mut [f32]) {
    let isa = cx.isa;
    cx.pool.split(x.len().div_ceil(UNIT), [Output::new(d, UNIT)], |_, units, [d]| {
        slope(isa, kind, &x[units.start * UNIT..][..d.len()], d);
    });
}

/// The same; and GELU of `x` replaces it.
pub(super) fn gradient_and_value(
    cx: &StepContext<'_>,
    kind: GeluKind,
    x: &mut [f32],
    d: &mut [f32],
) {
    let isa = cx.isa;
    let units = x.len().div_ceil(UNIT);
    cx.pool.split(units, [Output::new(d, UNIT), Output::new(x, UNIT)], |_, _, [d, x]| {
        slope(isa, kind, x, d);
        replace(x, |x, out| value(isa, kind, x, out));
    });
}

fn value(isa: Isa, kind: GeluKind, x: &[f32], out: &mut [f32]) {
    match kind {
        GeluKind::Erf => erf_forward(isa, x, out),
        GeluKind::Tanh => tanh_forward(isa, x, out),
    }
}

fn slope(isa: Isa, kind: GeluKind, x: &[f32], d: &mut [f32]) {
    match kind {
        GeluKind::Erf => erf_backward(isa, x, d),
        GeluKind::Tanh => tanh_backward(isa, x, d),
    }
}

/// Elements that pass through a buffer on the stack at a time.
const PIECE: usize = 256;

/// Replaces each number by a function of it.
fn replace(x: &mut [f32], function: impl Fn(&[f32], &mut [f32])) {
    let mut piece = [0.0; PIECE];
    for part in x.chunks_mut(PIECE) {
        let before = &mut piece[..part.len()];
        before.copy_from_slice(part);
        function(before, part);
    }
}

for_each_isa! {
    fn erf_forward(x: &[f32], out: &mut [f32]) {
        for (out, &x) in out.iter_mut().zip(x) {
            let half = 0.5 * x;
            *out = half.mul_add(erf(x * SQRT_HALF), half);
        }
    }
}

for_each_isa! {
    fn erf_backward(x: &[f32], d: &mut [f32]) {
        for (d, &x) in d.iter_mut().zip(x) {
            let below = 0.5f32.mul_add(erf(x * SQRT_HALF), 0.5);
            let density = NORMAL_PEAK * exp(-0.5 * x * x);
            *d *= x.mul_add(density, below);
        }
    }
}

for_each_isa! {
    fn tanh_forward(x: &[f32], out: &mut [f32]) {
        for (out, &x) in out.iter_mut().zip(x) {
            let inner = TANH_SCALE * (TANH_CUBE * x * x).mul_add(x, x);
            let half = 0.5 * x;
            *out = half.mul_add(tanh(inner), half);
        }
    }
}

for_each_isa! {
    fn tanh_backward(x: &[f32], d: &mut [f32]) {
        for (d, &x) in d.iter_mut().zip(x) {
            let inner = TANH_SCALE * (TANH_CUBE * x * x).mul_add(x, x);
            let t = tanh(inner);
            let slope = TANH_SCALE * (3.0 * TANH_CUBE * x).mul_add(x, 1.0);
            let below = 0.5f32.mul_add(t, 0.5);
            *d *= (0.5 * x * t.mul_add(-t, 1.0)).mul_add(slope, below);
        }
    }
}
