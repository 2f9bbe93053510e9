//! exp, ln, erf and tanh for f32, without libm: the same bits on every machine, and free of
//! branches, so that loops over them vectorise. The tests below measure the stated error bounds
//! over a dense sweep of each domain. The polynomials are minimax fits made for this file.

/// ln 2, split so that `n · LN2_HIGH` is exact for every exponent `n`.
const LN2_HIGH: f32 = 0.693_359_4; // exactly 0.693359375
const LN2_LOW: f32 = -2.121_944_4e-4;
/// Adding this rounds a small f32 to an integer, which is then in the low bits.
const ROUND: f32 = 12_582_912.0;

/// eˣ. Relative error at most 1.2e-7 on [-87, 88]; 0 below -87, e⁸⁸ above 88, NaN for NaN.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let clamped = if x < -87.0 { -87.0 } else { x };
    let clamped = if clamped > 88.0 { 88.0 } else { clamped };
    let shifted = clamped.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, clamped));
    let mut p = 1.395_06e-3f32;
    p = p.mul_add(r, 8.368_954e-3);
    p = p.mul_add(r, 4.166_620_6e-2);
    p = p.mul_add(r, 1.666_651_8e-1);
    p = p.mul_add(r, 0.5);
    p = p.mul_add(r * r, r);
    let two_to_n = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    let value = p.mul_add(two_to_n, two_to_n);
    if x < -87.0 { 0.0 } else { value }
}

/// ln x for normal positive x, relative error at most 2.4e-7 (absolute near 1). NaN for NaN;
/// undefined for zero, negative, subnormal or infinite x.
#[inline(always)]
pub fn ln(x: f32) -> f32 {
    const SQRT_HALF: u32 = 0x3f35_04f3;
    let offset = x.to_bits().wrapping_sub(SQRT_HALF);
    let exponent = ((offset as i32) >> 23) as f32;
    let mantissa = f32::from_bits((offset & 0x007f_ffff).wrapping_add(SQRT_HALF));
    let f = mantissa - 1.0;
    let mut p = 6.745_016e-2f32;
    for c in [
        -1.179_127_4e-1,
        1.195_587e-1,
        -1.238_948_9e-1,
        1.420_694_4e-1,
        -1.666_853_7e-1,
        2.000_286_3e-1,
        -2.500_001e-1,
        3.333_33e-1,
    ] {
        p = p.mul_add(f, c);
    }
    let f2 = f * f;
    let tail = (p * f).mul_add(f2, exponent * LN2_LOW);
    let tail = f2.mul_add(-0.5, tail);
    let value = exponent.mul_add(LN2_HIGH, f + tail);
    if x.is_nan() { x } else { value }
}

/// The error function, absolute error at most 1.2e-7.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let t = x.abs();
    // Near zero: x + x p(x²).
    let s = x * x;
    let mut near = 7.889_116_4e-5f32;
    for c in [
        -8.020_840_5e-4,
        5.189_535e-3,
        -2.685_444_4e-2,
        1.128_36e-1,
        -3.761_262_6e-1,
        1.283_791_7e-1,
    ] {
        near = near.mul_add(s, c);
    }
    let near = near.mul_add(x, x);
    // Beyond 1: 1 - e^q(t), where q fits ln(erfc t). From 4 on the result rounds to 1.
    let far_t = if t > 4.0 { 4.0 } else { t };
    let mut q = -2.168_686_3e-5f32;
    for c in [
        4.413_365e-4,
        -4.204_562_4e-3,
        2.520_825_7e-2,
        -1.084_185_8e-1,
        -6.332_199e-1,
        -1.129_578_5,
        1.880_394_3e-4,
    ] {
        q = q.mul_add(far_t, c);
    }
    let far = (1.0 - exp(q)).copysign(x);
    if t < 1.0 { near } else { far }
}

/// The hyperbolic tangent, absolute error at most 1.2e-7; NaN for NaN.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let t = x.abs();
    let s = x * x;
    let mut near = -5.721_622e-3f32;
    for c in [2.065_521_1e-2, -5.374_514_3e-2, 1.333_151_5e-1, -3.333_328_4e-1] {
        near = near.mul_add(s, c);
    }
    let near = (near * s).mul_add(x, x);
    let capped = if t > 10.0 { 10.0 } else { t };
    let far = (1.0 - 2.0 / (exp(2.0 * capped) + 1.0)).copysign(x);
    if t < 0.625 { near } else { far }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps through every `stride`-th f32 of both signs inside `[low, high]`.
    fn sweep(low: f32, high: f32, mut visit: impl FnMut(f32)) {
        let mut seen = 0u64;
        for bits in (0..=0xffu32 << 23).step_by(509) {
            let magnitude = f32::from_bits(bits);
            for x in [magnitude, -magnitude] {
                if (low..=high).contains(&x) {
                    visit(x);
                    seen += 1;
                }
            }
        }
        assert!(seen > 1_000_000, "the sweep saw only {seen} values");
    }

    fn worst(low: f32, high: f32, error: impl Fn(f32) -> f64) -> f64 {
        let mut largest = 0.0;
        sweep(low, high, |x| largest = error(x).max(largest));
        largest
    }

    /// erf by its series, or by a continued fraction for erfc, in f64.
    fn erf_f64(x: f64) -> f64 {
        if x.abs() < 3.0 {
            let (mut term, mut sum) = (x, x);
            for n in 1..200 {
                term *= -x * x / f64::from(n);
                sum += term / f64::from(2 * n + 1);
            }
            return sum * 2.0 / std::f64::consts::PI.sqrt();
        }
        let t = x.abs();
        let fraction = (1..=120).rev().fold(0.0, |f, k| f64::from(k) / 2.0 / (t + f));
        let erfc = (-t * t).exp() / std::f64::consts::PI.sqrt() / (t + fraction);
        (1.0 - erfc).copysign(x)
    }

    #[test]
    fn errors_stay_inside_the_stated_bounds() {
        let relative = |got: f32, want: f64| ((f64::from(got) - want) / want).abs();
        let e = worst(-87.0, 88.0, |x| relative(exp(x), f64::from(x).exp()));
        let l = worst(f32::MIN_POSITIVE, f32::MAX, |x| {
            let want = f64::from(x).ln();
            (f64::from(ln(x)) - want).abs() / want.abs().max(1.0)
        });
        let r = worst(-10.0, 10.0, |x| (f64::from(erf(x)) - erf_f64(f64::from(x))).abs());
        let t = worst(-30.0, 30.0, |x| (f64::from(tanh(x)) - f64::from(x).tanh()).abs());
        println!("exp {e:.3e} ln {l:.3e} erf {r:.3e} tanh {t:.3e}");
        assert!(e <= 1.2e-7, "exp {e}");
        assert!(l <= 2.4e-7, "ln {l}");
        assert!(r <= 1.2e-7, "erf {r}");
        assert!(t <= 1.2e-7, "tanh {t}");
    }

    #[test]
    fn edges_are_as_documented() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-88.0), 0.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(1000.0), exp(88.0));
        assert_eq!(ln(1.0), 0.0);
        assert_eq!((erf(0.0), erf(9.0), erf(-9.0)), (0.0, 1.0, -1.0));
        assert_eq!((tanh(0.0), tanh(50.0), tanh(-50.0)), (0.0, 1.0, -1.0));
        for f in [exp, ln, erf, tanh] {
            assert!(f(f32::NAN).is_nan());
        }
    }
}
