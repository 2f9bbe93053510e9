//! Parquet: one column of text, page by page, without arrow.
//!
//! Only the pages at hand are in memory; their values are views into them. A row group as a whole
//! is never read.

use super::{Packing, ReadSpec};
use crate::error::{PrepareError, Result};
use crate::segment::Sink;
use parquet::basic::Type;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::SchemaDescriptor;
use std::fs::File;

/// Rows taken at a time.
const ROWS: usize = 128;

/// Pushes the column's values.
pub fn read(spec: &ReadSpec<'_>, sink: &mut dyn Sink) -> Result<()> {
    if spec.packing != Packing::None {
        let what = "is packed around parquet, which has its own packing; unpack it first";
        return Err(PrepareError::source(spec.name, what));
    }
    let file = File::open(spec.path).map_err(PrepareError::io(spec.path, "open it"))?;
    let bytes = file.metadata().map_err(PrepareError::io(spec.path, "read its size"))?.len();
    let damaged = |error: ParquetError| {
        let what = match error {
            // A codec that is not built in, or a kind of page that nobody knows yet.
            ParquetError::NYI(what) => format!(
                "is parquet of a kind that is not supported ({what}); write it again with snappy \
                 or zstd compression"
            ),
            error => format!(
                "is cut off or damaged parquet ({bytes} bytes): {error}; get the file again, then \
                 give the same command"
            ),
        };
        PrepareError::source(spec.name, what)
    };
    let reader = SerializedFileReader::new(file).map_err(damaged)?;
    let metadata = reader.metadata();
    let column = column(spec, metadata.file_metadata().schema_descr())?;
    let all_rows = metadata.file_metadata().num_rows().max(1) as f64;
    let mut rows = 0;
    for index in 0..metadata.num_row_groups() {
        let group = reader.get_row_group(index).map_err(damaged)?;
        let values = match group.get_column_reader(column).map_err(damaged)? {
            ColumnReader::ByteArrayColumnReader(values) => values,
            _ => return Err(no_text(spec)),
        };
        let optional = group.metadata().column(column).column_descr().max_def_level();
        let mut values = Values { values, optional };
        while let Some(records) = values.push(sink, damaged)? {
            rows += records;
            sink.position((bytes as f64 * (rows as f64 / all_rows)) as u64);
        }
    }
    Ok(())
}

/// A column of one row group.
struct Values {
    values: ColumnReaderImpl<ByteArrayType>,
    /// The level of a value that is there; less is null.
    optional: i16,
}

impl Values {
    /// Pushes the next rows; none at the end.
    fn push(
        &mut self,
        sink: &mut dyn Sink,
        damaged: impl Fn(ParquetError) -> PrepareError,
    ) -> Result<Option<usize>> {
        let mut texts: Vec<ByteArray> = Vec::with_capacity(ROWS);
        let mut levels: Vec<i16> = Vec::with_capacity(ROWS);
        let wanted = (self.optional > 0).then_some(&mut levels);
        let (records, ..) =
            self.values.read_records(ROWS, wanted, None, &mut texts).map_err(damaged)?;
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
        let (field, names) = (spec.field, names.join(", "));
        let what = format!(
            "has no column '{field}' (it has: {names}); say which one holds the text with --column"
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
