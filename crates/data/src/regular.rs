//! Opens files that other programs made, if they are regular. Opening a pipe could wait for a
//! writer for ever, and a device may have no end.

use crate::error::DataError;
use std::fs::File;
use std::path::Path;

/// Opens a regular file for reading.
pub(crate) fn open(path: &Path) -> Result<File, DataError> {
    let metadata = path.metadata().map_err(DataError::io(path, "open it"))?;
    if !metadata.is_file() {
        let kind = if metadata.is_dir() { "a folder" } else { "a pipe or device" };
        let advice = "a regular file is needed here";
        return Err(DataError::Foreign { path: path.to_owned(), kind, advice });
    }
    File::open(path).map_err(DataError::io(path, "open it"))
}
