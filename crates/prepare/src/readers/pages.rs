//! Estimates the memory that the pages of a parquet column will take, from their headers, before
//! any page is read.
//!
//! The library allocates what a header claims, and with some codecs whatever decompression yields.
//! So this module reads the headers first, which is a few bytes for each page.

use super::thrift::{Thrift, kind};
use parquet::basic::Compression;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

/// Bytes that the library keeps for each value of a dictionary.
const PER_ENTRY: u64 = 32;
/// Bytes for each value of a delta-encoded page: two lengths.
const PER_LENGTH: u64 = 8;
/// Most bytes of a header, which may hold the smallest and the largest value of the page.
const HEADER: u64 = 16 << 20;

/// What is wrong with pages, for a message.
pub type Wrong = String;

/// The pages of a column in one row group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// Most memory that reading them takes at any time.
    pub memory: u64,
    /// Bytes of the largest page, decompressed.
    pub largest: u64,
    /// Whether values may be copies instead of views into their page.
    pub has_copies: bool,
}

/// One page, as its header describes it.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    kind: i64,
    unpacked: u64,
    packed: u64,
    values: u64,
    is_delta: bool,
}

const DICTIONARY: i64 = 2;
/// Delta encodings of parquet: of numbers, lengths and strings.
const DELTAS: [i64; 3] = [5, 6, 7];

/// Reads the headers of the pages in the `length` bytes from `start` on.
///
/// # Errors
///
/// When a header is invalid, or a page decompresses to more than it says.
pub fn look(
    file: &mut (impl Read + Seek),
    (start, length): (u64, u64),
    codec: Compression,
) -> Result<Pages, Wrong> {
    let lost = |error: io::Error| format!("a page header cannot be read: {error}");
    let end = start.checked_add(length).ok_or("a column is longer than any file")?;
    let mut reader = BufReader::with_capacity(4 << 10, file);
    reader.seek(SeekFrom::Start(start)).map_err(lost)?;
    let mut at = start;
    let (mut pages, mut dictionary, mut before) = (Pages::default(), 0_u64, 0_u64);
    while at < end {
        let room = (end - at).min(HEADER);
        let mut header = Thrift { input: (&mut reader).take(room) };
        let page = read_page(&mut header).map_err(lost)?;
        let header_bytes = room - header.input.limit();
        at = at + header_bytes + page.packed;
        if at > end {
            let packed = page.packed;
            return Err(format!("a page of {packed} bytes exceeds its column"));
        }
        pages.largest = pages.largest.max(page.unpacked);
        pages.has_copies |= page.is_delta;
        let own = page.memory(codec);
        // The library frees a page only after it has read the next one.
        pages.memory = pages.memory.max(dictionary.saturating_add(before).saturating_add(own));
        match page.kind {
            DICTIONARY => dictionary = dictionary.saturating_add(own),
            _ => before = own.saturating_sub(page.packed),
        }
        let mut packed = reader.by_ref().take(page.packed);
        if grows_freely(codec) {
            check_size(&mut packed, codec, page.unpacked)?;
        }
        // Within the buffer this needs no disk access, which matters if there are many tiny pages.
        let left = packed.limit();
        reader.seek_relative(left.cast_signed()).map_err(lost)?;
    }
    Ok(pages)
}

impl Page {
    /// Memory for reading it: compressed bytes, decompressed bytes, and decoded values.
    fn memory(&self, codec: Compression) -> u64 {
        let copies = match codec {
            Compression::UNCOMPRESSED => 0,
            Compression::BROTLI(_) => 2, // its input has a buffer of that size, too
            _ => 1,
        };
        let per_value = match (self.kind, self.is_delta) {
            (DICTIONARY, _) => PER_ENTRY,
            (_, true) => PER_LENGTH,
            _ => 0,
        };
        let values = self.values.saturating_mul(per_value);
        self.packed.saturating_add(self.unpacked.saturating_mul(copies)).saturating_add(values)
    }
}

/// Whether the library decompresses everything, whatever the header says.
fn grows_freely(codec: Compression) -> bool {
    matches!(codec, Compression::GZIP(_) | Compression::BROTLI(_) | Compression::LZ4)
}

