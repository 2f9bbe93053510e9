//! A zip file as PyTorch writes it: entries that are stored, not compressed, below one folder.
//! Sizes and checksums come from the directory at its end; everything in it is checked when it is
//! opened, an entry's checksum when it is read.

use crate::error::ForeignProblem;
use crate::platform::read_exact_at;
use crate::shown;
use std::collections::HashMap;
use std::fs::{self, File};
use std::path::Path;

/// Bytes read at a time.
pub const CHUNK: usize = 1 << 20;

/// Largest directory. 1,000 layers with moments need 4 MiB.
const DIRECTORY_LIMIT: u64 = 32 << 20;

const END: [u8; 4] = *b"PK\x05\x06";
const END_BYTES: usize = 22;
/// The end is followed by a comment of at most 64 KiB.
const COMMENT_LIMIT: usize = 0xffff;
const LOCATOR: [u8; 4] = *b"PK\x06\x07";
const LOCATOR_BYTES: u64 = 20;
const END_64: [u8; 4] = *b"PK\x06\x06";
const END_64_BYTES: usize = 56;
const LISTED: [u8; 4] = *b"PK\x01\x02";
const LISTED_BYTES: usize = 46;
const LOCAL: [u8; 4] = *b"PK\x03\x04";
const LOCAL_BYTES: u64 = 30;

/// In a field of 32 bits: the number is in the entry's extra field.
const IN_EXTRA: u64 = 0xffff_ffff;
const EXTRA_64: u16 = 1;

const STORED: u16 = 0;
const ENCRYPTED: u16 = 1;

/// Where an entry's content is.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub start: u64,
    pub bytes: u64,
    /// Its checksum; none in a file that was saved without any.
    pub crc: Option<u32>,
}

/// An open zip file.
#[derive(Debug)]
pub struct Archive {
    file: File,
    entries: HashMap<String, Entry>,
    /// The folder in which everything is.
    folder: String,
    /// Size of the file.
    pub bytes: u64,
    /// Whether it was saved without checksums. PyTorch has an option for that
    /// (`torch.serialization.set_crc32_options`), and puts 0 in their place. `torch.load` never
    /// compares them.
    pub is_unchecked: bool,
}

/// The directory's place in the file.
struct Directory {
    start: u64,
    bytes: u64,
    count: u64,
}

fn damaged(what: impl Into<String>) -> ForeignProblem {
    ForeignProblem::Damaged { what: what.into() }
}

fn refused(what: impl Into<String>) -> ForeignProblem {
    ForeignProblem::Refused { what: what.into() }
}

impl Archive {
    /// Opens a file and checks its directory.
    pub fn open(path: &Path) -> Result<Archive, ForeignProblem> {
        let failed = |source| ForeignProblem::Io { doing: "open it", source };
        // Checked before opening, because opening a pipe waits for a writer.
        if !fs::metadata(path).map_err(failed)?.is_file() {
            return Err(refused("this is not a regular file"));
        }
        let file = File::open(path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        let directory = find_directory(&file, bytes)?;
        let mut entries = read_directory(&file, &directory)?;
        let is_unchecked = entries.values().all(|entry| entry.crc == Some(0));
        if is_unchecked {
            entries.values_mut().for_each(|entry| entry.crc = None);
        }
        let folder = entries
            .keys()
            .find_map(|name| name.strip_suffix("/data.pkl").filter(|folder| !folder.contains('/')));
        let folder = folder.map(str::to_owned).ok_or_else(|| {
            refused("this zip file is not PyTorch's: it has no data.pkl; give nanoGPT's ckpt.pt")
        })?;
        Ok(Archive { file, entries, folder, bytes, is_unchecked })
    }

    /// An entry of the folder.
    pub fn entry(&self, name: &str) -> Option<Entry> {
        self.entries.get(&self.full_name(name)).copied()
    }

    /// The name of an entry in the zip file.
    pub fn full_name(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }

    /// The content of a small entry.
    pub fn content(&self, name: &str, limit: u64) -> Result<Option<Vec<u8>>, ForeignProblem> {
        let Some(entry) = self.entry(name) else {
            return Ok(None);
        };
        if entry.bytes > limit {
            let bytes = entry.bytes;
            return Err(refused(format!("its {name} has {bytes} bytes, the limit is {limit}")));
        }
        let mut content = vec![0; entry.bytes as usize];
        read_at(&self.file, &mut content, entry.start)?;
        check(entry, crc32fast::hash(&content), name)?;
        Ok(Some(content))
    }

    /// Reads bytes of an entry, which must be inside it.
    pub fn read(
        &self,
        entry: Entry,
        offset: u64,
        content: &mut [u8],
    ) -> Result<(), ForeignProblem> {
        read_at(&self.file, content, entry.start + offset)
    }

    /// Reads a whole entry and compares its checksum.
    pub fn verify(&self, entry: Entry, name: &str) -> Result<(), ForeignProblem> {
        let mut buffer = vec![0; CHUNK.min(entry.bytes as usize)];
        let mut checksum = crc32fast::Hasher::new();
        let mut done = 0;
        while done < entry.bytes {
            let bytes = (entry.bytes - done).min(CHUNK as u64) as usize;
            self.read(entry, done, &mut buffer[..bytes])?;
            checksum.update(&buffer[..bytes]);
            done += bytes as u64;
        }
        check(entry, checksum.finalize(), name)
    }
}

/// Compares a checksum with that of the directory.
pub fn check(entry: Entry, found: u32, name: &str) -> Result<(), ForeignProblem> {
    match entry.crc {
        Some(expected) if expected != found => {
            Err(damaged(format!("entry {name} has the CRC-32 {found:08x}, not {expected:08x}")))
        }
        _ => Ok(()),
    }
}

fn read_at(file: &File, content: &mut [u8], offset: u64) -> Result<(), ForeignProblem> {
    let failed = |source: std::io::Error| match source.kind() {
        std::io::ErrorKind::UnexpectedEof => damaged("it is truncated"),
        _ => ForeignProblem::Io { doing: "read it", source },
    };
    read_exact_at(file, content, offset).map_err(failed)
}

/// Takes numbers from bytes that were read.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }
}

