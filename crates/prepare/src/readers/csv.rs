//! Reads text tables separated by commas, semicolons or tabs: streams the column that holds the
//! text. The first row names the columns.
//!
//! A field is never held in memory, whatever its length. An empty field is not a document, because
//! such tables have no other way to mark a missing one.

use super::ReadSpec;
use super::packing::{Unpacked, broken};
use crate::error::{PrepareError, Result};
use crate::segment::Sink;
use crate::sources::Format;
use csv_core::ReadFieldResult;
use std::io::{BufRead, BufReader};

/// Bytes kept of a column's name; longer names are shortened.
const NAME: usize = 256;
/// Most columns.
const COLUMNS: usize = 10_000;
/// Bytes of a field that are passed on at a time.
const PIECE: usize = 64 << 10;

/// Pushes the column's values.
pub fn read(spec: &ReadSpec<'_>, sink: &mut dyn Sink) -> Result<()> {
    let file = Unpacked::open(spec.path, spec.packing)?;
    let mut reader = BufReader::with_capacity(256 << 10, file);
    let start = reader.fill_buf().map_err(broken(spec, 0))?;
    let separator = separator(spec.format, start);
    let parser = csv_core::ReaderBuilder::new().delimiter(separator).build();
    let mut table = Table { spec, reader, parser, piece: vec![0; PIECE], is_closed: false };
    let names = table.header()?;
    if names.is_empty() {
        return Ok(()); // an empty file
    }
    let Some(column) = names.iter().position(|name| name == spec.field) else {
        return Err(no_column(spec, &names));
    };
    while table.row(column, names.len(), sink)? {
        sink.position(table.reader.get_ref().position());
    }
    sink.position(table.reader.get_ref().position());
    Ok(())
}

/// Detects the separator: spreadsheets also write semicolons or tabs to `.csv`.
fn separator(format: Format, start: &[u8]) -> u8 {
    let line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let likely = if format == Format::Tsv { [b'\t', b',', b';'] } else { [b',', b';', b'\t'] };
    likely.into_iter().find(|byte| line.contains(byte)).unwrap_or(likely[0])
}

struct Table<'a> {
    spec: &'a ReadSpec<'a>,
    reader: BufReader<Unpacked>,
    parser: csv_core::Reader,
    piece: Vec<u8>,
    /// Whether the last line has ended; the file may lack the final line feed.
    is_closed: bool,
}

/// What a field ended with.
#[derive(PartialEq, Eq)]
enum End {
    Field,
    Row,
    File,
}

impl Table<'_> {
    /// The names of the columns.
    fn header(&mut self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        loop {
            let mut name = Vec::new();
            let end = self.field(&mut |bytes| {
                let room = NAME.saturating_sub(name.len());
                name.extend(&bytes[..bytes.len().min(room)]);
                Ok(())
            })?;
            if end == End::File {
                return Ok(names);
            }
            names.push(String::from_utf8_lossy(&name).trim().to_owned());
            if end == End::Row {
                return Ok(names);
            }
            if names.len() > COLUMNS {
                let what = format!("has more than {COLUMNS} columns: it is not a table of text");
                return Err(PrepareError::source(self.spec.name, what));
            }
        }
    }

    /// One row; false at the end of the file.
    fn row(&mut self, column: usize, columns: usize, sink: &mut dyn Sink) -> Result<bool> {
        let line = self.parser.line();
        let mut index = 0;
        loop {
            let is_wanted = index == column;
            let mut is_empty = true;
            let end = self.field(&mut |bytes| {
                if is_wanted {
                    is_empty &= bytes.is_empty();
                    sink.bytes(bytes)?;
                }
                Ok(())
            })?;
            if end == End::File {
                return Ok(false);
            }
            index += 1;
            if end == End::Row && index != columns || index > columns {
                return Err(self.ragged(line, index, columns));
            }
            match is_wanted {
                true if is_empty => sink.skip_document(),
                true => sink.end_document()?,
                false => {}
            }
            if end == End::Row {
                return Ok(true);
            }
        }
    }

    /// Passes on the bytes of the next field.
    fn field(&mut self, into: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<End> {
        let first_line = self.parser.line();
        loop {
            let position = self.reader.get_ref().position();
            let input = self.reader.fill_buf().map_err(broken(self.spec, position))?;
            let is_last = input.is_empty() && !self.is_closed;
            self.is_closed |= is_last;
            let input = if is_last { b"\n" } else { input };
            let (result, read, written) = self.parser.read_field(input, &mut self.piece);
            if is_last && result == ReadFieldResult::InputEmpty && written > 0 {
                // The open quote has swallowed even the appended line end.
                return Err(self.open_quote(first_line));
            }
            self.reader.consume(if is_last { 0 } else { read });
            into(&self.piece[..written])?;
            match result {
                ReadFieldResult::InputEmpty | ReadFieldResult::OutputFull => {}
                ReadFieldResult::Field { record_end: false } => return Ok(End::Field),
                ReadFieldResult::Field { record_end: true } => return Ok(End::Row),
                ReadFieldResult::End => return Ok(End::File),
            }
        }
    }

    fn ragged(&self, line: u64, found: usize, columns: usize) -> PrepareError {
        let found = if found > columns { "more".to_owned() } else { found.to_string() };
        let what = format!(
            "the row near line {line} has {found} columns, but the first row has {columns}; fix \
             the file, or read it as plain text with --format text"
        );
        PrepareError::source(self.spec.name, what)
    }

    fn open_quote(&self, line: u64) -> PrepareError {
        let what = format!(
            "the quote that opens near line {line} is never closed: the file is truncated or not \
             a table; fix it, or read it as plain text with --format text"
        );
        PrepareError::source(self.spec.name, what)
    }
}

fn no_column(spec: &ReadSpec<'_>, names: &[String]) -> PrepareError {
    let shown: Vec<&str> = names.iter().take(20).map(String::as_str).collect();
    let what = format!(
        "has no column '{}' (its first row has: {}); name the one with the text: --column NAME, \
         or read it as plain text with --format text",
        spec.field,
        shown.join(", ")
    );
    PrepareError::source(spec.name, what)
}
