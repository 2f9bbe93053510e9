//! Sums and maxima along a row, in one fixed order on every CPU. There are sixteen running values;
//! element `i` goes to number `i` modulo sixteen, and the values are folded in halves at the end.
//! The compiler keeps the sixteen in one register or several; the bits are the same.

/// Number of running values.
pub(crate) const LANES: usize = 16;

/// `Σ f(x)`.
#[inline(always)]
pub(crate) fn sum(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    fold(x, 0.0, |acc, value| acc + f(value), |a, b| a + b)
}

/// The largest element, or `-inf` if there are none. A NaN is ignored here and shows in the sum
/// that follows.
#[inline(always)]
pub(crate) fn max(x: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    fold(x, f32::NEG_INFINITY, larger, larger)
}

#[inline(always)]
fn fold(
    x: &[f32],
    start: f32,
    step: impl Fn(f32, f32) -> f32,
    join: impl Fn(f32, f32) -> f32,
) -> f32 {
    let mut lanes = [start; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane = step(*lane, value);
        }
    }
    for (lane, &value) in lanes.iter_mut().zip(rest) {
        *lane = step(*lane, value);
    }
    halve(lanes, join)
}

/// The sum of sixteen running values.
#[inline(always)]
pub(crate) fn total(lanes: [f32; LANES]) -> f32 {
    halve(lanes, |a, b| a + b)
}

#[inline(always)]
fn halve(mut lanes: [f32; LANES], join: impl Fn(f32, f32) -> f32) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = join(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }
    lanes[0]
}
