//! A budget of memory as a user writes it: 'auto', '11.69GiB', '8G', '8GB', '80%' or plain bytes.

use crate::value::Value;
use crate::words::Values;
use plan::Bytes;
use std::fmt;

/// How much memory may be used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Memory {
    /// The memory that is free when the run starts.
    Auto,
    /// A fixed size.
    Bytes(Bytes),
    /// A share of all memory, in percent: above 0, at most 100.
    Percent(f64),
}

/// Decimal and binary units, longer spellings first. A single letter is binary, as in `nvidia-smi`,
/// `ulimit` and PyTorch.
const UNITS: [(&str, u64); 13] = [
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("b", 1),
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
    ("t", 1 << 40),
];

impl Memory {
    const AUTO: &str = "auto";

    /// Which values the keys `vram` and `ram` accept.
    pub const VALUES: Values = Values::WordsOr(
        &[Memory::AUTO],
        ", a size such as '11.69GiB' or '8GB', or a share such as '80%'",
    );

    /// Parses a value; none if it is not a budget. A number without a unit counts bytes; below 1024
    /// it is taken for a mistake ([`Memory::lacks_unit`]).
    pub fn parse(value: &Value) -> Option<Memory> {
        if Memory::lacks_unit(value) {
            return None;
        }
        match value {
            Value::Int(count) => {
                let count = u64::try_from(*count).ok().filter(|&count| count > 0)?;
                Bytes::new(count).map(Memory::Bytes)
            }
            Value::Str(text) => from_text(&text.trim().to_ascii_lowercase()),
            Value::Float(_) | Value::Bool(_) => None,
        }
    }

    /// Whether a value is a number too small to mean bytes, such as 8 or '11.69'.
    pub fn lacks_unit(value: &Value) -> bool {
        let count = match value {
            Value::Int(count) => Some(*count as f64),
            Value::Str(text) => number(text),
            Value::Float(_) | Value::Bool(_) => None,
        };
        count.is_some_and(|count| count > 0.0 && count < SMALLEST)
    }
}

/// Below this many bytes, the user must have forgotten the unit.
const SMALLEST: f64 = 1024.0;

fn from_text(text: &str) -> Option<Memory> {
    if text == Memory::AUTO {
        return Some(Memory::Auto);
    }
    if let Some(part) = text.strip_suffix('%') {
        let percent = number(part)?;
        return (percent > 0.0 && percent <= 100.0).then_some(Memory::Percent(percent));
    }
    for (unit, size) in UNITS {
        if let Some(count) = text.strip_suffix(unit) {
            return bytes((number(count)? * size as f64).floor());
        }
    }
    bytes(number(text)?)
}

/// Digits with at most one point; Rust's parser would also accept `inf`, `1e5` and signs.
fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if plain { text.parse().ok() } else { None }
}

/// A whole number of bytes within the range of [`Bytes`], at least 1.
fn bytes(count: f64) -> Option<Memory> {
    let possible = count >= 1.0 && count < plan::bytes::MAX as f64 && count.fract() == 0.0;
    if possible { Bytes::new(count as u64).map(Memory::Bytes) } else { None }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Memory::Auto => f.write_str(Memory::AUTO),
            Memory::Bytes(bytes) => write!(f, "{bytes}"),
            Memory::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(count: u64) -> Option<Memory> {
        Bytes::new(count).map(Memory::Bytes)
    }

    #[test]
    fn every_form_of_a_budget() {
        for (text, want) in [
            ("auto", Some(Memory::Auto)),
            ("11.69GiB", size((11.69 * 1024.0 * 1024.0 * 1024.0) as u64)),
            ("8GB", size(8_000_000_000)),
            (" 512 mib ", size(512 << 20)),
            ("1.5TiB", size(3 << 39)),
            ("100b", size(100)),
            ("12345", size(12345)),
            ("80%", Some(Memory::Percent(80.0))),
            ("12.5 %", Some(Memory::Percent(12.5))),
            ("0%", None),
            ("101%", None),
            ("0", None),
            ("-1GiB", None),
            ("1.5", None),
            ("1e9", None),
            ("8G", size(8 << 30)),
            ("512m", size(512 << 20)),
            ("8", None),
            ("11.69", None),
            ("1023", None),
            ("1024", size(1024)),
            ("GiB", None),
            ("", None),
            ("inf", None),
            ("1.2.3GiB", None),
            ("99999999999TiB", None),
        ] {
            assert_eq!(Memory::parse(&Value::Str(text.into())), want, "{text}");
        }
        assert_eq!(Memory::parse(&Value::Int(1 << 33)), size(1 << 33));
        assert_eq!(Memory::parse(&Value::Int(-1)), None);
        assert_eq!(Memory::parse(&Value::Float(1.0)), None);
    }
}
