//! AdamW over a flat range, one sweep: update, and zero the gradient.

use crate::executor::Context;
use crate::isa::for_each_isa;
use crate::pool::Output;
use plan::ops::AdamW;
use plan::{BackendError, StepState};

/// Elements of a unit of work.
const UNIT: usize = 16_384;

/// The factors of one update.
#[derive(Clone, Copy)]
struct Factors {
    multiplier: f32,
    toward1: f32,
    beta2: f32,
    toward2: f32,
    eps: f32,
    decay: f32,
    step: f32,
    inverse_root: f32,
}

/// `p = p (1 - lr wd) - lr m̂ / (√v̂ + eps)`.
pub(crate) fn run(cx: &Context<'_>, op: &AdamW) -> Result<(), BackendError> {
    let isa = cx.isa;
    let state = StepState::from_words(cx.state_words(op.state)?);
    let weights = cx.memory.write(op.weights);
    let units = weights.len().div_ceil(UNIT);
    let gradients = cx.memory.write(op.gradients);
    if state.skipped {
        gradients.fill(0.0);
        return Ok(());
    }
    let lr = cx.inputs.lr;
    let correction = |beta: f64| 1.0 - power(beta, state.adam_t);
    let factors = Factors {
        multiplier: state.grad_multiplier,
        toward1: (1.0 - op.beta1) as f32,
        beta2: op.beta2 as f32,
        toward2: (1.0 - op.beta2) as f32,
        eps: op.eps as f32,
        decay: (1.0 - lr * op.weight_decay) as f32,
        step: (lr / correction(op.beta1)) as f32,
        inverse_root: (1.0 / correction(op.beta2).sqrt()) as f32,
    };
    let outputs = [
        Output::new(weights, UNIT),
        Output::new(gradients, UNIT),
        Output::new(cx.memory.write(op.m), UNIT),
        Output::new(cx.memory.write(op.v), UNIT),
    ];
    cx.pool.split(units, outputs, |_, _, [weights, gradients, m, v]| {
        sweep(isa, factors, weights, gradients, m, v);
    });
    Ok(())
}

/// `beta^t` by squaring: no libm, the same bits everywhere.
fn power(beta: f64, mut t: u64) -> f64 {
    let (mut base, mut result) = (beta, 1.0);
    while t > 0 {
        if t & 1 == 1 {
            result *= base;
        }
        base *= base;
        t >>= 1;
    }
    result
}

for_each_isa! {
    fn sweep(
        f: Factors,
        weights: &mut [f32],
        gradients: &mut [f32],
        m: &mut [f32],
        v: &mut [f32],
    ) {
        let moments = m.iter_mut().zip(v);
        for ((p, g), (m, v)) in weights.iter_mut().zip(gradients).zip(moments) {
            let gradient = *g * f.multiplier;
            *g = 0.0;
            *m = f.toward1.mul_add(gradient - *m, *m);
            *v = (gradient * gradient).mul_add(f.toward2, *v * f.beta2);
            let root = v.sqrt().mul_add(f.inverse_root, f.eps);
            *p = (-f.step).mul_add(*m / root, *p * f.decay);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_is_a_power() {
        for (beta, t) in [(0.9f64, 0u64), (0.9, 1), (0.95, 7), (0.999, 1000), (0.0, 3)] {
            assert!((power(beta, t) - beta.powi(t as i32)).abs() < 1e-12);
        }
    }
}