/// Finds the directory from the end of the file.
fn find_directory(file: &File, bytes: u64) -> Result<Directory, ForeignProblem> {
    let tail_bytes = bytes.min((END_BYTES + COMMENT_LIMIT) as u64);
    let mut tail = vec![0; tail_bytes as usize];
    read_at(file, &mut tail, bytes - tail_bytes)?;
    let is_end = |&at: &usize| {
        let comment = |end: &[u8]| usize::from(u16::from_le_bytes([end[20], end[21]]));
        tail[at..].starts_with(&END) && at + END_BYTES + comment(&tail[at..]) == tail.len()
    };
    let last = tail.len().checked_sub(END_BYTES);
    let at = last.and_then(|last| (0..=last).rev().find(is_end)).ok_or_else(|| {
        damaged("it has no directory of a zip file at its end: it is truncated, or no ckpt.pt")
    })?;
    let end = bytes - tail_bytes + at as u64;
    let directory = match end.checked_sub(LOCATOR_BYTES) {
        Some(locator) => directory_64(file, locator)?,
        None => None,
    };
    let directory = match directory {
        Some(directory) => directory,
        None => directory_32(&tail[at..]).ok_or_else(|| damaged("its directory is too short"))?,
    };
    let is_inside = directory.start.checked_add(directory.bytes).is_some_and(|top| top <= end);
    match is_inside && directory.bytes <= DIRECTORY_LIMIT {
        true => Ok(directory),
        false => Err(damaged("its directory is outside the file")),
    }
}

/// The directory as the end record gives it.
fn directory_32(end: &[u8]) -> Option<Directory> {
    let mut fields = Fields(end);
    fields.take(10)?;
    let count = fields.u16()?.into();
    let (bytes, start) = (fields.u32()?.into(), fields.u32()?.into());
    Some(Directory { start, bytes, count })
}

/// The directory as the record for large files gives it, if there is one.
fn directory_64(file: &File, locator: u64) -> Result<Option<Directory>, ForeignProblem> {
    let mut found = [0; LOCATOR_BYTES as usize];
    read_at(file, &mut found, locator)?;
    if !found.starts_with(&LOCATOR) {
        return Ok(None);
    }
    let place = Fields(&found[8..]).u64().unwrap_or(u64::MAX);
    if place.checked_add(END_64_BYTES as u64).is_none_or(|top| top > locator) {
        return Err(damaged("its directory is outside the file"));
    }
    let mut record = [0; END_64_BYTES];
    read_at(file, &mut record, place)?;
    let mut fields = Fields(&record[32..]);
    match (record.starts_with(&END_64), fields.u64(), fields.u64(), fields.u64()) {
        (true, Some(count), Some(bytes), Some(start)) => {
            Ok(Some(Directory { start, bytes, count }))
        }
        _ => Err(damaged("its directory's record is missing")),
    }
}

/// An entry as the directory lists it.
struct Listed {
    name: String,
    /// Offset of the entry's own header.
    header: u64,
    bytes: u64,
    crc: u32,
}

