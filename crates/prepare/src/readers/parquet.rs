//! Parquet: one column of text, page by page, without arrow.
//!
//! Only the current pages are in memory, and values are views into them. A row group is never read
//! as a whole. The memory for footer and pages is estimated before they are read. If the library
//! panics on damaged bytes, the panic becomes an ordinary error.

use super::delta::Checked;
use super::footer::{self, Footer};
use super::pages::{self, Pages};
use super::{Packing, ReadSpec};
use crate::error::{PrepareError, Result};
use crate::segment::Sink;
use crate::{limits, regular};
use data::contained::contained;
use parquet::basic::Type;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::SchemaDescriptor;
use std::fs::File;

/// Most rows decoded at a time.
const ROWS: usize = 128;
/// Most bytes of the rows decoded at a time. With some encodings each row is a copy, and at most as
/// large as its page.
const TAKEN: u64 = 8 << 20;

/// Pushes the column's values.
pub fn read(spec: &ReadSpec<'_>, sink: &mut dyn Sink) -> Result<()> {
    if spec.packing != Packing::None {
        let what = "is compressed parquet, but parquet compresses itself; decompress it first";
        return Err(PrepareError::source(spec.name, what));
    }
    let mut file = regular::open(spec.path)?;
    let bytes = file.metadata().map_err(PrepareError::io(spec.path, "read its size"))?.len();
    let table = Table { spec, bytes };
    table.check_footer(&mut file)?;
    let opened = file.try_clone().map_err(PrepareError::io(spec.path, "open it"))?;
    let reader = table.contained(|| SerializedFileReader::new(opened))?;
    let metadata = reader.metadata();
    let column = column(spec, metadata.file_metadata().schema_descr())?;
    let all_rows = metadata.file_metadata().num_rows().max(1) as f64;
    let mut rows = 0_u64;
    for index in 0..metadata.num_row_groups() {
        let found = table.pages(&mut file, &reader, (index, column))?;
        let (values, optional) = table.contained(|| {
            let group = reader.get_row_group(index)?;
            let descriptor = group.metadata().column(column).column_descr_ptr();
            let optional = descriptor.max_def_level();
            let pages = group.get_column_page_reader(column)?;
            let pages = Box::new(Checked { pages, is_optional: optional > 0 });
            Ok((ColumnReaderImpl::<ByteArrayType>::new(descriptor, pages), optional))
        })?;
        let at_once = match found.has_copies {
            true => usize::try_from(TAKEN / found.largest.max(1)).unwrap_or(ROWS),
            false => ROWS,
        };
        let mut values = Values { values, optional, at_once: at_once.clamp(1, ROWS) };
        while let Some(records) = values.push(sink, &table)? {
            rows = rows.saturating_add(records as u64);
            sink.position((bytes as f64 * (rows as f64 / all_rows).min(1.0)) as u64);
        }
    }
    Ok(())
}

/// A file, for messages.
struct Table<'a> {
    spec: &'a ReadSpec<'a>,
    bytes: u64,
}

