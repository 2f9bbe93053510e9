//! Thrift's compact protocol, as far as parquet's headers need it. Reads a stream and keeps
//! nothing.

use std::io::{self, BufRead, Read};

/// Deepest allowed nesting of skipped structures.
const DEPTH: u32 = 16;

/// A structure that is being read.
pub struct Thrift<R> {
    /// The input, limited to the bytes that it may have.
    pub input: io::Take<R>,
}

/// Kinds of values in Thrift's compact protocol.
pub mod kind {
    #![allow(missing_docs, reason = "the names are the protocol's")]
    pub const TRUE: u8 = 1;
    pub const FALSE: u8 = 2;
    pub const BYTE: u8 = 3;
    pub const I16: u8 = 4;
    pub const I64: u8 = 6;
    pub const DOUBLE: u8 = 7;
    pub const BINARY: u8 = 8;
    pub const LIST: u8 = 9;
    pub const SET: u8 = 10;
    pub const STRUCT: u8 = 12;
}

fn odd(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

impl<R: BufRead> Thrift<R> {
    /// The next field of a structure and its kind; `None` at its end.
    pub fn field(&mut self, last: &mut i64) -> io::Result<Option<(i64, u8)>> {
        let head = self.byte()?;
        if head == 0 {
            return Ok(None);
        }
        *last = match head >> 4 {
            0 => self.number()?,
            step => last.saturating_add(i64::from(step)),
        };
        Ok(Some((*last, head & 0xf)))
    }

    /// Skips a value.
    pub fn skip(&mut self, kind: u8) -> io::Result<()> {
        self.skip_to(kind, DEPTH)
    }

    fn skip_to(&mut self, kind: u8, depth: u32) -> io::Result<()> {
        let depth = depth.checked_sub(1).ok_or_else(|| odd("it nests too deeply"))?;
        match kind {
            kind::TRUE | kind::FALSE => Ok(()),
            kind::BYTE => self.byte().map(drop),
            kind::I16..=kind::I64 => self.varint().map(drop),
            kind::DOUBLE => self.pass(8),
            kind::BINARY => {
                let bytes = self.varint()?;
                self.pass(bytes)
            }
            kind::LIST | kind::SET => {
                let (count, element) = self.list()?;
                for _ in 0..count {
                    match element {
                        kind::TRUE | kind::FALSE => self.byte().map(drop)?,
                        element => self.skip_to(element, depth)?,
                    }
                }
                Ok(())
            }
            kind::STRUCT => {
                let mut last = 0;
                while let Some((_, kind)) = self.field(&mut last)? {
                    self.skip_to(kind, depth)?;
                }
                Ok(())
            }
            _ => Err(odd("it has a field of an unknown kind")),
        }
    }

    /// The length of a list and the kind of its elements.
    pub fn list(&mut self) -> io::Result<(u64, u8)> {
        let head = self.byte()?;
        let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
        Ok((count, head & 0xf))
    }

    fn byte(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        self.input.read_exact(&mut byte)?;
        Ok(byte[0])
    }

    fn pass(&mut self, bytes: u64) -> io::Result<()> {
        match io::copy(&mut self.input.by_ref().take(bytes), &mut io::sink())? {
            passed if passed == bytes => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn varint(&mut self) -> io::Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(odd("it has a number of more than 64 bits"))
    }

    /// A signed number.
    pub fn number(&mut self) -> io::Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// A size: a non-negative 32-bit number.
    pub fn size(&mut self) -> io::Result<u64> {
        let number = self.number()?;
        let size = i32::try_from(number).ok().and_then(|size| u64::try_from(size).ok());
        size.ok_or_else(|| odd(&format!("it has a size of {number}")))
    }
}
