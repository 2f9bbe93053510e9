//! Disk space and the limit on the size of files.

use crate::error::{HubError, Result};
use std::path::Path;

/// Free bytes on the disk where `folder` is or will be.
///
/// # Errors
///
/// When the file system does not report it.
pub fn free_space(folder: &Path) -> Result<u64> {
    let there = folder.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("."));
    let stats = rustix::fs::statvfs(there)
        .map_err(|error| HubError::io(there, "read the free space of its disk")(error.into()))?;
    Ok(stats.f_bavail.saturating_mul(stats.f_frsize))
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
