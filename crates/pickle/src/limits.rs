//! How much an input may ask for: what keeps a hostile file from filling memory or the stack.
//!
//! A pickle of a few bytes can describe a value of any size, because it may use one part many
//! times over; so the finished value is counted, not the file.

/// The largest input and value that are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of input.
    pub input_bytes: usize,
    /// Values in the result, with each use of a shared part counted; also values in the making.
    pub values: usize,
    /// Bytes of all strings, bytes and big integers in the result, each use counted.
    pub text_bytes: usize,
    /// Containers inside containers.
    pub depth: usize,
}

impl Default for Limits {
    /// What the largest `meta.pkl` needs (65,536 ids, each twice in two dicts: 262,150 values) and
    /// some more. A value takes up to 130 bytes while it is made and copied out, so that a reader
    /// takes at most four times its input and 64 MiB.
    fn default() -> Self {
        Self { input_bytes: 16 << 20, values: 300_000, text_bytes: 16 << 20, depth: 64 }
    }
}
