//! Turns two uniforms into two normals, with the exact arithmetic of PyTorch's AVX2 kernel.
//!
//! These are Cephes' polynomials (as in avx_mathfun.h) with the multiply-adds that GCC fused there.
//! The order and rounding of each step decide the bits, so no step may be changed. Uniforms are
//! multiples of 2^-24, so a test can try all of them; it shows that `near_fma` is exact enough
//! here. There are no branches, so the compiler can vectorize the loop in [`lanes`].

#![allow(clippy::excessive_precision)] // Constants as Cephes prints them.

use crate::fma::{fma, near_fma};
use std::f32::consts::{FRAC_1_SQRT_2, TAU};

/// The distance between neighbouring uniforms: 2^-24, one unit in the last place below 1.
pub(crate) const UNIFORM_STEP: f32 = 1.0 / 16_777_216.0;

/// Pairs that one call of [`lanes`] makes.
pub(crate) const LANES: usize = 8;

/// Replaces pairs of uniforms, `u1` in (0, 1] and `u2` in [0, 1), by pairs of normals.
#[inline(always)]
pub(crate) fn lanes(u1: &mut [f32; LANES], u2: &mut [f32; LANES], mean: f32, deviation: f32) {
    for (first, second) in u1.iter_mut().zip(u2) {
        let (with_cos, with_sin) = pair(*first, *second);
        *first = fma(with_cos, deviation, mean);
        *second = fma(with_sin, deviation, mean);
    }
}

/// One pair of standard normals, from uniforms as in [`lanes`].
#[inline(always)]
pub(crate) fn pair(u1: f32, u2: f32) -> (f32, f32) {
    let radius = (-2.0 * ln(u1)).sqrt();
    let (sin, cos) = sin_cos(TAU * u2);
    (radius * cos, radius * sin)
}

/// The natural logarithm, for normal positive numbers.
#[inline(always)]
fn ln(u: f32) -> f32 {
    // u = (1 + x) * 2^exponent with 1 + x in [sqrt(1/2), sqrt(2)).
    let bits = u.to_bits();
    let mantissa = f32::from_bits(bits & 0x007f_ffff | 0x3f00_0000);
    let is_low = mantissa < FRAC_1_SQRT_2;
    let exponent = (bits >> 23) as i32 as f32 - 126.0 - if is_low { 1.0 } else { 0.0 };
    let x = (mantissa - 1.0) + if is_low { mantissa } else { 0.0 };
    let z = x * x;
    let mut y = 7.0376836292e-2;
    for coefficient in [
        -1.1514610310e-1,
        1.1676998740e-1,
        -1.2420140846e-1,
        1.4249322787e-1,
        -1.6668057665e-1,
        2.0000714765e-1,
        -2.4999993993e-1,
        3.3333331174e-1,
    ] {
        y = near_fma(y, x, coefficient);
    }
    // ln 2 in two parts: a short one, whose multiples are exact, and the rest.
    y = near_fma(y * x, z, exponent * -2.12194440e-4);
    y = near_fma(-z, 0.5, y);
    near_fma(exponent, 0.693359375, x + y)
}

/// (sin t, cos t) for t in [0, 2 pi].
#[inline(always)]
fn sin_cos(t: f32) -> (f32, f32) {
    // The octant, rounded up to even: t - octant * pi/4 is then in [-pi/4, pi/4].
    let octant = (truncate(t * 1.27323954473516) + 1) & !1;
    let steps = octant as f32;
    // pi/4 in three parts (Cody and Waite).
    let x = near_fma(steps, -0.78515625, t);
    let x = near_fma(steps, -2.4187564849853515625e-4, x);
    let x = near_fma(steps, -3.77489497744594108e-8, x);
    let z = x * x;
    let cosine = near_fma(2.443315711809948e-5, z, -1.388731625493765e-3);
    let cosine = near_fma(cosine, z, 4.166664568298827e-2);
    let cosine = near_fma(cosine * z, z, -(z * 0.5)) + 1.0;
    let sine = near_fma(-1.9515295891e-4, z, 8.3321608736e-3);
    let sine = near_fma(sine, z, -1.6666654611e-1);
    let sine = near_fma(sine * z, x, x);
    let (sin, cos) = if octant & 2 == 0 { (sine, cosine) } else { (cosine, sine) };
    let sin_sign = (octant as u32 & 4) << 29;
    let cos_sign = (!(octant - 2) as u32 & 4) << 29;
    (f32::from_bits(sin.to_bits() ^ sin_sign), f32::from_bits(cos.to_bits() ^ cos_sign))
}

