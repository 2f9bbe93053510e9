//! Guesses the content of a file from its first bytes, if its name does not determine it.

use crate::error::{PrepareError, Result};
use crate::readers::{Packing, Unpacked};
use std::io::Read;
use std::path::Path;

/// How many uncompressed bytes to look at.
const START: u64 = 64 << 10;

/// What the first bytes look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// JSON objects, one after the other or in a list: documents.
    Records,
    /// One JSON object: settings, or a document.
    Object,
    /// Anything else.
    Other,
}

/// The shape of a file on disk.
///
/// # Errors
///
/// When it cannot be opened. Damaged content is not an error here; the reader will report it.
pub fn shape_of_file(path: &Path, packing: Packing) -> Result<Shape> {
    let mut start = Vec::new();
    let read = Unpacked::open(path, packing)?.take(START).read_to_end(&mut start);
    match read {
        Err(error) if packing == Packing::None => Err(PrepareError::io(path, "read it")(error)),
        _ => Ok(shape(&start)),
    }
}

/// Whether the first line of a table names one of these columns.
///
/// # Errors
///
/// When it cannot be opened.
pub fn has_column(path: &Path, packing: Packing, columns: &[String]) -> Result<bool> {
    let mut start = Vec::new();
    let _ = Unpacked::open(path, packing)?.take(START).read_to_end(&mut start);
    let text = String::from_utf8_lossy(&start);
    let first = text.trim_start_matches('\u{feff}').lines().next().unwrap_or_default();
    let mut names = first.split([',', ';', '\t']).map(|name| name.trim().trim_matches('"'));
    Ok(names.any(|name| columns.iter().any(|column| column == name)))
}

/// The shape of content that starts with these bytes.
fn shape(start: &[u8]) -> Shape {
    let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start();
    match start {
        [b'[', rest @ ..] if rest.trim_ascii_start().starts_with(b"{") => Shape::Records,
        [b'[', rest @ ..] if rest.trim_ascii_start().starts_with(b"\"") => Shape::Records,
        [b'{', rest @ ..] => match rest.trim_ascii_start().first() {
            Some(b'"' | b'}') | None => object(start),
            Some(_) => Shape::Other,
        },
        _ => Shape::Other,
    }
}

/// Decides whether the first object is followed by another one.
fn object(start: &[u8]) -> Shape {
    let (mut depth, mut in_string, mut escaped) = (0_u32, false, false);
    for (at, byte) in start.iter().enumerate() {
        if in_string {
            in_string = escaped || *byte != b'"';
            escaped = !escaped && *byte == b'\\';
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            let is_followed = start[at + 1..].trim_ascii_start().starts_with(b"{");
            return if is_followed { Shape::Records } else { Shape::Object };
        }
    }
    // The sample ends inside the object. A long document is on one line, settings are on many.
    if start.contains(&b'\n') { Shape::Object } else { Shape::Records }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_show_what_follows() {
        for (start, want) in [
            ("{\"text\": \"a {\\\" b\"}\n{\"text\": \"b\"}\n", Shape::Records),
            ("\u{feff} {\"a\": {}}{", Shape::Records),
            ("[\n {\"text\": \"a\"}]", Shape::Records),
            ("{\"text\": \"goes on and on", Shape::Records),
            ("{\n  \"name\": \"package\",\n  \"v\": {", Shape::Object),
            ("{\"text\": \"a\"}\n", Shape::Object),
            ("{}", Shape::Object),
            ("[1, 2]", Shape::Other),
            ("[x] to do\n{\"a\": 1}", Shape::Other),
            ("{hello} there", Shape::Other),
            ("Once upon a time {\"", Shape::Other),
            ("", Shape::Other),
        ] {
            assert_eq!(shape(start.as_bytes()), want, "{start}");
        }
    }
}
