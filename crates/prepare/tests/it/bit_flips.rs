//! Flips every single bit of a parquet file: the reader returns documents or an error, never a
//! panic.

use crate::fixture::{TempDir, delta, parquet_with};
use ::parquet::basic::{Compression, Encoding};
use ::parquet::file::properties::WriterProperties;
use fitgpt_prepare::{Format, Packing, PrepareError, ReadSpec, Result, Sink, read};
use std::os::unix::fs::FileExt;

#[derive(Default)]
struct Nowhere {
    documents: usize,
}

impl Sink for Nowhere {
    fn bytes(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn end_document(&mut self) -> Result<()> {
        self.documents += 1;
        Ok(())
    }
    fn skip_document(&mut self) {}
    fn replaced(&mut self) {}
    fn position(&mut self, _: u64) {}
}

fn documents_of(path: &std::path::Path) -> Result<usize> {
    let (name, field, format) = ("x.parquet", "text", Format::Parquet);
    let packing = Packing::None;
    let spec = ReadSpec { path, name, format, packing, field, ends_documents: true };
    let mut sink = Nowhere::default();
    read(&spec, &mut sink).map(|()| sink.documents)
}

#[test]
fn every_flipped_bit_ends_in_documents_or_an_error() {
    let dir = TempDir::new("flips");
    let texts: Vec<Option<String>> =
        ["one", "two two", "", "two two"].map(|text| Some(text.to_owned())).into();
    let (mut good, mut bad, mut contained) = (0, 0, 0);
    let snappy = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let ways = [
        WriterProperties::builder().build(),
        snappy,
        delta(Encoding::DELTA_BYTE_ARRAY),
        delta(Encoding::DELTA_LENGTH_BYTE_ARRAY),
    ];
    for (index, way) in ways.into_iter().enumerate() {
        let path = dir.path(&format!("{index}.parquet"));
        parquet_with(&path, &texts, way);
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(documents_of(&path).unwrap(), 4);
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        for bit in 0..whole.len() * 8 {
            let (at, byte) = ((bit / 8) as u64, whole[bit / 8]);
            file.write_all_at(&[byte ^ 1 << (bit % 8)], at).unwrap();
            let found = documents_of(&path);
            file.write_all_at(&[byte], at).unwrap();
            match found {
                Ok(_) => good += 1,
                Err(PrepareError::Source { name, what }) => {
                    assert_eq!(name, "x.parquet");
                    bad += 1;
                    let is_panic = what.contains("unwrap") || what.contains("out of range");
                    contained += usize::from(is_panic || what.contains("overflow"));
                }
                Err(other) => panic!("bit {bit}: {other}"),
            }
        }
    }
    println!("{good} read, {bad} refused, {contained} of them by what looks like a panic");
    assert!(good > 0 && bad > 0);
}
