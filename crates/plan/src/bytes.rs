//! Byte counts as a type. Arithmetic is checked: a size that does not fit is `None`, never a
//! wrapped number.

use std::fmt;

/// Every tensor starts at a multiple of this many bytes (a CUDA allocation's own alignment).
pub const ALIGNMENT: u64 = 256;

/// Every operand of a step, windows included, starts at a multiple of this many bytes: the widest
/// access of a kernel is eight f32.
pub const OPERAND_ALIGNMENT: u64 = 32;

/// The largest size accepted anywhere: what a Rust allocation or a file offset can be.
pub const MAX: u64 = i64::MAX as u64;

/// A number of bytes, or a byte offset into the arena; never above [`MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

impl Bytes {
    /// No bytes.
    pub const ZERO: Bytes = Bytes(0);

    /// `count` bytes, or `None` above [`MAX`].
    pub const fn new(count: u64) -> Option<Bytes> {
        if count <= MAX { Some(Bytes(count)) } else { None }
    }

    /// The plain number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The sum, or `None` above [`MAX`].
    pub fn plus(self, other: Bytes) -> Option<Bytes> {
        self.0.checked_add(other.0).and_then(Bytes::new)
    }

    /// The difference, or `None` below zero.
    pub fn minus(self, other: Bytes) -> Option<Bytes> {
        self.0.checked_sub(other.0).map(Bytes)
    }

    /// The next multiple of [`ALIGNMENT`], or `None` above [`MAX`].
    pub fn aligned(self) -> Option<Bytes> {
        self.0.checked_next_multiple_of(ALIGNMENT).and_then(Bytes::new)
    }

    /// Whether this is a multiple of [`ALIGNMENT`].
    pub const fn is_aligned(self) -> bool {
        self.0.is_multiple_of(ALIGNMENT)
    }

    /// The sum of all, or `None` above [`MAX`].
    pub fn sum(items: impl IntoIterator<Item = Bytes>) -> Option<Bytes> {
        items.into_iter().try_fold(Bytes::ZERO, Bytes::plus)
    }
}

impl fmt::Display for Bytes {
    /// Two decimals in the largest binary unit that keeps the number at 1 or more.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        for (unit, shift) in UNITS {
            if self.0 >= 1 << shift {
                return write!(f, "{:.2} {unit}", self.0 as f64 / (1u64 << shift) as f64);
            }
        }
        write!(f, "{} B", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_never_wrap() {
        let max = Bytes::new(MAX).unwrap();
        assert_eq!(Bytes::new(MAX + 1), None);
        assert_eq!(max.plus(Bytes(1)), None);
        assert_eq!(max.aligned(), None);
        assert_eq!(Bytes(1).minus(Bytes(2)), None);
        assert_eq!(Bytes::sum([max, Bytes(1)]), None);
    }

    #[test]
    fn display_picks_the_unit() {
        for (count, want) in [(0, "0 B"), (1023, "1023 B"), (1536, "1.50 KiB")] {
            assert_eq!(Bytes(count).to_string(), want);
        }
        assert_eq!(Bytes(65536 * 50304 * 2).to_string(), "6.14 GiB");
    }
}
