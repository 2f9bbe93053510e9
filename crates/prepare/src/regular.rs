//! Opens files that other programs made, if they are regular, and reads whole files up to a limit.
//! Opening a pipe could wait for a writer for ever, and a device may have no end.

use crate::error::{PrepareError, Result};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Opens a file for reading.
///
/// # Errors
///
/// When it does not exist or is not a regular file.
pub fn open(path: &Path) -> Result<File> {
    let metadata = path.metadata().map_err(PrepareError::io(path, "open it"))?;
    if !metadata.is_file() {
        let kind = if metadata.is_dir() { "a folder" } else { "a pipe or a device" };
        let what = format!("is {kind}; a regular file is needed here");
        return Err(PrepareError::source(&path.display().to_string(), what));
    }
    File::open(path).map_err(PrepareError::io(path, "open it"))
}

/// Reads a file of at most `most` bytes; `kind` says in messages what it should be.
///
/// # Errors
///
/// Like [`open`], or when it is larger.
pub fn read(path: &Path, most: u64, kind: &str) -> Result<Vec<u8>> {
    let file = open(path)?;
    let size = file.metadata().map_err(PrepareError::io(path, "read its size"))?.len();
    let mut bytes = Vec::new();
    if size <= most {
        // One byte more, to notice if it grows meanwhile.
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
