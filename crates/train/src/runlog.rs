//! Opens `log.jsonl`. While it is open, no other process can train in the same folder.

use crate::error::TrainError;
use data::disk::file_limit;
use events::LogSink;
use std::fs::{File, TryLockError};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The log of a folder.
pub fn path(out_dir: &Path) -> PathBuf {
    out_dir.join("log.jsonl")
}

/// Opens the log of a folder for appending, and locks it to keep other processes out.
pub fn open(out_dir: &Path) -> Result<LogSink, TrainError> {
    let path = path(out_dir);
    if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        let error = std::io::Error::other("it is not a regular file");
        return Err(cannot_write(&path, error));
    }
    let opened = File::options().create(true).append(true).open(&path);
    let file = opened.map_err(|error| cannot_write(&path, error))?;
    // A file system without locks cannot keep other processes out, but training still works.
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        return Err(TrainError::OutDirBusy { path: out_dir.to_path_buf() });
    }
    let bytes = file.metadata().map_or(0, |metadata| metadata.len());
    let room = file_limit().map_or(u64::MAX, |limit| limit.saturating_sub(bytes));
    let is_torn = bytes > 0 && !ends_a_line(&path, bytes).unwrap_or(true);
    Ok(LogSink::new(path, file, room, is_torn))
}

/// Whether the file's last line is complete: a kill or a full disk may have cut it.
fn ends_a_line(path: &Path, bytes: u64) -> std::io::Result<bool> {
    let mut last = [0];
    File::open(path)?.read_exact_at(&mut last, bytes - 1)?;
    Ok(last == *b"\n")
}

fn cannot_write(path: &Path, error: std::io::Error) -> TrainError {
    let (doing, advice) = ("write the log", "free some space or give another --out_dir");
    TrainError::Io { path: path.to_path_buf(), doing, error, advice }
}
