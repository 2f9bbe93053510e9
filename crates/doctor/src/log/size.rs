//! Sizes as programs print them: `6.14 GiB`, `94.98 MiB`, `0 bytes`. A printed size has two
//! decimals, so it stands for an interval. To compare a computed size with it, print the computed
//! one.

use std::fmt;

/// A printed size.
#[derive(Clone, Debug, PartialEq)]
pub struct Size {
    /// Number and unit as in the log.
    printed: String,
    /// Its value, to the precision of two decimals.
    pub bytes: u64,
}

const UNITS: [(&str, u64); 9] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("bytes", 1),
    ("B", 1),
    ("GB", 1 << 30), // what PyTorch wrote before 1.5 and others write still
    ("MB", 1 << 20),
    ("KB", 1 << 10),
    ("TiB", 1 << 40),
];

impl Size {
    /// The size at the start of a text, and the rest of the text.
    pub fn read(text: &str) -> Option<(Size, &str)> {
        let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, rest) = text.split_at(number_end);
        let rest = rest.trim_start();
        let word_end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let (unit, after) = rest.split_at(word_end);
        let (name, scale) = UNITS.iter().find(|(name, _)| *name == unit)?;
        let value: f64 = number.parse().ok()?;
        // Some drivers print more than 2^64 bytes; the cast saturates, and the value stays
        // impossible.
        let bytes = value * *scale as f64;
        Some((Size { printed: format!("{number} {name}"), bytes: bytes as u64 }, after))
    }

    /// The size at the end of a text.
    pub fn read_before(text: &str) -> Option<Size> {
        let text = text.trim_end();
        let unit_at = text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len();
        let number = text[..unit_at].trim_end();
        let number_at = number.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.').len();
        Size::read(&text[number_at..]).filter(|(_, rest)| rest.is_empty()).map(|(size, _)| size)
    }

    /// Whether `bytes` would be printed like this.
    pub fn is(&self, bytes: u64) -> bool {
        print(bytes) == self.printed
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.printed)
    }
}

/// Prints a size like PyTorch.
pub fn print(bytes: u64) -> String {
    let of = |scale: u64| bytes as f64 / scale as f64;
    match bytes {
        b if b <= 1024 => format!("{b} bytes"),
        b if b <= 1 << 20 => format!("{:.2} KiB", of(1 << 10)),
        b if b <= 1 << 30 => format!("{:.2} MiB", of(1 << 20)),
        _ => format!("{:.2} GiB", of(1 << 30)),
    }
}

/// What PyTorch's allocator requests from the driver if a tensor of `bytes` finds no free block:
/// small tensors share 2 MiB, medium ones 20 MiB, and large ones are rounded up to a multiple of 2
/// MiB.
pub fn segment(bytes: u64) -> u64 {
    const MIB: u64 = 1 << 20;
    match bytes {
        b if b <= MIB => 2 * MIB,
        b if b < 10 * MIB => 20 * MIB,
        b => b.checked_next_multiple_of(2 * MIB).unwrap_or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_from_both_ends() {
        let (size, rest) = Size::read("6.14 GiB. GPU").unwrap();
        assert_eq!((size.to_string().as_str(), rest), ("6.14 GiB", ". GPU"));
        assert!(size.is(65536 * 50304 * 2));
        assert!(!size.is(65536 * 50304 * 4));
        assert_eq!(Size::read_before("(GPU 0; 7.93 GiB").unwrap().to_string(), "7.93 GiB");
        assert_eq!(Size::read_before("of which 0 bytes").unwrap().bytes, 0);
        assert_eq!(Size::read_before("é5.00 MiB").unwrap().bytes, 5 << 20);
        for nothing in ["", "GiB", "1.2.3 GiB", "12 apples", "17 "] {
            assert!(Size::read(nothing).is_none(), "{nothing}");
            assert!(Size::read_before(nothing).is_none(), "{nothing}");
        }
    }

    #[test]
    fn requests_are_rounded_as_the_allocator_does() {
        assert_eq!(print(segment(1280 * 5120 * 4)), "26.00 MiB");
        assert_eq!(print(segment(8192 * 50304 * 2)), "786.00 MiB");
        assert_eq!(print(segment(5 << 20)), "20.00 MiB");
        assert_eq!(print(segment(100)), "2.00 MiB");
    }
}
