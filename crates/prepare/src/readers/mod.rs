//! Sources into documents: plain text, JSON, tables and parquet, packed or not, as streams.

mod csv;
mod delta;
mod footer;
mod jsonl;
mod packing;
mod pages;
mod parquet;
mod text;
mod thrift;

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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Nowhere;

    impl Sink for Nowhere {
        fn bytes(&mut self, _: &[u8]) -> Result<()> {
            Ok(())
        }
        fn end_document(&mut self) -> Result<()> {
            Ok(())
        }
        fn skip_document(&mut self) {}
        fn replaced(&mut self) {}
        fn position(&mut self, _: u64) {}
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        /// Whatever is in a file: documents or an error that names it, never a panic.
        #[test]
        fn any_bytes(
            soup in "[\\[\\]{}:,;\"\\\\ut0a\n\r\t é]{0,60}",
            raw: Vec<u8>,
            start in prop::sample::select(vec!["", "text,", "[{\"text\":", "{\"", "a\ttext\n"]),
        ) {
            let path = std::env::temp_dir().join(format!("fitgpt-any-{}", std::process::id()));
            for rest in [soup.as_bytes(), &raw] {
                std::fs::write(&path, [start.as_bytes(), rest].concat()).unwrap();
                for format in [Format::Json, Format::Csv, Format::Tsv, Format::Text] {
                    for packing in [Packing::None, Packing::Gzip, Packing::Zstd] {
                        let (name, field) = ("it", "text");
                        let path = &path;
                        let ends_documents = true;
                        let spec = ReadSpec { path, name, format, packing, field, ends_documents };
                        if let Err(error) = read(&spec, &mut Nowhere) {
                            prop_assert!(error.to_string().starts_with("it: "), "{error}");
                        }
                    }
                }
            }
            std::fs::remove_file(&path).unwrap();
        }
    }
}
