//! Checks before the first step that a run's checkpoints will fit: on the disk, and within the
//! limit on file sizes (`ulimit -f`), beyond which the system kills the process with a signal.

use crate::error::TrainError;
use data::disk::file_limit;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// For the log, and for the growth of the checkpoint's document.
const MARGIN: u64 = 64 << 10;

/// The checkpoints of a run.
#[derive(Clone, Copy)]
pub struct Kept<'a> {
    /// The file that every save replaces.
    pub newest: &'a Path,
    /// The same, if the file that is there now is one of this run.
    pub replaced: Option<&'a Path>,
    /// The file of the best state, if the run keeps one.
    pub best: Option<&'a Path>,
}

impl Kept<'_> {
    /// Checkpoints that exist at the same time: the newest, its replacement being written, and the
    /// best.
    fn files(&self) -> u64 {
        2 + u64::from(self.best.is_some())
    }
}

/// Checks that a run in this folder has room for checkpoints of `bytes` bytes.
pub fn check(out_dir: &Path, bytes: u64, kept: Kept) -> Result<(), TrainError> {
    if let Some(limit) = file_limit().filter(|limit| bytes > *limit) {
        return Err(TrainError::FileLimit { path: kept.newest.to_path_buf(), bytes, limit });
    }
    let files = kept.files();
    let needed = needed(files, bytes, existing_bytes(kept));
    match free(out_dir) {
        Some(free) if free < needed => {
            Err(TrainError::NoRoom { path: out_dir.to_path_buf(), files, bytes, needed, free })
        }
        _ => Ok(()),
    }
}

/// Bytes needed in addition to those of the existing files, which will be replaced.
fn needed(files: u64, bytes: u64, existing: [u64; 2]) -> u64 {
    let reused: u64 = existing.iter().map(|old| (*old).min(bytes)).sum();
    files.saturating_mul(bytes).saturating_add(MARGIN).saturating_sub(reused)
}

/// Sizes of the existing files, which may be links to one file.
fn existing_bytes(kept: Kept) -> [u64; 2] {
    let [last, best] =
        [kept.replaced, kept.best].map(|path| path.and_then(|path| path.metadata().ok()));
    let is_one = match (&last, &best) {
        (Some(last), Some(best)) => (last.dev(), last.ino()) == (best.dev(), best.ino()),
        _ => false,
    };
    let size = |found: Option<Metadata>| found.map_or(0, |found| found.len());
    [size(last), size(best.filter(|_| !is_one))]
}

/// Bytes free on the file system where the folder is or will be; none if it does not say.
fn free(folder: &Path) -> Option<u64> {
    let there = folder.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("."));
    let stats = rustix::fs::statvfs(there).ok().filter(|stats| stats.f_blocks > 0)?;
    Some(stats.f_bavail.saturating_mul(stats.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_files_reduce_what_is_needed() {
        let with_margin = |files: u64| files + MARGIN;
        assert_eq!(needed(3, 1000, [0, 0]), with_margin(3000));
        assert_eq!(needed(3, 1000, [1000, 0]), with_margin(2000));
        assert_eq!(needed(3, 1000, [1000, 1000]), with_margin(1000));
        assert_eq!(needed(2, 1000, [1000, 0]), with_margin(1000));
        // Replacing a larger file of another format counts at most one new file.
        assert_eq!(needed(3, 1000, [5000, 500]), with_margin(1500));
        assert_eq!(needed(3, u64::MAX / 3, [0, 0]), u64::MAX);
    }
}
