//! A plain text: one document.

use super::ReadSpec;
use super::packing::{Unpacked, broken};
use crate::error::Result;
use crate::segment::Sink;
use std::io::{ErrorKind, Read};

/// Pushes the text.
pub fn read(spec: &ReadSpec<'_>, sink: &mut dyn Sink) -> Result<()> {
    let mut file = Unpacked::open(spec.path, spec.packing)?;
    let mut buffer = vec![0; 256 << 10];
    loop {
        let count = match file.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            result => result.map_err(broken(spec, file.position()))?,
        };
        sink.position(file.position());
        if count == 0 {
            break;
        }
        sink.bytes(&buffer[..count])?;
    }
    if spec.ends_documents { sink.end_document() } else { Ok(()) }
}
