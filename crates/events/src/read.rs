//! Reads a `log.jsonl` written by this or an older version.

use crate::event::{Iteration, KINDS, SCHEMA, Time, What};
use serde::Deserialize;
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// The version before [`SCHEMA`]: no times, no `save`, `notice`, `sample` and `end`.
const FIRST_SCHEMA: &str = "fitgpt.log/1";

/// The longest line that is accepted. The longest that is written holds a config or a sample.
pub const LONGEST: u64 = 1 << 18;

/// Characters of a message: it may quote the line.
const MESSAGE: usize = 300;

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Entry {
    /// What happened.
    #[serde(flatten)]
    pub what: What,
    /// When it happened; none in `fitgpt.log/1`.
    #[serde(flatten)]
    pub time: Option<Time>,
}

/// A line that is not a valid event.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct LineError {
    /// Its number, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub what: String,
}

/// Iterates over the events of a log. Blank lines and kinds of later versions are skipped. A line
/// that cannot be parsed (cut by a kill or a full disk, too long) gives an error, and the next line
/// follows.
pub struct LogReader<R> {
    lines: R,
    number: u64,
    /// Reading failed.
    is_over: bool,
}

impl LogReader<BufReader<File>> {
    /// Opens a log.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        Ok(LogReader::new(BufReader::new(File::open(path)?)))
    }
}

impl<R: BufRead> LogReader<R> {
    /// Reads from any buffered reader.
    pub fn new(lines: R) -> LogReader<R> {
        LogReader { lines, number: 0, is_over: false }
    }

    /// The next line; an error inside is about this line only.
    fn line(&mut self) -> std::io::Result<Option<Result<Vec<u8>, String>>> {
        let mut line = Vec::new();
        if self.lines.by_ref().take(LONGEST).read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        if line.len() as u64 == LONGEST && !line.ends_with(b"\n") {
            self.lines.skip_until(b'\n')?;
            return Ok(Some(Err(format!("longer than {LONGEST} bytes"))));
        }
        Ok(Some(Ok(line)))
    }
}

/// How the line of an iteration begins. Nearly all lines of a long log are such lines.
const ITERATION: &[u8] = b"{\"kind\":\"iter\",";

/// The line of an iteration, without the detour over a [`Value`]: a log may have millions. None if
/// it is not as this version writes it.
fn iteration(line: &[u8]) -> Option<Entry> {
    let at: Iteration = serde_json::from_slice(line).ok()?;
    let time: Option<Time> = serde_json::from_slice(line).ok();
    Some(Entry { what: What::Iteration(at), time })
}

/// Parses a line; none if this version does not know its kind.
pub fn parse_line(line: &[u8]) -> Result<Option<Entry>, String> {
    match line.starts_with(ITERATION).then(|| iteration(line)).flatten() {
        Some(entry) => Ok(Some(entry)),
        None => parse(line),
    }
}

fn parse(line: &[u8]) -> Result<Option<Entry>, String> {
    let value: Value = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let kind = value.get("kind").and_then(Value::as_str).ok_or("it has no kind")?;
    if !KINDS.contains(&kind) {
        return Ok(None);
    }
    let schema = value.get("schema").and_then(Value::as_str).unwrap_or_default();
    if kind == "start" && ![SCHEMA, FIRST_SCHEMA].contains(&schema) {
        return Err(format!("this version does not know the schema '{schema}'"));
    }
    serde_json::from_value(value).map(Some).map_err(|error| error.to_string())
}

/// A short message without line ends.
fn one_line(text: &str) -> String {
    text.chars().take(MESSAGE).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

impl<R: BufRead> Iterator for LogReader<R> {
    type Item = Result<Entry, LineError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_over {
            self.number += 1;
            let parsed = match self.line() {
                Ok(None) => return None,
                Ok(Some(Ok(line))) if line.trim_ascii().is_empty() => Ok(None),
                Ok(Some(line)) => line.and_then(|line| parse_line(&line)),
                Err(error) => {
                    self.is_over = true;
                    Err(error.to_string())
                }
            };
            let line = self.number;
            match parsed {
                Ok(None) => {}
                Ok(Some(entry)) => return Some(Ok(entry)),
                Err(what) => return Some(Err(LineError { line, what: one_line(&what) })),
            }
        }
        None
    }
}
