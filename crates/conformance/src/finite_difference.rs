//! Checks gradients against the backend's own forward: along a random direction, the change of the
//! loss must be the dot product of gradient and direction. Needs no golden.

use crate::case::{Case, Derivative, GradientPair, LossTerm};
use crate::run::{LoadBackend, Measured, RunError, Runner};
use crate::values::{Values, stream};
use std::fmt;

/// The step, relative to the input's size (root mean square). Rounding errors of f32 results are
/// divided by it, so it cannot be small. A second step of twice the size cancels the cubic error.
const STEP: f64 = 1.0 / 32.0;

/// The allowed distance between the two derivatives, in lengths of the gradient. With a direction
/// of random signs, one wrong element among n equal ones changes the derivative by 1/√n of the
/// gradient's length: 5e-4 detects that for up to four million elements. The rest is rounding:
/// outputs known to 1e-7, divided by a step of 0.03, and up to ten times that if the loss is larger
/// than its gradient (the head).
const ALLOWED: f64 = 5e-4;

/// The derivative along one direction, computed in both ways.
#[derive(Clone, Debug, PartialEq)]
pub struct Directional {
    /// The input that was varied.
    pub input: String,
    /// From two pairs of forward passes.
    pub numeric: f64,
    /// From the gradient.
    pub analytic: f64,
    /// How far apart they may be.
    pub allowed: f64,
}

impl Directional {
    /// The share of the tolerance that is used; infinite if something is not finite.
    pub fn used(&self) -> f64 {
        let distance = (self.numeric - self.analytic).abs();
        if distance == 0.0 {
            return 0.0;
        }
        let used = distance / self.allowed;
        if used.is_nan() { f64::INFINITY } else { used }
    }
}

impl fmt::Display for Directional {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Directional { input, numeric, analytic, allowed } = self;
        let distance = (numeric - analytic).abs();
        write!(
            f,
            "along {input} the loss changes by {numeric:.6e}, its gradient says {analytic:.6e}: \
             off by {distance:.2e}, allowed {allowed:.2e}"
        )
    }
}

/// Why derivatives could not be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DerivativeError {
    /// A run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The case names an input or a reading that it does not have.
    #[error("the case has no floats named {name}")]
    Unknown {
        /// The name.
        name: String,
    },
}

/// One derivative for each input that has a gradient; none for a case without gradients.
pub fn directional(
    case: &Case,
    load: LoadBackend<'_>,
) -> Result<Vec<Directional>, DerivativeError> {
    let Some(derivative) = &case.derivative else { return Ok(Vec::new()) };
    let mut runner = Runner::new(case, load)?;
    let measured = runner.run()?;
    let along = |pair| along(case, derivative, pair, &measured, &mut runner);
    derivative.pairs.iter().map(along).collect()
}

fn along(
    case: &Case,
    derivative: &Derivative,
    pair: &GradientPair,
    measured: &[Measured],
    runner: &mut Runner<'_>,
) -> Result<Directional, DerivativeError> {
    let x = input(case, &pair.input)?;
    let gradient = gradient(case, pair, measured)?;
    let mut signs = stream(&case.name, &format!("direction of {}", pair.input));
    let signs: Vec<f32> =
        x.iter().map(|_| if signs.next_u32() & 1 == 0 { 1.0 } else { -1.0 }).collect();
    let step = (STEP * (norm(x.iter()) / (x.len() as f64).sqrt())) as f32;
    // f(x+h) - f(x-h), minus what the gradient says it is.
    let mut excess = |step: f32| -> Result<(f64, f64), DerivativeError> {
        let moved =
            |by: f32| -> Vec<f32> { x.iter().zip(&signs).map(|(x, sign)| x + by * sign).collect() };
        let (ahead, behind) = (moved(step), moved(-step));
        // The step as it was rounded to f32.
        let steps = ahead.iter().zip(&behind).map(|(a, b)| f64::from(*a) - f64::from(*b));
        let linear: f64 = gradient.iter().zip(steps).map(|(g, step)| g * step).sum();
        let mut at = |x: Vec<f32>| -> Result<f64, DerivativeError> {
            let values = Values::F32(x);
            loss(case, derivative, &runner.run_with(Some((&pair.input, &values)))?)
        };
        Ok((at(ahead)? - at(behind)? - linear, linear))
    };
    let (single, linear) = excess(step)?;
    let (double, _) = excess(2.0 * step)?;
    let step = f64::from(step);
    let analytic = linear / (2.0 * step);
    let numeric = analytic + slope_error(single, double, step);
    let allowed = ALLOWED * gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
    Ok(Directional { input: pair.input.clone(), numeric, analytic, allowed })
}

