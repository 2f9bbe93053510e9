//! `tensorboard=True`: event files in `out_dir/tensorboard`. Each start and each resumption writes
//! a file of its own, which says from which step on it replaces the files before it: no point is
//! shown twice.

mod kept;
mod record;

use super::SinkFailed;
use super::record_file::RecordFile;
use crate::metrics::{Point, Recorder};
use events::{Event, Sink, SinkError, What};
use kept::kept;
use record::{Body, frame};
use serde_json::Value;
use std::fs::File;
use std::io::{ErrorKind, Result};
use std::path::{Path, PathBuf};

/// What names of event files begin with; TensorBoard looks for it.
const PREFIX: &str = "events.out.tfevents.";

/// Writes event files.
pub struct TensorBoardSink {
    folder: PathBuf,
    /// Most bytes of a file.
    limit: u64,
    recorder: Recorder,
    /// The first iteration, and the settings.
    start: u64,
    config: String,
    file: Option<RecordFile>,
    record: Vec<u8>,
}

impl TensorBoardSink {
    /// Writes files below the folder, each of at most `limit` bytes.
    pub fn new(out_dir: &Path, limit: u64) -> TensorBoardSink {
        let (folder, config) = (out_dir.join("tensorboard"), String::new());
        let (recorder, start, file, record) = (Recorder::default(), 0, None, Vec::new());
        TensorBoardSink { folder, limit, recorder, start, config, file, record }
    }

    fn write(&mut self, point: &Point) -> Result<()> {
        let wall_time = point.time.unix_time;
        self.record.clear();
        if self.file.is_none() {
            let is_again = point.is_evaluation && point.iter == self.start;
            let kept =
                if self.start == 0 { vec![] } else { kept(&self.folder, self.start, is_again) };
            self.file = Some(create(&self.folder, wall_time, self.limit)?);
            frame(&mut self.record, wall_time, 0, Body::Version);
            frame(&mut self.record, wall_time, self.start, Body::SessionStart);
            self.record.extend(kept);
            let config = Body::Text { tag: "config", text: &self.config };
            frame(&mut self.record, wall_time, self.start, config);
        }
        let values = &mut point.named();
        frame(&mut self.record, wall_time, point.iter, Body::Scalars(values));
        self.append()
    }

    fn write_text(&mut self, event: &Event, step: u64, text: &str) -> Result<()> {
        self.record.clear();
        let text = format!("    {}", text.replace('\n', "\n    "));
        let body = Body::Text { tag: "sample", text: &text };
        frame(&mut self.record, event.time.unix_time, step, body);
        self.append()
    }

    fn append(&mut self) -> Result<()> {
        let Some(file) = &mut self.file else {
            return Ok(()); // a run without points has no file
        };
        let appended = file.append(&self.record);
        // A file without its version is of no use: the next point begins another one.
        if file.bytes() == 0 {
            self.file = None;
        }
        appended
    }
}

/// A new file whose name is after those of all files in the folder: TensorBoard reads in this
/// order.
fn create(folder: &Path, wall_time: f64, limit: u64) -> Result<RecordFile> {
    std::fs::create_dir_all(folder)?;
    let mut seconds = wall_time.max(0.0) as u64;
    for entry in std::fs::read_dir(folder)?.flatten() {
        let name = entry.file_name();
        let digits = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('.').next());
        let found: Option<u64> = digits.and_then(|digits| digits.parse().ok());
        // Ten digits until the year 2286: then all names have the same length.
        seconds = seconds.max(found.filter(|found| *found < 9_999_999_999).map_or(0, |n| n + 1));
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
    let host: String = host.chars().filter(is_plain).take(60).collect();
    let host = if host.is_empty() { "localhost" } else { &host };
    loop {
        let name = format!("{PREFIX}{seconds:010}.{host}.{}.fitgpt", std::process::id());
        match File::options().append(true).create_new(true).open(folder.join(name)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => seconds += 1,
            file => return RecordFile::new(file?, 0, limit),
        }
    }
}

/// The settings as a table in Markdown.
fn table(config: &Value) -> String {
    let mut text = String::from("| key | value |\n|---|---|\n");
    for (key, value) in config.as_object().into_iter().flatten() {
        let value = value.to_string().replace('|', "\\|");
        text += &format!("| {key} | {value} |\n");
    }
    text
}

impl Sink for TensorBoardSink {
    fn name(&self) -> &'static str {
        "TensorBoard's files"
    }

    fn keeps_record(&self) -> bool {
        true
    }

    fn take(&mut self, event: &Event) -> std::result::Result<(), SinkError> {
        let written = match &event.what {
            What::Start(start) => {
                self.recorder.start(start);
                (self.start, self.file) = (start.iter, None);
                self.config = table(&start.config);
                Ok(())
            }
            What::Sample(sample) => self.write_text(event, sample.iter, &sample.text),
            _ => match self.recorder.point(event) {
                Some(point) => self.write(&point),
                None => Ok(()),
            },
        };
        written.map_err(|error| SinkFailed::tensorboard(&self.folder, error).into())
    }
}
