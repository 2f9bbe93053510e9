//! Limits that keep a hostile file from filling the memory or overflowing the stack.
//!
//! A pickle of a few bytes can describe a value of any size, because it may use one part many
//! times. So the limits apply to the finished value, not only to the file.

/// The largest input and value that are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of input.
    pub input_bytes: usize,
    /// Values in the result, counting each use of a shared part. Also limits intermediate values.
    pub values: usize,
    /// Bytes of all strings, bytes and big integers in the result, counting each use.
    pub text_bytes: usize,
    /// How deeply containers may be nested.
    pub depth: usize,
}

impl Limits {
    /// Memory that a value takes while it is built and copied out.
    pub const VALUE_BYTES: u64 = 130;
}

impl Default for Limits {
    /// Enough for the largest `meta.pkl` (65,536 ids, each twice in two dicts: 262,150 values) and
    /// some more. With [`Limits::VALUE_BYTES`] for each, a reader takes at most four times its
    /// input plus 64 MiB.
    fn default() -> Self {
        Self { input_bytes: 16 << 20, values: 300_000, text_bytes: 16 << 20, depth: 64 }
    }
}
