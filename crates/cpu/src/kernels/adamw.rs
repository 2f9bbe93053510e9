//! AdamW over a flat range in one sweep: updates the parameters and zeroes the gradients. Moments
//! are f32, or bfloat16 with stochastic rounding.

use crate::executor::StepContext;
use crate::isa::for_each_isa;
use crate::pool::Output;
use plan::ops::AdamW;
use plan::{BackendError, Dtype, StepState};
use rng::{Purpose, Stream};

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
pub(crate) fn run(cx: &StepContext<'_>, op: &AdamW) -> Result<(), BackendError> {
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
    let correction = |beta: f64| 1.0 - power(beta, state.updates);
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
    let outputs = [Output::new(weights, UNIT), Output::new(gradients, UNIT)];
    if cx.tensors.get(op.m).dtype == Dtype::Bf16 {
        let moments = [op.m, op.v].map(|id| Output::new(cx.memory.write_halves(id), UNIT));
        let stream = Stream::new(cx.inputs.seed, Purpose::StochasticRounding, state.updates);
        cx.pool.split_two(units, outputs, moments, |range, [weights, gradients], [m, v]| {
            let first = op.first + (range.start * UNIT) as u64;
            sweep_rounding(isa, factors, (&stream, first), weights, gradients, m, v);
        });
        return Ok(());
    }
    let moments = [op.m, op.v].map(|id| Output::new(cx.memory.write(id), UNIT));
    cx.pool.split_two(units, outputs, moments, |_, [weights, gradients], [m, v]| {
        sweep(isa, factors, weights, gradients, m, v);
    });
    Ok(())
}

impl Factors {
    /// Updates one parameter and its moments from its gradient.
    #[inline(always)]
    fn update(&self, p: &mut f32, g: &mut f32, m: &mut f32, v: &mut f32) {
        let gradient = *g * self.multiplier;
        *g = 0.0;
        *m = self.toward1.mul_add(gradient - *m, *m);
        *v = (gradient * gradient).mul_add(self.toward2, *v * self.beta2);
        let root = v.sqrt().mul_add(self.inverse_root, self.eps);
        *p = (-self.step).mul_add(*m / root, *p * self.decay);
    }
}

/// The upper half of an f32, stochastically rounded with `random` (16 bits): the mean of all
/// outcomes is the number itself. Infinity and NaN stay as they are, and no finite number becomes
/// infinite.
#[inline(always)]
fn round_stochastically(number: f32, random: u32) -> u16 {
    const EXPONENT: u32 = 0x7f80;
    let bits = number.to_bits();
    let up = (bits.wrapping_add(random & 0xffff) >> 16) as u16;
    let down = (bits >> 16) as u16;
    let overflows = u32::from(up) & EXPONENT == EXPONENT;
    match (overflows, number.is_nan()) {
        (false, _) => up,
        (true, false) => down,
        (true, true) => down | 1, // a NaN whose upper bits are zero would become infinity
    }
}

#[inline(always)]
fn widened(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 16)
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
            f.update(p, g, m, v);
        }
    }
}

for_each_isa! {
    /// Element `i` of all parameters uses word `i` of the random stream: its lower half rounds `m`,
    /// its upper half `v`.
    fn sweep_rounding(
        f: Factors,
        random: (&Stream, u64),
        weights: &mut [f32],
        gradients: &mut [f32],
        m: &mut [u16],
        v: &mut [u16],
    ) {
        let (stream, first) = random;
        let moments = m.iter_mut().zip(v);
        let mut words = stream.block(first / 4);
        let elements = weights.iter_mut().zip(gradients).zip(moments);
        for (index, ((p, g), (m, v))) in (first..).zip(elements) {
            if index % 4 == 0 {
                words = stream.block(index / 4);
            }
            let word = words[(index % 4) as usize];
            let (mut wide_m, mut wide_v) = (widened(*m), widened(*v));
            f.update(p, g, &mut wide_m, &mut wide_v);
            *m = round_stochastically(wide_m, word);
            *v = round_stochastically(wide_v, word >> 16);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_right_on_average() {
        for number in [1.0f32, 1.001, -0.3, 1e-30, 3.3e-39, 0.0] {
            let outcomes = (0..1u32 << 16).map(|random| {
                let half = round_stochastically(number, random);
                f64::from(widened(half))
            });
            let mean = outcomes.sum::<f64>() / f64::from(1u32 << 16);
            let unit = f64::from(number.abs()) * 2f64.powi(-8) + 1e-40;
            assert!((mean - f64::from(number)).abs() <= unit * 2f64.powi(-15), "{number}: {mean}");
        }
    }

    #[test]
    fn rounding_keeps_what_is_not_finite_and_makes_nothing_so() {
        for random in [0, 1, 0x8000, 0xffff] {
            let round = |number: f32| widened(round_stochastically(number, random));
            assert_eq!(round(f32::INFINITY), f32::INFINITY);
            assert_eq!(round(f32::NEG_INFINITY), f32::NEG_INFINITY);
            assert!(round(f32::NAN).is_nan());
            assert!(round(f32::from_bits(0x7f80_0001)).is_nan());
            assert!(round(f32::MAX).is_finite() && round(f32::MIN).is_finite());
            assert_eq!(round(0.5), 0.5, "what 16 bits hold is not changed");
        }
    }

    #[test]
    fn power_is_a_power() {
        for (beta, t) in [(0.9f64, 0u64), (0.9, 1), (0.95, 7), (0.999, 1000), (0.0, 3)] {
            assert!((power(beta, t) - beta.powi(t as i32)).abs() < 1e-12);
        }
    }
}