/// Decompresses a page and discards the bytes, to check that it has no more than its header says.
fn check_size(packed: &mut impl Read, codec: Compression, claimed: u64) -> Result<(), Wrong> {
    let mut start = [0; 4];
    let mut first = Vec::new();
    let _ = packed.by_ref().take(start.len() as u64).read_to_end(&mut first);
    start[..first.len()].copy_from_slice(&first);
    let packed = first.as_slice().chain(packed);
    let mut unpacked: Box<dyn Read> = match codec {
        Compression::GZIP(_) => Box::new(flate2::read::MultiGzDecoder::new(packed)),
        Compression::BROTLI(_) => Box::new(brotli::Decompressor::new(packed, 64 << 10)),
        // Without the frame's magic number it is a block, which states its length.
        _ if u32::from_le_bytes(start) != LZ4_FRAME => return Ok(()),
        _ => Box::new(lz4_flex::frame::FrameDecoder::new(packed)),
    };
    let mut buffer = [0; 16 << 10];
    let mut bytes = 0_u64;
    while bytes <= claimed {
        match unpacked.read(&mut buffer) {
            // Damaged data is reported when the page is read.
            Ok(0) | Err(_) => return Ok(()),
            Ok(count) => bytes += count as u64,
        }
    }
    Err(format!("a page decompresses to more than the {claimed} bytes that its header says"))
}

const LZ4_FRAME: u32 = 0x184d_2204;

/// The fields of a page header by their numbers in parquet.thrift.
fn read_page<R: BufRead>(header: &mut Thrift<R>) -> io::Result<Page> {
    let mut page = Page::default();
    let (mut last, mut seen) = (0, [false; 3]);
    while let Some((field, kind)) = header.field(&mut last)? {
        match (field, kind) {
            (1, kind::I16..=kind::I64) => (seen[0], page.kind) = (true, header.number()?),
            (2, kind::I16..=kind::I64) => (seen[1], page.unpacked) = (true, header.size()?),
            (3, kind::I16..=kind::I64) => (seen[2], page.packed) = (true, header.size()?),
            (5 | 7 | 8, kind::STRUCT) => read_values(header, field, &mut page)?,
            (_, kind) => header.skip(kind)?,
        }
    }
    // A zero byte is a header without fields; without this check, zeros would count as one page per
    // byte.
    match seen {
        [true, true, true] => Ok(page),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "it lacks its kind or a size")),
    }
}

/// Reads the part of a header that is specific to one kind of page.
fn read_values<R: BufRead>(header: &mut Thrift<R>, of: i64, page: &mut Page) -> io::Result<()> {
    // The field number of the encoding differs for data pages of version 2.
    let encoding = if of == 8 { 4 } else { 2 };
    let mut last = 0;
    while let Some((field, kind)) = header.field(&mut last)? {
        match (field, kind) {
            (1, kind::I16..=kind::I64) => page.values = header.size()?,
            (field, kind::I16..=kind::I64) if field == encoding => {
                page.is_delta = DELTAS.contains(&header.number()?);
            }
            (_, kind) => header.skip(kind)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes in memory that count the read calls.
    struct CountedReads(io::Cursor<Vec<u8>>, u32);

    impl Read for CountedReads {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 += 1;
            self.0.read(buffer)
        }
    }

    impl Seek for CountedReads {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.1 += 1;
            self.0.seek(to)
        }
    }

    #[test]
    fn a_header_without_its_sizes_is_refused() {
        // No fields; no kind; one of the sizes missing.
        for header in [&[0][..], &[0x25, 0, 0x15, 0, 0], &[0x15, 0, 0x25, 0, 0], &[0x15, 0, 0]] {
            let mut file = CountedReads(io::Cursor::new([header, &[0; 10_000]].concat()), 0);
            let found = look(&mut file, (0, 10_000), Compression::UNCOMPRESSED);
            assert!(found.unwrap_err().contains("lacks its kind or a size"), "{header:?}");
            assert!(file.1 < 5, "{}", file.1);
        }
    }

    #[test]
    fn many_tiny_pages_are_read_by_the_buffer() {
        // A kind, no byte or two of them, and two bytes where it says so.
        for page in [&[0x15, 0, 0x15, 0, 0x15, 0, 0][..], &[0x15, 0, 0x15, 4, 0x15, 4, 0, 9, 9]] {
            let file = page.repeat(10_000);
            let length = file.len() as u64;
            let mut file = CountedReads(io::Cursor::new(file), 0);
            let found = look(&mut file, (0, length), Compression::UNCOMPRESSED).unwrap();
            assert_eq!(found.largest, u64::from(page.len() == 9) * 2);
            assert!(file.1 < 100, "{}", file.1);
        }
    }
}
