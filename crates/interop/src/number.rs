//! Elements of the float formats that other programs' weights have: as f32, and rounded from f32.

use checkpoint::Dtype;
use plan::half;

/// Whether weights may have this type.
pub(crate) fn is_weight_type(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16)
}

/// An element of little-endian content. Zero for an index beyond the content.
pub(crate) fn at(dtype: Dtype, content: &[u8], index: usize) -> f32 {
    match dtype {
        Dtype::F16 => half::from_f16(half_at(content, index)),
        Dtype::BF16 => half::from_bf16(half_at(content, index)),
        _ => {
            let (words, _) = content.as_chunks::<4>();
            words.get(index).map_or(0.0, |&word| f32::from_le_bytes(word))
        }
    }
}

fn half_at(content: &[u8], index: usize) -> u16 {
    let (halves, _) = content.as_chunks::<2>();
    halves.get(index).map_or(0, |&half| u16::from_le_bytes(half))
}

/// Writes a number as an element of the content, rounded to nearest. False if it is beyond the
/// type's largest number.
pub(crate) fn put(dtype: Dtype, content: &mut [u8], index: usize, number: f32) -> bool {
    let half = match dtype {
        Dtype::F16 => half::to_f16(number),
        Dtype::BF16 => half::to_bf16(number),
        _ => {
            let (words, _) = content.as_chunks_mut::<4>();
            if let Some(word) = words.get_mut(index) {
                *word = number.to_le_bytes();
            }
            return true;
        }
    };
    let (halves, _) = content.as_chunks_mut::<2>();
    if let Some(place) = halves.get_mut(index) {
        *place = half.to_le_bytes();
    }
    let infinity = if dtype == Dtype::F16 { 0x7c00 } else { 0x7f80 };
    number.is_infinite() || half & 0x7fff != infinity
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_and_read_back() {
        for (dtype, bytes) in [(Dtype::F32, 4), (Dtype::F16, 2), (Dtype::BF16, 2)] {
            assert!(is_weight_type(dtype));
            let mut content = vec![0; 3 * bytes];
            for (index, number) in [0.5f32, -1.0, 2.0].into_iter().enumerate() {
                assert!(put(dtype, &mut content, index, number));
                assert_eq!(at(dtype, &content, index), number);
            }
            assert_eq!(at(dtype, &content, 3), 0.0);
        }
        assert!(!is_weight_type(Dtype::I64));
    }

    #[test]
    fn what_is_too_large_is_reported() {
        let mut content = [0; 4];
        for (dtype, number, fits) in [
            (Dtype::F16, 65_504.0, true),
            (Dtype::F16, 65_519.0, true),
            (Dtype::F16, 65_520.0, false),
            (Dtype::F16, -1e6, false),
            (Dtype::F16, f32::INFINITY, true),
            (Dtype::F16, f32::NAN, true),
            (Dtype::BF16, 1e38, true),
            (Dtype::BF16, f32::MAX, false),
            (Dtype::F32, f32::MAX, true),
        ] {
            assert_eq!(put(dtype, &mut content, 0, number), fits, "{dtype:?} {number}");
        }
    }
}