/// The integer part, for v in [0, 255]. A plain cast saturates, which SSE2 can only do lane by
/// lane.
#[inline(always)]
fn truncate(v: f32) -> i32 {
    // 2^23 + v has no fractional bits: its last bits are the integer nearest to v.
    const SHIFT: f32 = 8_388_608.0;
    let shifted = v + SHIFT;
    let nearest = (shifted.to_bits() & 0xff) as i32;
    nearest - i32::from(shifted - SHIFT > v)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIFORMS: u32 = 1 << 24;

    /// The same steps with `f32::mul_add` and branches, as PyTorch's kernel takes them.
    fn ln_by_mul_add(u: f32) -> f32 {
        let bits = u.max(f32::MIN_POSITIVE).to_bits();
        let mut e = (bits >> 23) as f32 - 126.0;
        let m = f32::from_bits(bits & 0x807f_ffff | 0x3f00_0000);
        let mut x = m - 1.0;
        if m < 0.70710677 {
            e -= 1.0;
            x = (m - 1.0) + m;
        }
        let z = x * x;
        let mut y = 7.0376836292e-2_f32.mul_add(x, -1.1514610310e-1);
        y = y.mul_add(x, 1.1676998740e-1).mul_add(x, -1.2420140846e-1);
        y = y.mul_add(x, 1.4249322787e-1).mul_add(x, -1.6668057665e-1);
        y = y.mul_add(x, 2.0000714765e-1).mul_add(x, -2.4999993993e-1);
        y = y.mul_add(x, 3.3333331174e-1) * x;
        y = y.mul_add(z, e * -2.12194440e-4);
        y = (-z).mul_add(0.5, y);
        e.mul_add(0.693359375, x + y)
    }

    fn sin_cos_by_mul_add(t: f32) -> (f32, f32) {
        let j = ((t * 1.27323954473516).trunc() as i32 + 1) & !1;
        let f = j as f32;
        let x = f.mul_add(-0.78515625, t);
        let x = f.mul_add(-2.4187564849853515625e-4, x);
        let x = f.mul_add(-3.77489497744594108e-8, x);
        let z = x * x;
        let c = 2.443315711809948e-5_f32.mul_add(z, -1.388731625493765e-3);
        let c = c.mul_add(z, 4.166664568298827e-2) * z;
        let c = c.mul_add(z, -(z * 0.5)) + 1.0;
        let s = (-1.9515295891e-4_f32).mul_add(z, 8.3321608736e-3);
        let s = s.mul_add(z, -1.6666654611e-1) * z;
        let s = s.mul_add(x, x);
        let (sin, cos) = if j & 2 == 0 { (s, c) } else { (c, s) };
        (if j & 4 != 0 { -sin } else { sin }, if !(j - 2) & 4 != 0 { -cos } else { cos })
    }

    /// Exhaustive: a uniform has 24 bits, so these are all possible arguments.
    #[test]
    fn every_uniform_equals_the_fused_form() {
        for i in 0..UNIFORMS {
            let u = i as f32 * UNIFORM_STEP;
            let (got, want) = (ln(1.0 - u), ln_by_mul_add(1.0 - u));
            assert_eq!(got.to_bits(), want.to_bits(), "ln(1 - {u})");
            let (got, want) = (sin_cos(TAU * u), sin_cos_by_mul_add(TAU * u));
            let bits = |(sin, cos): (f32, f32)| [sin.to_bits(), cos.to_bits()];
            assert_eq!(bits(got), bits(want), "sin_cos(2 pi * {u})");
        }
    }

    #[test]
    fn every_uniform_is_near_the_true_function() {
        for i in (0..UNIFORMS).step_by(97) {
            let u = i as f32 * UNIFORM_STEP;
            let (got, want) = (ln(1.0 - u), f64::from(1.0 - u).ln());
            assert!((f64::from(got) - want).abs() <= 1.2e-7 * want.abs().max(1e-3));
            let (got, want) = (sin_cos(TAU * u), f64::from(TAU * u).sin_cos());
            assert!((f64::from(got.0) - want.0).abs() < 1e-7);
            assert!((f64::from(got.1) - want.1).abs() < 1e-7);
        }
    }
}
