//! Estimates the memory that a parquet footer will take, before the library reads it.
//!
//! The library keeps each column name with the names of all enclosing groups, so a few bytes may
//! become many. It also recurses into nested groups, which could overflow the stack.

use super::thrift::{Thrift, kind};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

/// Deepest allowed nesting of groups.
const DEPTH: usize = 64;
/// Bytes of memory for each byte of the footer: row groups with their columns.
const GROWTH: u64 = 32;
/// Additional bytes for each element of the schema.
const PER_ELEMENT: u64 = 640;
/// Bytes for each part of the full name of a column.
const PER_PART: u64 = 64;
/// Bytes of the footer's length and the magic number at the end of each file.
const END: u64 = 8;

/// The size of a footer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footer {
    /// Its bytes in the file.
    pub bytes: u64,
    /// Elements of its schema.
    pub elements: u64,
    /// Most memory that it can take.
    pub memory: u64,
}

/// Inspects the footer of a file of `bytes` bytes.
///
/// # Errors
///
/// When the footer is missing or invalid; the error says what is wrong.
pub fn look(file: &mut (impl Read + Seek), bytes: u64) -> Result<Footer, String> {
    let lost = |error: io::Error| format!("its footer cannot be read: {error}");
    let end = bytes.checked_sub(END).ok_or("it is too short for parquet")?;
    let mut mark = [0; END as usize];
    file.seek(SeekFrom::Start(end)).and_then(|_| file.read_exact(&mut mark)).map_err(lost)?;
    let footer = u64::from(u32::from_le_bytes([mark[0], mark[1], mark[2], mark[3]]));
    let start = end.checked_sub(footer).ok_or("its footer is longer than the file")?;
    file.seek(SeekFrom::Start(start)).map_err(lost)?;
    let mut thrift = Thrift { input: BufReader::new(file).take(footer) };
    let mut schema = Schema::default();
    let mut last = 0;
    while let Some((field, kind)) = thrift.field(&mut last).map_err(lost)? {
        if field != 2 || kind != kind::LIST {
            thrift.skip(kind).map_err(lost)?;
            continue;
        }
        let (count, _) = thrift.list().map_err(lost)?;
        for _ in 0..count {
            let children = children(&mut thrift).map_err(lost)?;
            schema.add(children)?;
        }
    }
    let grown = footer.saturating_mul(GROWTH);
    let memory = grown.saturating_add(schema.elements.saturating_mul(PER_ELEMENT));
    let memory = memory.saturating_add(schema.parts.saturating_mul(PER_PART));
    Ok(Footer { bytes: footer, elements: schema.elements, memory })
}

/// How many direct children this element has; 0 for a column.
fn children<R: BufRead>(thrift: &mut Thrift<R>) -> io::Result<u64> {
    let mut children = 0;
    let mut last = 0;
    while let Some((field, kind)) = thrift.field(&mut last)? {
        match (field, kind) {
            (5, kind::I16..=kind::I64) => children = thrift.size()?,
            (_, kind) => thrift.skip(kind)?,
        }
    }
    Ok(children)
}

/// Follows the schema's elements as they arrive, each group before its children.
#[derive(Default)]
struct Schema {
    elements: u64,
    /// Number of parts of the full names of all columns.
    parts: u64,
    /// For each open group, how many of its children are still to come.
    open: Vec<u64>,
}

impl Schema {
    fn add(&mut self, children: u64) -> Result<(), String> {
        self.elements += 1;
        self.parts = self.parts.saturating_add(self.open.len() as u64);
        if let Some(left) = self.open.last_mut() {
            *left = left.saturating_sub(1);
        }
        if children > 0 {
            self.open.push(children);
        }
        if self.open.len() > DEPTH {
            return Err(format!("its columns are nested deeper than {DEPTH}"));
        }
        while self.open.last() == Some(&0) {
            self.open.pop();
        }
        Ok(())
    }
}
