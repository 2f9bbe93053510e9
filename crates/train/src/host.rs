//! Host-side helpers: buffers, conversion between numbers and little-endian bytes, a check for
//! finite values.

use crate::error::TrainError;
use checkpoint::Dtype;
use std::fs::File;
use std::io::Read;

/// Allocates a buffer of zeros.
pub fn room<T: Clone + Default>(count: u64, what: &'static str) -> Result<Vec<T>, TrainError> {
    let mut buffer = Vec::new();
    let fits = usize::try_from(count).is_ok_and(|count| buffer.try_reserve_exact(count).is_ok());
    if !fits {
        let bytes = u128::from(count) * size_of::<T>() as u128;
        return Err(TrainError::HostMemory { what, bytes });
    }
    buffer.resize(count as usize, T::default());
    Ok(buffer)
}

/// Appends ids as bytes.
pub fn ids_to_bytes(ids: &[i32], bytes: &mut Vec<u8>) {
    bytes.extend(ids.iter().flat_map(|id| id.to_le_bytes()));
}

/// Replaces the content of `floats` by a tensor's bytes.
pub fn words_to_floats(bytes: &[u8], floats: &mut Vec<f32>) {
    let (words, _) = bytes.as_chunks::<4>();
    floats.clear();
    floats.extend(words.iter().map(|&word| f32::from_le_bytes(word)));
}

/// Whether all numbers of a stored tensor are finite and at most `largest` in magnitude. Integers
/// always pass.
pub fn are_within(largest: f32, dtype: Dtype, content: &[u8]) -> bool {
    // Without the sign, the bits of floats have the order of their values, then infinity and NaN.
    // A fold instead of `all`: without an early exit the compiler vectorises it.
    let words = |most: u32| {
        let fits = |word: &[u8; 4]| u32::from_le_bytes(*word) & !(1 << 31) <= most;
        content.as_chunks::<4>().0.iter().fold(true, |all, word| all & fits(word))
    };
    let halves = |most: u16| {
        let fits = |half: &[u8; 2]| u16::from_le_bytes(*half) & !(1 << 15) <= most;
        content.as_chunks::<2>().0.iter().fold(true, |all, half| all & fits(half))
    };
    match dtype {
        Dtype::F32 => words(largest.to_bits()),
        Dtype::BF16 => halves((largest.to_bits() >> 16) as u16),
        Dtype::F16 => halves(plan::half::to_f16(largest.min(65504.0))),
        Dtype::I32 | Dtype::U32 | Dtype::U8 | Dtype::I64 => true,
    }
}

/// Resident bytes of this process, if the system reports them. Allocates nothing.
pub fn resident_bytes() -> Option<u64> {
    let mut statm = [0; 256];
    let read = File::open("/proc/self/statm").ok()?.read(&mut statm).ok()?;
    let statm = str::from_utf8(&statm[..read]).ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    pages.checked_mul(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_that_is_not_finite_or_too_large_is_found() {
        let floats = |values: &[f32]| -> Vec<u8> {
            values.iter().flat_map(|value| value.to_le_bytes()).collect()
        };
        let good = floats(&[0.0, -1.5, f32::MAX, f32::MIN, f32::MIN_POSITIVE / 2.0]);
        assert!(are_within(f32::MAX, Dtype::F32, &good));
        assert!(!are_within(1e19, Dtype::F32, &good));
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut values = vec![1.0; 100];
            values[99] = bad;
            assert!(!are_within(f32::MAX, Dtype::F32, &floats(&values)), "{bad}");
            assert!(are_within(f32::MAX, Dtype::U32, &floats(&values)), "{bad}");
        }
        let halves = |values: [u16; 3]| values.map(u16::to_le_bytes).concat();
        assert!(are_within(f32::MAX, Dtype::BF16, &halves([0x7f7f, 0x8000, 0x3f80])));
        assert!(!are_within(f32::MAX, Dtype::BF16, &halves([0, 0, 0xff80])));
        assert!(are_within(f32::MAX, Dtype::F16, &halves([0x7bff, 0x8000, 0x03ff])));
        assert!(!are_within(f32::MAX, Dtype::F16, &halves([0, 0x7e00, 0])));
    }
}
