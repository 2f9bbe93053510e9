//! Reads plain text as one document. Line ends become `\n`, as with Python's `open` and therefore
//! in nanoGPT.

use super::ReadSpec;
use super::packing::{Unpacked, broken};
use crate::error::Result;
use crate::segment::Sink;
use std::io::{ErrorKind, Read};

/// Pushes the text.
pub fn read(spec: &ReadSpec<'_>, sink: &mut dyn Sink) -> Result<()> {
    let mut file = Unpacked::open(spec.path, spec.packing)?;
    let mut buffer = vec![0; 256 << 10];
    let mut lines = LineEnds::default();
    loop {
        let count = match file.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            result => result.map_err(broken(spec, file.position()))?,
        };
        sink.position(file.position());
        if count == 0 {
            break;
        }
        let count = lines.translate(&mut buffer[..count]);
        sink.bytes(&buffer[..count])?;
    }
    if spec.ends_documents { sink.end_document() } else { Ok(()) }
}

/// Python's universal newlines: `\r\n` and a `\r` alone are `\n`.
#[derive(Default)]
struct LineEnds {
    /// Whether the last byte was a `\r`; a `\n` after it belongs to the same line end.
    after_return: bool,
}

impl LineEnds {
    /// Translates in place; returns how many bytes remain.
    fn translate(&mut self, bytes: &mut [u8]) -> usize {
        let mut kept = 0;
        for at in 0..bytes.len() {
            let byte = bytes[at];
            let belongs = byte == b'\n' && self.after_return;
            self.after_return = byte == b'\r';
            if !belongs {
                bytes[kept] = if byte == b'\r' { b'\n' } else { byte };
                kept += 1;
            }
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_as_in_python_however_the_text_arrives() {
        let text = b"a\r\nb\rc\n\r\r\nd\r";
        for cut in 0..=text.len() {
            let mut lines = LineEnds::default();
            let mut got = Vec::new();
            for part in [&text[..cut], &text[cut..]] {
                let mut part = part.to_vec();
                let count = lines.translate(&mut part);
                got.extend_from_slice(&part[..count]);
            }
            assert_eq!(got, b"a\nb\nc\n\n\nd\n", "cut at {cut}");
        }
    }
}
