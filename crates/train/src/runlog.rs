//! `log.jsonl`: one JSON object a line, the first one names the schema. Appended to when a run goes
//! on. Programs read it; nothing in the run depends on it.

use crate::error::TrainError;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The open log.
pub struct RunLog {
    path: PathBuf,
    file: File,
}

impl RunLog {
    /// Opens the log of a run and writes its first line.
    pub fn open(out_dir: &Path, config: &Value) -> Result<RunLog, TrainError> {
        let path = out_dir.join("log.jsonl");
        let opened = File::options().create(true).append(true).open(&path);
        let file = opened.map_err(|error| TrainError::Io { path: path.clone(), error })?;
        let mut log = RunLog { path, file };
        log.write(json!({ "schema": "fitgpt.log/1", "kind": "start", "config": config }))?;
        Ok(log)
    }

    /// Appends a line, whole.
    pub fn write(&mut self, line: Value) -> Result<(), TrainError> {
        let text = format!("{line}\n");
        let written = self.file.write_all(text.as_bytes());
        written.map_err(|error| TrainError::Io { path: self.path.clone(), error })
    }
}
