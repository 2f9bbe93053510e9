//! The sink that writes `log.jsonl`: one JSON object per line, written as soon as it arrives.
//! `docs/log-json.md` describes the lines.

use crate::emitter::{Sink, SinkError};
use crate::event::{Event, What};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

/// Appends events to a file.
pub struct LogSink<W = File> {
    path: PathBuf,
    file: W,
    /// Bytes by which the file may still grow.
    room: u64,
    /// Whether the file ends with an incomplete line.
    is_torn: bool,
    line: Vec<u8>,
}

impl<W: Write> LogSink<W> {
    /// Appends to a file that is open for appending. It grows by at most `room` bytes: the system
    /// kills a process that exceeds `ulimit -f`. `is_torn` says that the file ends with an
    /// incomplete line.
    pub fn new(path: PathBuf, file: W, room: u64, is_torn: bool) -> LogSink<W> {
        LogSink { path, file, room, is_torn, line: Vec::new() }
    }

    fn write(&mut self) -> std::io::Result<()> {
        if self.line.len() as u64 > self.room {
            return Err(ErrorKind::FileTooLarge.into());
        }
        let mut rest = &self.line[..];
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    let (written, after) = rest.split_at(count);
                    rest = after;
                    self.room -= count as u64;
                    self.is_torn = !written.ends_with(b"\n");
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl<W: Write + Send> Sink for LogSink<W> {
    fn name(&self) -> &'static str {
        "log.jsonl"
    }

    fn keeps_record(&self) -> bool {
        true
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