impl Table<'_> {
    /// Calls the library and turns its errors and panics into ours.
    fn contained<T>(&self, call: impl FnOnce() -> parquet::errors::Result<T>) -> Result<T> {
        match contained(call) {
            Ok(result) => result.map_err(|error| self.damaged(error)),
            Err(said) => Err(self.wrong(&said)),
        }
    }

    fn damaged(&self, error: ParquetError) -> PrepareError {
        match error {
            // A codec that is not built in, or an unknown kind of page.
            ParquetError::NYI(what) => {
                let what = format!(
                    "is parquet of an unsupported kind ({what}); write it again with \
                     snappy or zstd compression"
                );
                PrepareError::source(self.spec.name, what)
            }
            error => self.wrong(&error.to_string()),
        }
    }

    fn wrong(&self, what: &str) -> PrepareError {
        let what = format!(
            "is truncated or damaged parquet ({} bytes): {what}; get the file again, then run the \
             same command",
            self.bytes
        );
        PrepareError::source(self.spec.name, what)
    }

    /// Checks the footer, which the library reads as a whole and which becomes much larger in
    /// memory.
    fn check_footer(&self, file: &mut File) -> Result<()> {
        let found = footer::look(file, self.bytes).map_err(|what| self.wrong(&what))?;
        let most = limits::memory(self.bytes);
        if found.memory > most {
            let Footer { bytes, elements, memory } = found;
            let what = format!(
                "has a footer of {bytes} bytes with {elements} columns, which may take {memory} \
                 bytes of memory: more than {most}, the limit for a file of {} bytes; \
                 write it again with fewer columns or row groups",
                self.bytes
            );
            return Err(PrepareError::source(self.spec.name, what));
        }
        Ok(())
    }

    /// The pages of a column in a row group, if they fit into the memory limit.
    fn pages(
        &self,
        file: &mut File,
        reader: &SerializedFileReader<File>,
        (group, column): (usize, usize),
    ) -> Result<Pages> {
        let (range, codec) = self.contained(|| {
            let chunk = reader.metadata().row_group(group).column(column);
            Ok((chunk.byte_range(), chunk.compression()))
        })?;
        if range.0.checked_add(range.1).is_none_or(|end| end > self.bytes) {
            return Err(self.wrong("a column exceeds the file"));
        }
        let found = pages::look(file, range, codec).map_err(|what| self.wrong(&what))?;
        let most = limits::memory(self.bytes);
        if found.memory > most {
            let Pages { largest, memory, .. } = found;
            let what = format!(
                "has a page of {largest} bytes, which needs {memory} bytes of memory: \
                 more than {most}, the limit for a file of {} bytes; write it again with smaller \
                 pages (pyarrow: data_page_size)",
                self.bytes
            );
            return Err(PrepareError::source(self.spec.name, what));
        }
        Ok(found)
    }
}

/// A column of one row group.
struct Values {
    values: ColumnReaderImpl<ByteArrayType>,
    /// The definition level of a present value; a lower level means null.
    optional: i16,
    /// Rows decoded at a time.
    at_once: usize,
}

impl Values {
    /// Pushes the next rows; `None` at the end.
    fn push(&mut self, sink: &mut dyn Sink, table: &Table<'_>) -> Result<Option<usize>> {
        let mut texts: Vec<ByteArray> = Vec::with_capacity(self.at_once);
        let mut levels: Vec<i16> = Vec::with_capacity(self.at_once);
        let wanted = (self.optional > 0).then_some(&mut levels);
        let (values, rows) = (&mut self.values, self.at_once);
        let (records, ..) =
            table.contained(|| values.read_records(rows, wanted, None, &mut texts))?;
        if records == 0 {
            return Ok(None);
        }
        let mut texts = texts.iter();
        for row in 0..records {
            if levels.get(row).is_some_and(|&level| level < self.optional) {
                sink.skip_document();
            } else if let Some(text) = texts.next() {
                sink.bytes(text.data())?;
                sink.end_document()?;
            }
        }
        Ok(Some(records))
    }
}

/// The column with the text.
fn column(spec: &ReadSpec<'_>, schema: &SchemaDescriptor) -> Result<usize> {
    let names: Vec<String> = schema.columns().iter().map(|column| column.path().string()).collect();
    let Some(index) = names.iter().position(|name| name == spec.field) else {
        let shown: Vec<&str> = names.iter().take(20).map(String::as_str).collect();
        let (field, names) = (spec.field, shown.join(", "));
        let what = format!(
            "has no column '{field}' (it has: {names}); name the one with the text: --column NAME"
        );
        return Err(PrepareError::source(spec.name, what));
    };
    let column = schema.column(index);
    if column.physical_type() != Type::BYTE_ARRAY || column.max_rep_level() > 0 {
        return Err(no_text(spec));
    }
    Ok(index)
}

fn no_text(spec: &ReadSpec<'_>) -> PrepareError {
    let what = format!("column '{}' holds no text; name another one with --column", spec.field);
    PrepareError::source(spec.name, what)
}
