//! Parses the text forms of protocol 0 and integers of any width. Pure functions from bytes to
//! values.

use crate::value::Value;

/// Most characters of a name from the file that a message quotes.
const SHOWN_CHARS: usize = 80;

/// A line of the file as a message quotes it: printable and shortened.
pub(crate) fn shown(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    text.chars().filter(|c| !c.is_control()).take(SHOWN_CHARS).collect()
}

/// INT: protocol 0 writes booleans with two digits.
pub(crate) fn integer(line: &str) -> Option<Value> {
    match line {
        "00" => Some(Value::Bool(false)),
        "01" => Some(Value::Bool(true)),
        _ => line.parse().ok().map(Value::Int),
    }
}

/// LONG: an integer with Python 2's suffix. Integers wider than 64 bits are refused in this form.
pub(crate) fn long(line: &str) -> Option<Value> {
    line.strip_suffix('L').unwrap_or(line).parse().ok().map(Value::Int)
}

/// FLOAT.
pub(crate) fn float(line: &str) -> Option<Value> {
    line.parse().ok().map(Value::Float)
}

/// The integer of little-endian two's complement bytes. No bytes mean 0.
pub(crate) fn twos_complement(bytes: &[u8]) -> Value {
    let shortest = shortest(bytes);
    if shortest.len() > 8 {
        return Value::BigInt(shortest.to_vec());
    }
    let is_negative = shortest.last().is_some_and(|b| b >> 7 == 1);
    let mut all = [if is_negative { 0xff } else { 0 }; 8];
    all[..shortest.len()].copy_from_slice(shortest);
    Value::Int(i64::from_le_bytes(all))
}

/// Drops the high bytes that only repeat the sign.
fn shortest(mut bytes: &[u8]) -> &[u8] {
    while let [rest @ .., before, last] = bytes {
        let repeats = (*last == 0 && before >> 7 == 0) || (*last == 0xff && before >> 7 == 1);
        if !repeats {
            break;
        }
        bytes = &bytes[..rest.len() + 1];
    }
    if bytes == [0] { &[] } else { bytes }
}

/// A Python 2 `str` becomes text if it is UTF-8, as nearly all are, otherwise bytes.
pub(crate) fn python2_string(bytes: Vec<u8>) -> Value {
    match String::from_utf8(bytes) {
        Ok(text) => Value::Str(text),
        Err(error) => Value::Bytes(error.into_bytes()),
    }
}

/// A string as Python 2's `repr` writes it: quotes and backslash escapes.
pub(crate) fn unquote(line: &[u8]) -> Option<Vec<u8>> {
    let line = line.trim_ascii();
    let [first @ (b'\'' | b'"'), inner @ .., last] = line else {
        return None;
    };
    if first != last {
        return None;
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut rest = inner.iter().copied();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        out.push(match rest.next()? {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'x' => (hex(rest.next()?)? << 4 | hex(rest.next()?)?) as u8,
            byte @ (b'\\' | b'\'' | b'"') => byte,
            _ => return None,
        });
    }
    Some(out)
}

/// Latin-1 with `\uXXXX` and `\UXXXXXXXX`, as protocol 0 writes text.
pub(crate) fn raw_unicode_escape(line: &[u8]) -> Option<String> {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let [byte, after @ ..] = rest {
        let digits = match (byte, after.first()) {
            (b'\\', Some(b'u')) => 4,
            (b'\\', Some(b'U')) => 8,
            _ => 0,
        };
        if digits == 0 {
            out.push(char::from(*byte));
            rest = after;
            continue;
        }
        let code = after.get(1..=digits)?;
        let code = code.iter().try_fold(0, |sum: u32, &b| Some(sum << 4 | hex(b)?))?;
        out.push(char::from_u32(code)?);
        rest = &after[1 + digits..];
    }
    Some(out)
}

fn hex(byte: u8) -> Option<u32> {
    char::from(byte).to_digit(16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_any_width() {
        let cases: [(&[u8], Value); 9] = [
            (&[], Value::Int(0)),
            (&[0], Value::Int(0)),
            (&[0xff], Value::Int(-1)),
            (&[0xff, 0], Value::Int(255)),
            (&[0, 0xff], Value::Int(-256)),
            (&[0, 0, 0, 0, 0, 0, 0, 0x80], Value::Int(i64::MIN)),
            (&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0], Value::Int(1)),
            (&[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], Value::Int(-2)),
            (&[0, 0, 0, 0, 0, 0, 0, 0x80, 0], Value::BigInt(vec![0, 0, 0, 0, 0, 0, 0, 0x80, 0])),
        ];
        for (bytes, want) in cases {
            assert_eq!(twos_complement(bytes), want, "{bytes:?}");
        }
    }

    #[test]
    fn quoted_strings() {
        let cases: [(&[u8], Option<&[u8]>); 8] = [
            (b"'abc'", Some(b"abc")),
            (b"\"it's\"", Some(b"it's")),
            (br"'a\n\x41\\\''", Some(b"a\nA\\'")),
            (b"''", Some(b"")),
            (b"'", None),
            (b"'abc\"", None),
            (br"'\x4'", None),
            (br"'\q'", None),
        ];
        for (line, want) in cases {
            assert_eq!(unquote(line).as_deref(), want, "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn escaped_text() {
        let cases: [(&[u8], Option<&str>); 6] = [
            (b"abc", Some("abc")),
            (b"\xe9", Some("é")),
            (br"\u4e2d\U0001f600\x", Some("中😀\\x")),
            (br"\u12", None),
            (br"\ud800", None),
            (br"\U00110000", None),
        ];
        for (line, want) in cases {
            assert_eq!(raw_unicode_escape(line).as_deref(), want);
        }
    }
}
