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

/// Units as people write them, in lower case, with the name that PyTorch prints.
const UNITS: [(&str, &str, u64); 21] = [
    ("gib", "GiB", 1 << 30),
    ("mib", "MiB", 1 << 20),
    ("kib", "KiB", 1 << 10),
    ("tib", "TiB", 1 << 40),
    ("bytes", "bytes", 1),
    ("byte", "bytes", 1),
    ("b", "bytes", 1),
    ("gb", "GB", 1 << 30), // what MPS and people write for GiB
    ("mb", "MB", 1 << 20),
    ("kb", "KB", 1 << 10),
    ("tb", "TB", 1 << 40),
    ("gio", "GiB", 1 << 30),
    ("mio", "MiB", 1 << 20),
    ("kio", "KiB", 1 << 10),
    ("go", "GB", 1 << 30),
    ("mo", "MB", 1 << 20),
    ("ko", "KB", 1 << 10),
    ("octets", "bytes", 1),
    ("g", "GB", 1 << 30),
    ("m", "MB", 1 << 20),
    ("k", "KB", 1 << 10),
];

impl Size {
    /// The size at the start of a text, and the rest of the text.
    pub fn read(text: &str) -> Option<(Size, &str)> {
        let digit = |c: char| c.is_ascii_digit() || c == '.' || c == ',';
        let number_end = text.find(|c: char| !digit(c))?;
        let (number, rest) = text.split_at(number_end);
        let rest = rest.trim_start();
        let word_end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let (unit, after) = rest.split_at(word_end);
        let unit = unit.to_ascii_lowercase();
        let (_, name, scale) = UNITS.iter().find(|(word, _, _)| *word == unit)?;
        let number = plain_number(number)?;
        let value: f64 = number.parse().ok()?;
        // Some drivers print more than 2^64 bytes; the cast saturates, and the value stays
        // impossible.
        let bytes = value * *scale as f64;
        // Some programs print all digits.
        if *scale == 1 && bytes > 1024.0 {
            return Some((Size::of(bytes as u64), after));
        }
        Some((Size { printed: format!("{number} {name}"), bytes: bytes as u64 }, after))
    }

    /// A size that was computed from those of a message.
    pub fn of(bytes: u64) -> Size {
        Size { printed: print(bytes), bytes }
    }

    /// Whether it is printed to two decimals or to the byte, as programs do. What people say
    /// (`12GB`) is not.
    pub fn is_exact(&self) -> bool {
        let (number, unit) = self.printed.split_once(' ').unwrap_or(("", ""));
        let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        unit == "bytes" || decimals == 2
    }

    /// The size at the end of a text.
    pub fn read_before(text: &str) -> Option<Size> {
        let text = text.trim_end();
        let unit_at = text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len();
        let number = text[..unit_at].trim_end();
        let start = number.trim_end_matches(|c: char| c.is_ascii_digit() || ".,".contains(c)).len();
        let digits = number[start..].trim_start_matches(['.', ',']);
        let number_at = number.len() - digits.len();
        Size::read(&text[number_at..]).filter(|(_, rest)| rest.is_empty()).map(|(size, _)| size)
    }

    /// Whether `bytes` would be printed like this.
    pub fn is(&self, bytes: u64) -> bool {
        // Apple's messages and people write GB for GiB.
        print(bytes) == self.printed.replace("GB", "GiB").replace("MB", "MiB")
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.printed)
    }
}

/// A number with a decimal point: `6,14` has a decimal comma, `16,384` separates thousands.
fn plain_number(text: &str) -> Option<String> {
    let (Some(comma), point) = (text.rfind(','), text.rfind('.')) else {
        return Some(text.to_string());
    };
    let mut groups = text.split(',').skip(1);
    let thousands = groups.all(|group| group.len() == 3) && !text.starts_with(['0', ',']);
    match point {
        Some(point) if point > comma => Some(text.replace(',', "")),
        Some(_) => Some(text.replace('.', "").replace(',', ".")),
        None if thousands => Some(text.replace(',', "")),
        None => Some(text.replacen(',', ".", 1)).filter(|number| !number.contains(',')),
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
        for (text, want) in [
            ("6,14 GiB ", "6.14 GiB"),
            ("16,384 MiB ", "16384 MiB"),
            ("1,234.5 MiB ", "1234.5 MiB"),
            ("12GB VRAM", "12 GB"),
            ("12 Go de", "12 GB"),
            ("0,125 GiB ", "0.125 GiB"),
            ("24G显存", "24 GB"),
        ] {
            assert_eq!(Size::read(text).unwrap().0.to_string(), want, "{text}");
        }
        assert_eq!(Size::read_before("free: 2,68 GiB").unwrap().to_string(), "2.68 GiB");
        assert_eq!(Size::read_before("left,2 GiB").unwrap().to_string(), "2 GiB");
        assert!(Size::read("6.14 GiB").unwrap().0.is_exact());
        assert!(!Size::read("12GB").unwrap().0.is_exact());
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
