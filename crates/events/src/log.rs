//! The sink that writes `log.jsonl`: one JSON object per line, written as soon as it arrives.
//! `docs/log-json.md` describes the lines.

use crate::emitter::{Sink, SinkError};
use crate::event::{Event, What};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

/// Appends events to a file.
pub struct LogSink {
    path: PathBuf,
    file: File,
    /// Bytes by which the file may still grow.
    room: u64,
    /// Whether the file ends with an incomplete line.
    is_torn: bool,
    line: Vec<u8>,
}

impl LogSink {
    /// Appends to a file that is open for appending. It grows by at most `room` bytes: the system
    /// kills a process that exceeds `ulimit -f`. `is_torn` says that the file ends with an
    /// incomplete line.
    pub fn new(path: PathBuf, file: File, room: u64, is_torn: bool) -> LogSink {
        LogSink { path, file, room, is_torn, line: Vec::new() }
    }

    fn write(&mut self) -> std::io::Result<()> {
        let bytes = self.line.len() as u64;
        if bytes > self.room {
            return Err(ErrorKind::FileTooLarge.into());
        }
        self.room -= bytes;
        self.is_torn = true;
        self.file.write_all(&self.line)?;
        self.is_torn = false;
        Ok(())
    }
}

impl Sink for LogSink {
    fn name(&self) -> &'static str {
        "log.jsonl"
    }

    fn take(&mut self, event: &Event) -> Result<(), SinkError> {
        if let What::Evaluating(_) = event.what {
            return Ok(());
        }
        self.line.clear();
        if self.is_torn {
            self.line.push(b'\n');
        }
        serde_json::to_writer(&mut self.line, event)?;
        self.line.push(b'\n');
        self.write().map_err(|error| LogError { path: self.path.clone(), error }.into())
    }
}

/// A line that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{path}: cannot write the log: {error}; free some space or give another --out_dir")]
struct LogError {
    path: PathBuf,
    error: std::io::Error,
}
