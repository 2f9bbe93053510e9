//! The host's side of a tensor: little-endian bytes to and from numbers, into buffers that are
//! reused.

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
