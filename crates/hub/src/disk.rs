//! Disk space and the limit on the size of files.

use crate::error::{HubError, Result};
use crate::platform;
use std::path::Path;

/// Free bytes on the disk where `folder` is or will be.
///
/// # Errors
///
/// When the file system does not report it.
pub fn free_space(folder: &Path) -> Result<u64> {
    let there = folder.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("."));
    let free = platform::free_bytes(there);
    let free = free.map_err(HubError::io(there, "read the free space of its disk"))?;
    Ok(free.unwrap_or(u64::MAX))
}

/// What must stay free while a file of unknown size arrives: other programs need the disk, too.
const RESERVE: u64 = 16 << 20;

/// Refuses a download that the disk has no room for. `missing` is how many bytes are still to come,
/// if the server says so. Where the file system does not report its free space, nothing is refused.
///
/// # Errors
///
/// When there is too little space.
pub fn check_room(url: &str, path: &Path, missing: Option<u64>) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let Ok(free) = free_space(folder) else { return Ok(()) };
    let needs = match missing {
        Some(missing) if missing > free => format!("needs {missing} bytes more"),
        None if free < RESERVE => "goes on, and its server does not say how long".to_owned(),
        _ => return Ok(()),
    };
    let what = format!(
        "the download of {url} {needs}, but the disk has {free} bytes free; make room and run the \
         same command again, or choose a folder on another disk"
    );
    Err(HubError::Local { path: folder.to_owned(), what })
}

/// Refuses to exceed the limit on file sizes, because the system would kill the process with a
/// signal.
///
/// # Errors
///
/// When there is a limit below `bytes`.
pub fn check_limit(path: &Path, bytes: u64, limit: Option<u64>) -> Result<()> {
    match limit {
        Some(limit) if bytes > limit => {
            let what = format!(
                "needs {bytes} bytes, but `ulimit -f` allows {limit} per file; raise it and run \
                 the same command again"
            );
            Err(HubError::Local { path: path.to_owned(), what })
        }
        _ => Ok(()),
    }
}
