//! The host's side of a tensor: little-endian bytes to and from numbers, into buffers that are
//! reused.

use crate::error::TrainError;

/// A buffer of zeros, or the word that there is no memory for it.
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

/// Replaces `floats` by the content of a tensor.
pub fn words_to_floats(bytes: &[u8], floats: &mut Vec<f32>) {
    let (words, _) = bytes.as_chunks::<4>();
    floats.clear();
    floats.extend(words.iter().map(|&word| f32::from_le_bytes(word)));
}

/// Resident bytes of this process, where the system says so.
pub fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    pages.checked_mul(4096)
}
