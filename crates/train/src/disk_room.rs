//! Room for a run's checkpoints, looked at before the first step: free bytes of the disk, and the
//! limit on file sizes (`ulimit -f`), beyond which the system would end the process by a signal.

use crate::error::TrainError;
use crate::save::{best_path, last_path};
use data::disk::file_limit;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Files of a checkpoint's size that exist at one time: `last`, the one that is about to replace
/// it, and `best`.
const FILES: u64 = 3;

/// For the log, and for what the run's document grows by.
const BESIDE: u64 = 64 << 10;

/// Whether a run in this folder has room for checkpoints of `bytes` bytes. `replaces_last`: the
/// `last` that is there will make way.
pub fn check(out_dir: &Path, bytes: u64, replaces_last: bool) -> Result<(), TrainError> {
    let last = last_path(out_dir);
    if let Some(limit) = file_limit().filter(|limit| bytes > *limit) {
        return Err(TrainError::FileLimit { path: last, bytes, limit });
    }
    let needed = needed(bytes, there(out_dir, replaces_last));
    match free(out_dir) {
        Some(free) if free < needed => {
            Err(TrainError::NoRoom { path: out_dir.to_path_buf(), bytes, needed, free })
        }
        _ => Ok(()),
    }
}

/// Bytes beyond those of the files that are there already.
fn needed(bytes: u64, there: [u64; 2]) -> u64 {
    let reused: u64 = there.iter().map(|old| (*old).min(bytes)).sum();
    (FILES * bytes).saturating_add(BESIDE).saturating_sub(reused)
}

/// Bytes of `last` and `best`, which may be one file.
fn there(out_dir: &Path, replaces_last: bool) -> [u64; 2] {
    let last = last_path(out_dir).metadata().ok().filter(|_| replaces_last);
    let best = best_path(out_dir).metadata().ok();
    let is_one = match (&last, &best) {
        (Some(last), Some(best)) => (last.dev(), last.ino()) == (best.dev(), best.ino()),
        _ => false,
    };
    let size = |found: Option<Metadata>| found.map_or(0, |found| found.len());
    [size(last), size(best.filter(|_| !is_one))]
}

/// Bytes that may still be written where the folder is or will be; none where the file system does
/// not tell.
fn free(folder: &Path) -> Option<u64> {
    let there = folder.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("."));
    let stats = rustix::fs::statvfs(there).ok().filter(|stats| stats.f_blocks > 0)?;
    Some(stats.f_bavail.saturating_mul(stats.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_not_needed_again() {
        let beside = |files: u64| files + BESIDE;
        assert_eq!(needed(1000, [0, 0]), beside(3000));
        assert_eq!(needed(1000, [1000, 0]), beside(2000));
        assert_eq!(needed(1000, [1000, 1000]), beside(1000));
        // A larger file of another format makes no more room than a file takes.
        assert_eq!(needed(1000, [5000, 500]), beside(1500));
        assert_eq!(needed(u64::MAX / 3, [0, 0]), u64::MAX);
    }
}
