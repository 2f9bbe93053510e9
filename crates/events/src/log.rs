//! The sink of `log.jsonl`: one JSON object a line, written as it comes. `docs/log-json.md`
//! describes the lines.

use crate::emitter::{Sink, SinkError};
use crate::event::{Event, What};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

/// Appends events to a file.
pub struct LogSink {
    path: PathBuf,
    file: File,
    /// Bytes that the file may still get.
    room: u64,
    /// Whether the file ends inside a line that could not be written whole.
    is_torn: bool,
    line: Vec<u8>,
}

impl LogSink {
    /// Appends to a file that is open for it. It may grow by `room` bytes: the system ends a
    /// process that writes beyond its limit. `is_torn` says that the file does not end with a whole
    /// line.
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
#[error("{path}: cannot write the log: {error}; make room or give another --out_dir")]
struct LogError {
    path: PathBuf,
    error: std::io::Error,
}
