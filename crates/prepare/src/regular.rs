//! Opening files that others made: only regular ones, and whole only up to a bound. A pipe would
//! wait for a writer for ever, a device would never end.

use crate::error::{PrepareError, Result};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Opens a file for reading.
///
/// # Errors
///
/// When it is not there, or is no regular file.
pub fn open(path: &Path) -> Result<File> {
    let metadata = path.metadata().map_err(PrepareError::io(path, "open it"))?;
    if !metadata.is_file() {
        let kind = if metadata.is_dir() { "a folder" } else { "a pipe or a device" };
        let what = format!("is {kind}; a regular file is needed here");
        return Err(PrepareError::source(&path.display().to_string(), what));
    }
    File::open(path).map_err(PrepareError::io(path, "open it"))
}

/// All bytes of a file that has no more than `most`; `kind` is what it should be.
///
/// # Errors
///
/// As [`open`], or when it is larger.
pub fn read(path: &Path, most: u64, kind: &str) -> Result<Vec<u8>> {
    let file = open(path)?;
    let size = file.metadata().map_err(PrepareError::io(path, "read its size"))?.len();
    let mut bytes = Vec::new();
    if size <= most {
        // A byte more, in case it grows meanwhile.
        bytes.reserve_exact(size as usize + 1);
        let mut start = file.take(most.saturating_add(1));
        start.read_to_end(&mut bytes).map_err(PrepareError::io(path, "read it"))?;
    }
    if size.max(bytes.len() as u64) > most {
        let what =
            format!("has {size} bytes, but a {kind} has at most {most}; check which file this is");
        return Err(PrepareError::source(&path.display().to_string(), what));
    }
    Ok(bytes)
}