/// By how much the slope differs from the gradient, from the excess of a single step and that of a
/// double one. An excess is `2 e h + a h³ + O(h⁵)`, where `e` is the difference. Eight times the
/// single one minus the double one cancels the cubic part and leaves `12 e h`.
fn slope_error(single: f64, double: f64, step: f64) -> f64 {
    (8.0 * single - double) / (12.0 * step)
}

/// The gradient that a run computed, without what its accumulator held before.
fn gradient(
    case: &Case,
    pair: &GradientPair,
    measured: &[Measured],
) -> Result<Vec<f64>, DerivativeError> {
    let mut gradient: Vec<f64> =
        reading(measured, &pair.gradient)?.iter().copied().map(f64::from).collect();
    if pair.accumulated {
        for (gradient, before) in gradient.iter_mut().zip(input(case, &pair.gradient)?) {
            *gradient -= f64::from(*before);
        }
    }
    Ok(gradient)
}

fn loss(
    case: &Case,
    derivative: &Derivative,
    measured: &[Measured],
) -> Result<f64, DerivativeError> {
    let mut total = 0.0;
    for term in &derivative.loss {
        total += match term {
            LossTerm::Dot { output, cotangent } => {
                let (output, cotangent) = (reading(measured, output)?, input(case, cotangent)?);
                let products =
                    output.iter().zip(cotangent).map(|(a, b)| f64::from(*a) * f64::from(*b));
                products.sum::<f64>()
            }
            LossTerm::Sum { output, factor } => {
                let sum: f64 = reading(measured, output)?.iter().copied().map(f64::from).sum();
                sum * factor
            }
        };
    }
    Ok(total)
}

fn norm<'a>(values: impl Iterator<Item = &'a f32>) -> f64 {
    values.map(|&v| f64::from(v) * f64::from(v)).sum::<f64>().sqrt()
}

fn input<'a>(case: &'a Case, name: &str) -> Result<&'a [f32], DerivativeError> {
    match case.input(name).map(|input| &input.values) {
        Some(Values::F32(values)) => Ok(values),
        _ => Err(DerivativeError::Unknown { name: name.to_string() }),
    }
}

fn reading<'a>(measured: &'a [Measured], label: &str) -> Result<&'a [f32], DerivativeError> {
    let found = measured.iter().find(|measured| measured.label == label);
    let unknown = || DerivativeError::Unknown { name: label.to_string() };
    found.map(|measured| measured.elements.as_slice()).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `f(x) = 3x + 5x³` at 0 has slope 3, whatever gradient is claimed.
    #[test]
    fn a_wrong_gradient_is_off_by_all_of_its_error() {
        let f = |x: f64| 3.0 * x + 5.0 * x * x * x;
        let step = 0.25;
        for gradient in [3.0, 2.0, 0.0, -7.0] {
            let excess = |h: f64| f(h) - f(-h) - 2.0 * h * gradient;
            let error = slope_error(excess(step), excess(2.0 * step), step);
            assert!((error - (3.0 - gradient)).abs() < 1e-12, "{gradient}: {error}");
        }
    }
}
