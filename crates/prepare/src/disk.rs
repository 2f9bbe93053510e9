//! Disk space: estimates what will be needed and reads what is free, before anything is written.

use crate::error::Result;
use crate::readers::Packing;
use crate::sources::{Format, Source};
use std::path::Path;

/// Estimates the bytes of token files from the bytes of a source, from experience with English
/// text: three bytes of uncompressed text make a token of two bytes.
#[must_use]
pub fn tokens_per_byte(source: &Source, by_characters: bool) -> f64 {
    let unpacked = match (source.format, source.packing) {
        (Format::Parquet, _) => 1.8,
        (_, Packing::None) => 1.0,
        (_, Packing::Gzip | Packing::Zstd) => 3.2,
    };
    unpacked * if by_characters { 2.0 } else { 0.6 }
}

/// Free bytes on the disk where `folder` is or will be.
///
/// # Errors
///
/// When the file system does not report it.
pub fn free(folder: &Path) -> Result<u64> {
    Ok(hub::free_space(folder)?)
}

/// Bytes already written by a preparation in this folder; they need no further space.
pub fn already_written(out: &Path) -> u64 {
    let files = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| entry.metadata().map_or(0, |metadata| metadata.len());
    let is_ours = |entry: &std::fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.ends_with(".bin") || name.ends_with(".bin.part")
    };
    let downloads = out.join(crate::shelf::FOLDER);
    let sizes = files(out).filter(is_ours).map(size).chain(files(&downloads).map(size));
    sizes.fold(0, |sum, size| sum.saturating_add(size)) // sparse files may claim anything
}

/// Refuses to exceed the limit on file sizes.
pub fn check_limit(path: &Path, bytes: u64, limit: Option<u64>) -> Result<()> {
    Ok(hub::check_limit(path, bytes, limit)?)
}
