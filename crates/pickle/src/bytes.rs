//! Reads operands from the input: numbers, counted bytes and lines, each checked against the end.

use crate::error::PickleError;

/// The input and the machine's position in it.
pub(crate) struct Input<'a> {
    bytes: &'a [u8],
    /// The next byte to read.
    at: usize,
    /// Where the current instruction starts, for messages.
    pub(crate) opcode_at: usize,
}

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, opcode_at: 0 }
    }

    /// The opcode byte of the next instruction.
    pub(crate) fn opcode(&mut self) -> Result<u8, PickleError> {
        self.opcode_at = self.at;
        self.u8()
    }

    pub(crate) fn u8(&mut self) -> Result<u8, PickleError> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, PickleError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, PickleError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, PickleError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, PickleError> {
        self.array().map(i32::from_le_bytes)
    }

    /// Big-endian, unlike the integers.
    pub(crate) fn f64(&mut self) -> Result<f64, PickleError> {
        self.array().map(f64::from_be_bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PickleError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let (head, _) = rest.split_first_chunk::<N>().ok_or(self.truncated())?;
        self.at += N;
        Ok(*head)
    }

    /// The next `count` bytes. Nothing is allocated before they are known to exist.
    pub(crate) fn counted(&mut self, count: u64) -> Result<&'a [u8], PickleError> {
        let count = usize::try_from(count).map_err(|_| self.truncated())?;
        let end = self.at.checked_add(count).ok_or(self.truncated())?;
        let found = self.bytes.get(self.at..end).ok_or(self.truncated())?;
        self.at = end;
        Ok(found)
    }

    /// The text up to the next line feed, without it.
    pub(crate) fn line(&mut self) -> Result<&'a [u8], PickleError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let length = rest.iter().position(|&b| b == b'\n').ok_or(self.truncated())?;
        self.at += length + 1;
        Ok(&rest[..length])
    }

    fn truncated(&self) -> PickleError {
        PickleError::Truncated { offset: self.opcode_at, length: self.bytes.len() }
    }
}
