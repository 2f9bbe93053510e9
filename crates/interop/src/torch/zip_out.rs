//! A zip file as PyTorch writes it: entries stored one after the other, the content of each aligned
//! to 64 bytes, and a directory that holds more than 4 GiB.

use checkpoint::{NewFile, SaveError, Written};
use std::path::Path;

/// Alignment of every entry's content, so that it can be mapped into memory.
const ALIGNMENT: u64 = 64;

/// The folder in which all entries are.
const FOLDER: &str = "archive";

/// Names are UTF-8.
const FLAGS: u16 = 0x800;
/// The version of the format that has entries beyond 4 GiB.
const VERSION: u16 = 45;
/// 1 January 1980, the first date that the format knows: the same run gives the same file.
const DATE: u16 = 0x21;
/// In a field of 32 bits: the number is in the extra field.
const IN_EXTRA: u32 = u32::MAX;
/// The extra field of padding, as PyTorch names it.
const PADDING: [u8; 2] = *b"FB";

const LOCAL_BYTES: u64 = 30;
const END_BYTES: u64 = 56 + 20 + 22;
/// An extra field with two numbers of 64 bits.
const WIDE_LOCAL: u64 = 20;

/// An entry: its place, size and checksum.
struct Entry {
    name: String,
    header: u64,
    bytes: u64,
    crc: u32,
}

impl Entry {
    fn is_large(&self) -> bool {
        self.bytes >= IN_EXTRA.into()
    }

    /// The header before the content. It ends where the content is aligned.
    fn local(&self) -> Vec<u8> {
        let size = if self.is_large() { IN_EXTRA } else { self.bytes as u32 };
        let extra = content_start(self.header, &self.name, self.bytes)
            - self.header
            - LOCAL_BYTES
            - self.name.len() as u64;
        let mut out = b"PK\x03\x04".to_vec();
        for field in [VERSION, FLAGS, 0, 0, DATE] {
            out.extend(field.to_le_bytes());
        }
        for field in [self.crc, size, size] {
            out.extend(field.to_le_bytes());
        }
        for field in [self.name.len() as u16, extra as u16] {
            out.extend(field.to_le_bytes());
        }
        out.extend(self.name.as_bytes());
        let mut padding = extra;
        if self.is_large() {
            out.extend([1, 0, 16, 0]);
            out.extend([self.bytes, self.bytes].map(u64::to_le_bytes).concat());
            padding -= WIDE_LOCAL;
        }
        out.extend(PADDING);
        out.extend((padding as u16 - 4).to_le_bytes());
        out.resize(out.len() + padding as usize - 4, b'Z');
        out
    }

    /// Its row of the directory.
    fn listed(&self) -> Vec<u8> {
        let is_far = self.header >= IN_EXTRA.into();
        let size = if self.is_large() { IN_EXTRA } else { self.bytes as u32 };
        let header = if is_far { IN_EXTRA } else { self.header as u32 };
        let mut wide = Vec::new();
        if self.is_large() {
            wide.extend([self.bytes, self.bytes]);
        }
        wide.extend(is_far.then_some(self.header));
        let extra = if wide.is_empty() { 0 } else { 4 + 8 * wide.len() };
        let mut out = b"PK\x01\x02".to_vec();
        for field in [VERSION, VERSION, FLAGS, 0, 0, DATE] {
            out.extend(field.to_le_bytes());
        }
        for field in [self.crc, size, size] {
            out.extend(field.to_le_bytes());
        }
        for field in [self.name.len() as u16, extra as u16, 0, 0, 0] {
            out.extend(field.to_le_bytes());
        }
        out.extend([0; 4]);
        out.extend(header.to_le_bytes());
        out.extend(self.name.as_bytes());
        if !wide.is_empty() {
            out.extend([1, 0]);
            out.extend((8 * wide.len() as u16).to_le_bytes());
            out.extend(wide.into_iter().flat_map(u64::to_le_bytes));
        }
        out
    }
}

