//! Compares results with a golden, element by element, and reports the worst one.

use crate::case::Tolerance;
use std::fmt;

/// How two arrays differ beyond the tolerance.
#[derive(Clone, Debug, PartialEq)]
pub enum Difference {
    /// They have different lengths.
    Length {
        /// Elements found.
        got: usize,
        /// Elements expected.
        want: usize,
    },
    /// Some elements are outside the tolerance.
    Elements {
        /// Flat index of the worst element.
        index: usize,
        /// Its value.
        got: f32,
        /// Its expected value.
        want: f32,
        /// The largest allowed difference.
        allowed: f64,
        /// How many elements are outside the tolerance.
        off: usize,
        /// How many elements there are in total.
        count: usize,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Length { got, want } => write!(f, "{got} elements instead of {want}"),
            Difference::Elements { index, got, want, allowed, off, count } => {
                let distance = (f64::from(*got) - f64::from(*want)).abs();
                write!(
                    f,
                    "[{index}] is {got:e} instead of {want:e}: off by {distance:.2e}, allowed \
                     {allowed:.2e}; {off} of {count} elements are off"
                )
            }
        }
    }
}

/// The largest share of the tolerance that any element uses; at most 1.
pub fn compare(got: &[f32], want: &[f32], tolerance: &Tolerance) -> Result<f64, Difference> {
    if got.len() != want.len() {
        return Err(Difference::Length { got: got.len(), want: want.len() });
    }
    let mut worst = (0.0, 0);
    let mut off = 0;
    for (index, (&got, &want)) in got.iter().zip(want).enumerate() {
        let used = used(got, want, tolerance);
        off += usize::from(used > 1.0);
        if used > worst.0 {
            worst = (used, index);
        }
    }
    if off == 0 {
        return Ok(worst.0);
    }
    let (index, count) = (worst.1, got.len());
    let (got, want) = (got[index], want[index]);
    Err(Difference::Elements { index, got, want, allowed: allowed(want, tolerance), off, count })
}

fn allowed(want: f32, tolerance: &Tolerance) -> f64 {
    tolerance.absolute + tolerance.relative * f64::from(want).abs()
}

/// The difference divided by what is allowed. Infinities and NaN must match exactly.
fn used(got: f32, want: f32, tolerance: &Tolerance) -> f64 {
    if got == want || (got.is_nan() && want.is_nan()) {
        return 0.0;
    }
    if !got.is_finite() || !want.is_finite() {
        return f64::INFINITY;
    }
    let distance = (f64::from(got) - f64::from(want)).abs();
    let allowed = allowed(want, tolerance);
    if allowed > 0.0 { distance / allowed } else { f64::INFINITY }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLERANCE: Tolerance = Tolerance { absolute: 0.01, relative: 0.1, reason: "a test" };

    #[test]
    fn what_is_near_passes_and_tells_how_near() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let used = compare(&[1.0, inf, -inf, nan, 0.005], &[1.0, inf, -inf, nan, 0.0], &TOLERANCE);
        assert!((used.unwrap() - 0.5).abs() < 1e-6);
        assert_eq!(compare(&[], &[], &TOLERANCE), Ok(0.0));
        let exact = Tolerance { absolute: 0.0, relative: 0.0, reason: "exact" };
        assert_eq!(compare(&[0.0, 2.0], &[-0.0, 2.0], &exact), Ok(0.0));
        assert!(compare(&[f32::MIN_POSITIVE], &[0.0], &exact).is_err());
    }

    #[test]
    fn what_is_far_is_named_by_its_worst_element() {
        let got = [1.0, 2.0, 3.5, 9.0];
        let want = [1.0, 2.5, 3.0, 7.0];
        let difference = compare(&got, &want, &TOLERANCE).unwrap_err();
        let shown = difference.to_string();
        assert!(
            shown.starts_with("[3] is 9e0 instead of 7e0: off by 2.00e0, allowed 7.10e-1; 3 of 4")
        );
        for (got, want) in [
            (f32::NAN, 1.0),
            (1.0, f32::NAN),
            (f32::INFINITY, 1.0),
            (f32::INFINITY, f32::NEG_INFINITY),
            (f32::INFINITY, f32::NAN),
        ] {
            assert!(compare(&[0.0, got], &[0.0, want], &TOLERANCE).is_err(), "{got} {want}");
        }
        assert_eq!(
            compare(&[1.0], &[1.0, 2.0], &TOLERANCE),
            Err(Difference::Length { got: 1, want: 2 })
        );
    }
}
