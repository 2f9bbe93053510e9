//! The 16-bit formats on the host, rounded to nearest with ties to even, as every device does it;
//! and conversion between numbers and bytes for all float formats.

use crate::tensor::Dtype;

/// The nearest bfloat16.
pub fn to_bf16(number: f32) -> u16 {
    let bits = number.to_bits();
    if number.is_nan() {
        return (bits >> 16) as u16 | 0x40; // stays a NaN whatever was cut off
    }
    let odd = bits >> 16 & 1;
    (bits.wrapping_add(0x7fff + odd) >> 16) as u16
}

/// A bfloat16 as f32; exact.
pub fn from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// An f32 weight in two halves: the nearest bfloat16, which kernels read, and the lower 16 bits,
/// which only the optimizer needs. Exactly between two bfloat16, the one farther from zero is
/// taken, not the even one as elsewhere: then the halves determine the number.
pub fn split(number: f32) -> [u16; 2] {
    let bits = number.to_bits();
    if number.is_nan() {
        return [(bits >> 16) as u16 | 0x40, 0];
    }
    [(bits.wrapping_add(0x8000) >> 16) as u16, bits as u16]
}

/// The f32 weight of two halves. The lower one counts from the nearest bfloat16, up or down.
pub fn joined([upper, lower]: [u16; 2]) -> f32 {
    let below = i32::from(lower as i16) as u32;
    f32::from_bits((u32::from(upper) << 16).wrapping_add(below))
}

/// The nearest IEEE half.
pub fn to_f16(number: f32) -> u16 {
    let bits = number.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 {
        return sign | 0x7e00;
    }
    // From 65520 on, numbers round to infinity.
    if magnitude >= 0x477f_f000 {
        return sign | 0x7c00;
    }
    // Below 2^-14 the spacing is 2^-24: adding 0.5 leaves the rounded count in the low bits.
    if magnitude < 0x3880_0000 {
        let shifted = f32::from_bits(magnitude) + 0.5;
        return sign | (shifted.to_bits() - 0x3f00_0000) as u16;
    }
    let odd = magnitude >> 13 & 1;
    let rounded = magnitude + 0xfff + odd - (112 << 23);
    sign | (rounded >> 13) as u16
}

/// An IEEE half as f32; exact.
pub fn from_f16(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let (exponent, fraction) = (u32::from(bits >> 10 & 31), u32::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => (fraction as f32 * f32::from_bits(103 << 23)).to_bits(), // 2^-24
        31 => 0x7f80_0000 | fraction << 13,
        _ => (exponent + 112) << 23 | fraction << 13,
    };
    f32::from_bits(sign | magnitude)
}

/// Appends weights as little-endian bytes: as [`encode`], but bfloat16 as [`split`] has it, and the
/// lower halves where those are asked for.
pub fn encode_weights(dtype: Dtype, weights: &[f32], bytes: &mut Vec<u8>) {
    let mut halves = |which: usize| {
        bytes.extend(weights.iter().flat_map(|&weight| split(weight)[which].to_le_bytes()));
    };
    match dtype {
        Dtype::Bf16 => halves(0),
        Dtype::U16 => halves(1),
        Dtype::F32 | Dtype::F16 | Dtype::I32 | Dtype::U32 => encode(dtype, weights, bytes),
    }
}

/// Appends numbers as little-endian bytes of a float format. Integer formats append nothing.
pub fn encode(dtype: Dtype, numbers: &[f32], bytes: &mut Vec<u8>) {
    match dtype {
        Dtype::F32 => bytes.extend(numbers.iter().flat_map(|x| x.to_le_bytes())),
        Dtype::Bf16 => bytes.extend(numbers.iter().flat_map(|&x| to_bf16(x).to_le_bytes())),
        Dtype::F16 => bytes.extend(numbers.iter().flat_map(|&x| to_f16(x).to_le_bytes())),
        Dtype::I32 | Dtype::U32 | Dtype::U16 => {}
    }
}

/// Replaces `numbers` by the content of a tensor of a float format.
pub fn decode(dtype: Dtype, bytes: &[u8], numbers: &mut Vec<f32>) {
    numbers.clear();
    let (halves, _) = bytes.as_chunks::<2>();
    let halves = halves.iter().map(|&half| u16::from_le_bytes(half));
    match dtype {
        Dtype::Bf16 => numbers.extend(halves.map(from_bf16)),
        Dtype::F16 => numbers.extend(halves.map(from_f16)),
        Dtype::F32 | Dtype::I32 | Dtype::U32 | Dtype::U16 => {
            let (words, _) = bytes.as_chunks::<4>();
            numbers.extend(words.iter().map(|&word| f32::from_le_bytes(word)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Narrow = fn(f32) -> u16;
    type Widen = fn(u16) -> f32;

    /// Every half rounds to itself, and the midpoint between two neighbours rounds to the even one.
    #[test]
    fn rounding_is_to_nearest_and_even() {
        for (narrow, widen) in [(to_bf16 as Narrow, from_bf16 as Widen), (to_f16, from_f16)] {
            for bits in 0..=u16::MAX {
                let number = widen(bits);
                if number.is_nan() {
                    assert!(widen(narrow(number)).is_nan());
                    continue;
                }
                assert_eq!(narrow(number), bits, "{number}");
                let next = widen(bits.wrapping_add(1));
                if !number.is_finite() || !next.is_finite() || next.signum() != number.signum() {
                    continue;
                }
                let middle = ((f64::from(number) + f64::from(next)) / 2.0) as f32;
                let even = if bits & 1 == 0 { bits } else { bits + 1 };
                assert_eq!(narrow(middle), even, "{middle}");
                let towards = f32::from_bits(middle.to_bits() + 1);
                assert_eq!(narrow(towards), bits + 1, "{towards}");
            }
        }
        assert_eq!((to_f16(65520.0), to_f16(65519.0)), (0x7c00, 0x7bff));
        assert_eq!((to_f16(1e30), to_f16(f32::NEG_INFINITY)), (0x7c00, 0xfc00));
        assert_eq!(to_bf16(f32::MAX), 0x7f80);
    }

    /// Two halves are the number again, and the upper one is nearest to it.
    #[test]
    fn halves_are_the_number() {
        for upper in 0..=u16::MAX {
            for lower in [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let number = f32::from_bits(u32::from(upper) << 16 | lower);
                let halves = split(number);
                if number.is_nan() {
                    assert!(joined(halves).is_nan() && from_bf16(halves[0]).is_nan());
                    continue;
                }
                assert_eq!(joined(halves).to_bits(), number.to_bits());
                match lower {
                    0x8000 => assert_eq!(halves[0], upper + 1, "{number}: away from zero"),
                    _ => assert_eq!(halves[0], to_bf16(number), "{number}"),
                }
            }
        }
        let mut bytes = Vec::new();
        encode_weights(Dtype::U16, &[f32::from_bits(0x3f81_2345)], &mut bytes);
        encode_weights(Dtype::Bf16, &[f32::from_bits(0x3f81_8000)], &mut bytes);
        assert_eq!(bytes, [0x45, 0x23, 0x82, 0x3f]);
    }

    #[test]
    fn bytes_come_back() {
        for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
            let (mut bytes, mut back) = (Vec::new(), Vec::new());
            encode(dtype, &[0.5, -3.0, 1024.0], &mut bytes);
            assert_eq!(bytes.len() as u64, 3 * dtype.size());
            decode(dtype, &bytes, &mut back);
            assert_eq!(back, [0.5, -3.0, 1024.0]);
        }
    }
}
