//! `log.jsonl`: one JSON object a line. Every start of a run writes a line with the schema and the
//! iteration it begins with; a run that goes on appends. Programs read it; nothing in the run
//! depends on it. While it is open, no other process can train in the same folder.

use crate::error::TrainError;
use crate::save::Document;
use data::disk::file_limit;
use serde_json::{Value, json};
use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The open log.
pub struct RunLog {
    path: PathBuf,
    file: File,
    /// Bytes that it may still get: the system ends a process that writes beyond its limit.
    room: u64,
    failed: bool,
}

impl RunLog {
    /// Opens the log of a folder and keeps others out of it.
    pub fn open(out_dir: &Path) -> Result<RunLog, TrainError> {
        let path = out_dir.join("log.jsonl");
        if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
            let error = std::io::Error::other("it is no regular file");
            return Err(cannot_write(&path, error));
        }
        let opened = File::options().create(true).append(true).open(&path);
        let file = opened.map_err(|error| cannot_write(&path, error))?;
        // A file system without locks cannot keep anybody out; that is no reason not to train.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(TrainError::OutDirBusy { path: out_dir.to_path_buf() });
        }
        let bytes = file.metadata().map_or(0, |metadata| metadata.len());
        let room = file_limit().map_or(u64::MAX, |limit| limit.saturating_sub(bytes));
        Ok(RunLog { path, file, room, failed: false })
    }

    /// The line of a run that begins or goes on.
    pub fn start(&mut self, document: &Document) -> Option<TrainError> {
        self.write(json!({
            "schema": "fitgpt.log/1",
            "kind": "start",
            "iter": document.progress.iteration,
            "config": document.config,
            "vocab_size": document.dims.vocab_size,
            "steps_hash": document.steps_hash,
            "version": document.version,
            "device": document.device,
        }))
    }

    /// Appends a line, whole. A log that cannot be written does not end the run: the first failure
    /// is given back to be told.
    pub fn write(&mut self, line: Value) -> Option<TrainError> {
        let text = format!("{line}\n");
        let bytes = text.len() as u64;
        let written = match bytes <= self.room {
            true => self.file.write_all(text.as_bytes()),
            false => Err(std::io::ErrorKind::FileTooLarge.into()),
        };
        self.room = self.room.saturating_sub(bytes);
        let error = written.err()?;
        let is_first = !std::mem::replace(&mut self.failed, true);
        is_first.then(|| cannot_write(&self.path, error))
    }
}

fn cannot_write(path: &Path, error: std::io::Error) -> TrainError {
    let (doing, advice) = ("write the log", "make room or give another --out_dir");
    TrainError::Io { path: path.to_path_buf(), doing, error, advice }
}
