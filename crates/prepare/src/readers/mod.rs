//! Streams documents from sources: plain text, JSON, tables and parquet, compressed or not.

mod packing;
mod text;
mod jsonl;
mod csv;
mod parquet;
mod footer;
mod pages;
mod delta;
mod thrift;

use crate::error::Result;
use crate::segment::Sink;
use crate::sources::Format;
use std::path::Path;

pub use packing::{Packing, Unpacked};

/// What a reader needs to know about a local file.
#[derive(Clone, Copy, Debug)]
pub struct ReadSpec<'a> {
    /// The file.
    pub path: &'a Path,
    /// The name that messages use.
    pub name: &'a str,
    /// What is in it.
    pub format: Format,
    /// How it is compressed.
    pub packing: Packing,
    /// The field or column with the text.
    pub field: &'a str,
    /// Whether the end of a text ends a document; false if one text is split by position.
    pub ends_documents: bool,
}

/// Pushes all documents of a source into the sink.
///
/// # Errors
///
/// When the source cannot be read, is damaged or is not what its name says, or when the sink fails.
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

        /// Any file gives documents or an error that names it, never a panic.
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