fn read_directory(
    file: &File,
    directory: &Directory,
) -> Result<HashMap<String, Entry>, ForeignProblem> {
    let mut content = vec![0; directory.bytes as usize];
    read_at(file, &mut content, directory.start)?;
    let mut fields = Fields(&content);
    let mut spans = Vec::new();
    let mut entries = HashMap::new();
    for _ in 0..directory.count {
        let listed = listed(&mut fields)?;
        let start = content_start(file, &listed, directory.start)?;
        let entry = Entry { start, bytes: listed.bytes, crc: Some(listed.crc) };
        spans.push((listed.header, start + listed.bytes));
        if entries.insert(listed.name, entry).is_some() {
            return Err(damaged("two of its entries have the same name"));
        }
    }
    spans.sort_unstable();
    match spans.windows(2).any(|pair| pair[1].0 < pair[0].1) {
        true => Err(damaged("its entries overlap")),
        false => Ok(entries),
    }
}

/// The next entry of the directory.
fn listed(fields: &mut Fields) -> Result<Listed, ForeignProblem> {
    let short = || damaged("its directory is too short");
    let mut fixed = Fields(fields.take(LISTED_BYTES).ok_or_else(short)?);
    if fixed.take(4) != Some(&LISTED) {
        return Err(damaged("its directory is not a list of entries"));
    }
    let all = (|| {
        fixed.take(4)?;
        let (flags, method) = (fixed.u16()?, fixed.u16()?);
        fixed.take(4)?;
        let (crc, packed, bytes) = (fixed.u32()?, fixed.u32()?, fixed.u32()?);
        let lengths = [fixed.u16()?, fixed.u16()?, fixed.u16()?];
        fixed.take(8)?;
        Some((flags, method, crc, packed, bytes, lengths, fixed.u32()?))
    })();
    let (flags, method, crc, packed, bytes, lengths, header) = all.ok_or_else(short)?;
    let [name, extra, comment] = lengths.map(|count| fields.take(count.into()));
    let (Some(name), Some(extra), Some(_)) = (name, extra, comment) else {
        return Err(short());
    };
    let name = str::from_utf8(name).map_err(|_| damaged("an entry's name is not UTF-8"))?;
    let shown = shown(name);
    if method != STORED || flags & ENCRYPTED != 0 {
        return Err(refused(format!(
            "its entry {shown} is compressed or encrypted, as PyTorch never writes it: save it \
             again with torch.save"
        )));
    }
    let mut wide = [bytes, packed, header].map(u64::from);
    widen(&mut wide, extra).ok_or_else(|| damaged(format!("entry {shown} has no size")))?;
    let [bytes, packed, header] = wide;
    if bytes != packed {
        return Err(damaged(format!("entry {shown} has {packed} bytes for {bytes}")));
    }
    Ok(Listed { name: name.to_owned(), header, bytes, crc })
}

/// Replaces numbers that did not fit by those of the extra field, which are in the same order.
fn widen(numbers: &mut [u64; 3], extra: &[u8]) -> Option<()> {
    let mut fields = Fields(extra);
    let mut wide = Fields(&[]);
    while let (Some(id), Some(count)) = (fields.u16(), fields.u16()) {
        let content = fields.take(count.into())?;
        if id == EXTRA_64 {
            wide = Fields(content);
        }
    }
    for number in numbers.iter_mut().filter(|number| **number == IN_EXTRA) {
        *number = wide.u64()?;
    }
    Some(())
}

/// Where an entry's content starts: after its own header, which must name it too.
fn content_start(file: &File, listed: &Listed, end: u64) -> Result<u64, ForeignProblem> {
    let outside = || damaged(format!("entry {} is outside the file", shown(&listed.name)));
    let inside = |top: Option<u64>| top.filter(|&top| top <= end).ok_or_else(outside);
    let name_start = inside(listed.header.checked_add(LOCAL_BYTES))?;
    let mut local = [0; LOCAL_BYTES as usize];
    read_at(file, &mut local, listed.header)?;
    let mut lengths = Fields(&local[26..]);
    let (name, extra) = (lengths.u16().unwrap_or(0), lengths.u16().unwrap_or(0));
    if !local.starts_with(&LOCAL) || usize::from(name) != listed.name.len() {
        return Err(damaged(format!("entry {} has no header", shown(&listed.name))));
    }
    let start = inside(name_start.checked_add(u64::from(name) + u64::from(extra)))?;
    inside(start.checked_add(listed.bytes))?;
    let mut found = vec![0; name.into()];
    read_at(file, &mut found, name_start)?;
    match found == listed.name.as_bytes() {
        true => Ok(start),
        false => Err(damaged(format!("entry {} has another name", shown(&listed.name)))),
    }
}
