//! Sources into documents: plain text, JSON, tables and parquet, packed or not, as streams.

mod csv;
mod jsonl;
mod packing;
mod parquet;
mod text;

use crate::error::Result;
use crate::segment::Sink;
use crate::sources::Format;
use std::path::Path;

pub use packing::{Packing, Unpacked};

/// What a reader needs to know of a source that lies on disk.
#[derive(Clone, Copy, Debug)]
pub struct ReadSpec<'a> {
    /// Where it lies.
    pub path: &'a Path,
    /// How the user knows it.
    pub name: &'a str,
    /// What is in it.
    pub format: Format,
    /// How it is packed.
    pub packing: Packing,
    /// The field or column with the text.
    pub field: &'a str,
    /// Whether a text ends like a document; not where one text is divided by position.
    pub ends_documents: bool,
}

/// Pushes all of a source's documents into the sink.
///
/// # Errors
///
/// When the source cannot be read, is damaged or is not what its name says; or the sink's own.
pub fn read(spec: &ReadSpec<'_>, sink: &mut dyn Sink) -> Result<()> {
    match spec.format {
        Format::Text => text::read(spec, sink),
        Format::Jsonl | Format::Json => jsonl::read(spec, sink),
        Format::Csv | Format::Tsv => csv::read(spec, sink),
        Format::Parquet => parquet::read(spec, sink),
    }
}
