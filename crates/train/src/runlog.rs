//! `log.jsonl`: one JSON object a line. Every start of a run writes a line with the schema and the
//! iteration it begins with; a run that goes on appends. Programs read it; nothing in the run
//! depends on it. While it is open, no other process can train in the same folder.

use crate::error::TrainError;
use crate::save::Document;
use serde_json::{Value, json};
use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The open log.
pub struct RunLog {
    path: PathBuf,
    file: File,
}

impl RunLog {
    /// Opens the log of a folder and keeps others out of it.
    pub fn open(out_dir: &Path) -> Result<RunLog, TrainError> {
        let path = out_dir.join("log.jsonl");
        let opened = File::options().create(true).append(true).open(&path);
        let file = opened.map_err(|error| TrainError::Io { path: path.clone(), error })?;
        // A file system without locks cannot keep anybody out; that is no reason not to train.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(TrainError::OutDirBusy { path: out_dir.to_path_buf() });
        }
        Ok(RunLog { path, file })
    }

    /// The line of a run that begins or goes on.
    pub fn start(&mut self, document: &Document) -> Result<(), TrainError> {
        self.write(json!({
            "schema": "fitgpt.log/1",
            "kind": "start",
            "iter": document.progress.iteration,
            "config": document.config,
            "vocab_size": document.dims.vocab_size,
            "plan_hash": document.plan_hash,
            "device": document.device,
        }))
    }

    /// Appends a line, whole.
    pub fn write(&mut self, line: Value) -> Result<(), TrainError> {
        let text = format!("{line}\n");
        let written = self.file.write_all(text.as_bytes());
        written.map_err(|error| TrainError::Io { path: self.path.clone(), error })
    }
}
