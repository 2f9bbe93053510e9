//! `a * b + c` with one rounding, in plain arithmetic.
//!
//! `f32::mul_add` gives the same bits, but without the `fma` target feature it is a library call
//! per value, and enabling the feature per function needs `unsafe` callers. This version has no
//! branches, so the compiler can vectorize it on any target.

/// `a.mul_add(b, c)`, bit for bit except for NaN payloads.
///
/// The product of two f32 is exact in f64. The sum is not, and rounding it to f64 and then to f32
/// can go wrong at ties. So the sum is rounded *to odd*: an inexact result takes the f64 neighbour
/// of the true value whose last bit is odd. Such a value is never an f32 tie and is on the right
/// side of every tie, so the last rounding is right (Boldo and Melquiond 2008; f64 has the two
/// extra bits over f32 that this needs).
#[inline(always)]
pub(crate) fn fma(a: f32, b: f32, c: f32) -> f32 {
    let product = f64::from(a) * f64::from(b);
    let addend = f64::from(c);
    let sum = product + addend;
    // Knuth's TwoSum: product + addend = sum + error, exactly.
    let addend_part = sum - product;
    let error = (product - (sum - addend_part)) + (addend - addend_part);
    round_to_odd(sum, error) as f32
}

/// [`fma`] at a third of the cost, without the fix for double rounding: about one result in 2^30 is
/// the wrong neighbour. Use it only for arguments that a test checks exhaustively.
#[inline(always)]
pub(crate) fn near_fma(a: f32, b: f32, c: f32) -> f32 {
    (f64::from(a) * f64::from(b) + f64::from(c)) as f32
}

/// `sum + error` rounded to odd, where `sum` is the nearest f64. An error of NaN (the sum is not
/// finite) changes nothing.
#[inline(always)]
fn round_to_odd(sum: f64, error: f64) -> f64 {
    let bits = sum.to_bits();
    // The bits of f64 values of one sign, read as integers, are ordered by magnitude. If the sum is
    // too far from zero (its sign and the error's differ), subtract one; then set the last bit. An
    // odd sum goes down to even and back up, so it stays unchanged.
    let inexact = u64::from(error.abs() > 0.0);
    let signs_differ = (bits ^ error.to_bits()) >> 63;
    f64::from_bits(bits.wrapping_sub(signs_differ & inexact) | inexact)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::{Purpose, Stream};

    fn check(a: f32, b: f32, c: f32) {
        let (got, want) = (fma(a, b, c), a.mul_add(b, c));
        let same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
        assert!(same, "fma({a:e}, {b:e}, {c:e}) = {got:e}, not {want:e}");
    }

    #[test]
    fn special_values() {
        let values = [
            0.0,
            1.0,
            1.5,
            1.0 + f32::EPSILON,
            1.0 - f32::EPSILON / 2.0,
            0.1,
            3.0,
            16_777_215.0,
            f32::MAX,
            f32::MIN_POSITIVE,
            f32::from_bits(1),
            f32::from_bits(0x007f_ffff),
            f32::INFINITY,
            f32::NAN,
        ];
        let signed: Vec<f32> = values.iter().flat_map(|&v| [v, -v]).collect();
        for &a in &signed {
            for &b in &signed {
                for &c in &signed {
                    check(a, b, c);
                }
            }
        }
    }

    /// Any bit patterns: all exponents, subnormals, infinities, NaN.
    #[test]
    fn random_bits() {
        let mut stream = Stream::new(1, Purpose::Sample, 0);
        for _ in 0..2_000_000 {
            let [a, b, c] = std::array::from_fn(|_| f32::from_bits(stream.next_u32()));
            check(a, b, c);
        }
    }

    /// Products and addends of similar magnitude, so that their digits overlap in every way.
    #[test]
    fn random_near_exponents() {
        let mut stream = Stream::new(2, Purpose::Sample, 0);
        let mut near_one = |spread: u32| {
            let word = stream.next_u32();
            let exponent = 127 - spread / 2 + stream.next_u32() % spread;
            f32::from_bits(word & 0x807f_ffff | exponent << 23)
        };
        for _ in 0..3_000_000 {
            check(near_one(4), near_one(4), near_one(60));
        }
    }

    /// The rare case that rounding to odd solves: f64 rounds the sum onto an f32 tie.
    #[test]
    fn double_rounding_traps() {
        let mut stream = Stream::new(3, Purpose::Sample, 0);
        let mut traps = 0;
        for _ in 0..1_000_000 {
            // An odd a in [1, 4/3) times 1.5 is a tie, which c breaks from below f64's last digit.
            let odd = f32::from_bits((stream.next_u32() % 0x2a_aaaa) | 0x3f80_0001);
            let tiny = f32::from_bits(stream.next_u32() & 0x80ff_ffff | 0x2000_0000);
            check(odd, 1.5, tiny);
            traps += u32::from(near_fma(odd, 1.5, tiny) != fma(odd, 1.5, tiny));
        }
        assert!(traps > 400_000, "only {traps} cases were hard");
    }

    /// The addend cancels the rounded product completely or down to its last digits.
    #[test]
    fn cancellation() {
        let mut stream = Stream::new(4, Purpose::Sample, 0);
        for _ in 0..1_000_000 {
            let [a, b] = std::array::from_fn(|_| stream.normal());
            let rounded = a * b;
            let next = f32::from_bits(rounded.to_bits() ^ (stream.next_u32() & 3));
            for c in [-rounded, -next, 0.0, -0.0] {
                check(a, b, c);
            }
            // Exact results: short factors.
            let [short_a, short_b] = [a, b].map(|v| (v * 64.0).trunc());
            check(short_a, short_b, (rounded * 64.0).trunc());
            check(short_a, short_b, -short_a * short_b);
        }
    }
}