/// Where an entry's content starts if its header starts at `header`.
fn content_start(header: u64, name: &str, bytes: u64) -> u64 {
    let wide = if bytes >= IN_EXTRA.into() { WIDE_LOCAL } else { 0 };
    (header + LOCAL_BYTES + name.len() as u64 + wide + 4).next_multiple_of(ALIGNMENT)
}

fn full_name(name: &str) -> String {
    format!("{FOLDER}/{name}")
}

/// Size of a file with these entries.
pub fn file_bytes<'a>(entries: impl Iterator<Item = (&'a str, u64)>) -> u64 {
    let mut at = 0;
    let mut directory = END_BYTES;
    for (name, bytes) in entries {
        let entry = Entry { name: full_name(name), header: at, bytes, crc: 0 };
        directory += entry.listed().len() as u64;
        at = content_start(at, &entry.name, bytes) + bytes;
    }
    at + directory
}

/// A zip file that is being written.
pub struct ZipFile {
    file: NewFile,
    entries: Vec<Entry>,
    /// Where the next entry starts.
    at: u64,
}

impl ZipFile {
    /// Begins a file of at most `needed` bytes under a temporary name.
    pub fn create(path: &Path, needed: u64) -> Result<ZipFile, SaveError> {
        Ok(ZipFile { file: NewFile::create(path, needed)?, entries: Vec::new(), at: 0 })
    }

    /// Adds an entry.
    pub fn add(&mut self, name: &str, content: &[u8]) -> Result<(), SaveError> {
        let (name, bytes) = (full_name(name), content.len() as u64);
        let entry = Entry { name, header: self.at, bytes, crc: crc32fast::hash(content) };
        self.file.append(&entry.local())?;
        for piece in content.chunks(1 << 20) {
            self.file.append(piece)?;
        }
        self.at = content_start(self.at, &entry.name, bytes) + bytes;
        self.entries.push(entry);
        Ok(())
    }

    /// Writes the directory. The file is whole, but still under its temporary name.
    pub fn finish(mut self) -> Result<Written, SaveError> {
        let mut directory: Vec<u8> = self.entries.iter().flat_map(Entry::listed).collect();
        let (count, bytes, start) = (self.entries.len() as u64, directory.len() as u64, self.at);
        directory.extend(b"PK\x06\x06");
        directory.extend(44u64.to_le_bytes());
        directory.extend([VERSION, VERSION].map(u16::to_le_bytes).concat());
        directory.extend([0; 8]);
        directory.extend([count, count, bytes, start].map(u64::to_le_bytes).concat());
        directory.extend(b"PK\x06\x07\0\0\0\0");
        directory.extend((start + bytes).to_le_bytes());
        directory.extend(1u32.to_le_bytes());
        directory.extend(b"PK\x05\x06\0\0\0\0");
        let short = |number: u64| u16::try_from(number).unwrap_or(u16::MAX);
        let wide = |number: u64| u32::try_from(number).unwrap_or(IN_EXTRA);
        directory.extend([short(count), short(count)].map(u16::to_le_bytes).concat());
        directory.extend([wide(bytes), wide(start)].map(u32::to_le_bytes).concat());
        directory.extend([0; 2]);
        self.file.append(&directory)?;
        Ok(self.file.into_written())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_large_entries_are_aligned_and_wide() {
        for (header, bytes) in [(0, 5), (64, 1 << 32), (5 << 32, 7), (5 << 32, 6 << 32)] {
            let entry = Entry { name: full_name("data/0"), header, bytes, crc: 1 };
            let local = entry.local();
            let start = content_start(header, &entry.name, bytes);
            assert_eq!(header + local.len() as u64, start);
            assert!(start.is_multiple_of(ALIGNMENT));
            let wide = 8 * (2 * usize::from(bytes > 7) + usize::from(header > 64));
            let extra = if wide == 0 { 0 } else { wide + 4 };
            assert_eq!(entry.listed().len(), 46 + entry.name.len() + extra);
        }
    }
}
