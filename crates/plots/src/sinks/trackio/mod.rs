//! `trackio=True`: trackio's dashboard imports files of JSON lines from its inbox folder and
//! removes them. A file is complete when it appears, and never changes: points are collected for a
//! while, written to a temporary file, and renamed. Folder, names and fields are those of trackio
//! 0.43 (`trackio/fragments.py`), which ignores a line whose `log_id` it knows.

mod identity;
mod unsent;

use super::SinkFailed;
use crate::metrics::{Point, Recorder};
use crate::utc::utc;
use events::{Event, Sink, SinkError, Start, What};
use identity::Identity;
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Result, Write};
use std::path::{Path, PathBuf};

/// Points are written after this share of the run's time so far, within these seconds: a long run
/// leaves some thousand files if nobody imports them, and a kill loses at most half a minute.
const SHARE: f64 = 0.005;
const SECONDS: std::ops::RangeInclusive<f64> = 1.0..=30.0;

/// Most bytes of a file.
const MOST: usize = 1 << 20;

/// trackio removes a folder that it has emptied, perhaps just before a file is put there.
const TRIES: usize = 3;

/// What a run is called.
#[derive(Clone, Debug)]
pub struct TrackioRun {
    /// `wandb_project`.
    pub project: String,
    /// `wandb_run_name`; without it, the name is made of the folder's and the time of the start.
    pub name: Option<String>,
}

/// Writes into trackio's inbox.
pub struct TrackioSink {
    /// The inbox, and our folder in it.
    folder: PathBuf,
    inbox: PathBuf,
    out_dir: PathBuf,
    run: TrackioRun,
    /// Most bytes of a file.
    limit: u64,
    recorder: Recorder,
    identity: Identity,
    /// The settings, until they are written.
    config: Option<Value>,
    lines: Vec<u8>,
    /// `Time::seconds` of the first point in `lines`.
    since: f64,
    files: u64,
}

/// trackio's inbox, by its own rules: in `$TRACKIO_DIR`, else in `trackio` in Hugging Face's
/// folder. None without either.
pub fn trackio_inbox(trackio_dir: Option<OsString>, hf_home: Option<PathBuf>) -> Option<PathBuf> {
    let given = trackio_dir.filter(|folder| !folder.is_empty()).map(PathBuf::from);
    Some(given.or_else(|| Some(hf_home?.join("trackio")))?.join("inbox"))
}

impl TrackioSink {
    /// Writes into the inbox, files of at most `limit` bytes; keeps the run's id and name in
    /// `out_dir`.
    pub fn new(inbox: &Path, out_dir: &Path, run: TrackioRun, limit: u64) -> TrackioSink {
        TrackioSink {
            folder: PathBuf::new(),
            inbox: inbox.to_path_buf(),
            out_dir: out_dir.to_path_buf(),
            run,
            limit,
            recorder: Recorder::default(),
            identity: Identity::default(),
            config: None,
            lines: Vec::new(),
            since: 0.0,
            files: 0,
        }
    }

    fn start(&mut self, start: &Start, unix_time: f64) -> Result<()> {
        self.recorder.start(start);
        let mut config = start.config.as_object().cloned().unwrap_or_default();
        config.insert("_Created".to_string(), utc(unix_time).into());
        self.config = Some(Value::Object(config));
        let (identity, kept) =
            Identity::of(&self.out_dir, self.run.name.as_deref(), start.iter, unix_time);
        self.folder = identity.new_folder(&self.inbox);
        if start.iter > 0 {
            unsent::cut(&self.inbox, &identity.folder_prefix(), start.iter);
        }
        self.identity = identity;
        kept
    }

    fn add(&mut self, point: &Point) -> Result<()> {
        if self.lines.is_empty() {
            self.since = point.time.seconds;
        }
        let metrics: Map<String, Value> =
            point.named().map(|(name, value)| (name.to_string(), number(value))).collect();
        let Point { iter, time, .. } = point;
        let line = json!({
            "v": 1,
            "kind": "metric",
            "project": self.run.project,
            "run": self.identity.name,
            "run_id": self.identity.id,
            "metrics": metrics,
            "step": iter,
            "timestamp": utc(time.unix_time),
            "config": self.config.take(),
            "log_id": format!("{}-{}-{iter}", self.identity.id, point.kind()),
        });
        serde_json::to_writer(&mut self.lines, &line)?;
        self.lines.push(b'\n');
        let patience = (SHARE * time.seconds).clamp(*SECONDS.start(), *SECONDS.end());
        let is_due = point.is_evaluation || time.seconds - self.since >= patience;
        if is_due || self.lines.len() >= MOST { self.flush() } else { Ok(()) }
    }

    /// Writes what was collected. What cannot be written is lost here; the log has it.
    fn flush(&mut self) -> Result<()> {
        if self.lines.is_empty() {
            return Ok(());
        }
        let is_too_large = self.lines.len() as u64 > self.limit;
        let name = self.folder.join(format!("{:08}.jsonl", self.files));
        self.files += 1;
        let mut written = if is_too_large { Err(ErrorKind::FileTooLarge.into()) } else { Ok(()) };
        for _ in 0..if is_too_large { 0 } else { TRIES } {
            written = std::fs::create_dir_all(&self.folder).and_then(|()| put(&name, &self.lines));
            match &written {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                _ => break,
            }
        }
        self.lines.clear();
        written
    }
}

/// Numbers as trackio writes them: JSON has no infinity.
fn number(value: f64) -> Value {
    match value {
        f64::INFINITY => "Infinity".into(),
        f64::NEG_INFINITY => "-Infinity".into(),
        value if value.is_nan() => "NaN".into(),
        value => value.into(),
    }
}

/// The ending of a file that is not complete, which trackio does not read.
const TEMPORARY: &str = "tmp";

/// Writes a file whole or not at all.
fn put(path: &Path, content: &[u8]) -> Result<()> {
    let temporary = path.with_extension(TEMPORARY);
    let written = File::create(&temporary)
        .and_then(|mut file| file.write_all(content))
        .and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        // It may not be there; the first error counts.
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

impl Sink for TrackioSink {
    fn name(&self) -> &'static str {
        "trackio's inbox"
    }

    fn keeps_record(&self) -> bool {
        true
    }

    fn settle(&mut self) -> std::result::Result<(), SinkError> {
        self.flush().map_err(|error| SinkFailed::trackio(&self.inbox, error).into())
    }

    fn take(&mut self, event: &Event) -> std::result::Result<(), SinkError> {
        let written = match &event.what {
            What::Start(start) => {
                let started = self.start(start, event.time.unix_time);
                let file = Identity::file(&self.out_dir);
                started.map_err(|error| SinkFailed::trackio(&file, error))
            }
            What::End(_) => self.flush().map_err(|error| SinkFailed::trackio(&self.inbox, error)),
            _ => match self.recorder.point(event) {
                Some(point) => {
                    self.add(&point).map_err(|error| SinkFailed::trackio(&self.inbox, error))
                }
                None => Ok(()),
            },
        };
        Ok(written?)
    }
}
