//! `csv=True`: one row for each logged iteration and each evaluation, in `out_dir/metrics.csv`. The
//! columns are those of `log.jsonl` and of the table of metrics; what a row does not have is empty.
//!
//! A resumed run replaces the rows from its first iteration on, so that no iteration is there
//! twice. They are in order, so this is one cut; the same cut removes a line that a kill left
//! incomplete.

use super::SinkFailed;
use super::record_file::RecordFile;
use crate::metrics::{METRICS, Point, Recorder};
use events::{Event, Sink, SinkError, What};
use std::fs::File;
use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::path::{Path, PathBuf};

/// Columns before the metrics.
const FIRST: &str = "kind,iter,unix_time,seconds";

/// Longest line that is accepted; ours have fewer than 500 bytes.
const LONGEST: u64 = 4096;

/// Writes a CSV file.
pub struct CsvSink {
    path: PathBuf,
    /// Most bytes of the file.
    limit: u64,
    recorder: Recorder,
    /// The first iteration of the run, until its first point.
    start: u64,
    /// Rows at or after this place are replaced.
    place: Option<Place>,
    file: Option<RecordFile>,
    row: Vec<u8>,
}

/// A row's place in the file: the evaluation before an iteration comes before it.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
struct Place {
    iter: u64,
    is_iteration: bool,
}

impl CsvSink {
    /// Writes `metrics.csv` in the folder, of at most `limit` bytes.
    pub fn new(out_dir: &Path, limit: u64, recorder: Recorder) -> CsvSink {
        let path = out_dir.join("metrics.csv");
        CsvSink { path, limit, recorder, start: 0, place: None, file: None, row: Vec::new() }
    }

    fn write(&mut self, point: &Point) -> Result<()> {
        // The first point of a resumed run may be a later iteration, where not all are logged.
        let is_again = point.is_evaluation && point.iter == self.start;
        let place = Place { iter: self.start, is_iteration: !is_again };
        let place = *self.place.get_or_insert(place);
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(open(&self.path, place, self.limit)?),
        };
        self.row.clear();
        if file.bytes() == 0 {
            self.row.extend(header().as_bytes());
        }
        let Point { iter, time, .. } = point;
        let (unix_time, seconds) = (time.unix_time, time.seconds);
        write!(self.row, "{},{iter},{unix_time},{seconds}", point.kind())?;
        for value in point.values() {
            self.row.push(b',');
            if let Some(value) = value {
                write!(self.row, "{value}")?;
            }
        }
        self.row.push(b'\n');
        file.append(&self.row)
    }
}

fn header() -> String {
    let names: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
    format!("{FIRST},{}\n", names.join(","))
}

/// Opens the file, and cuts off the rows that this run writes again.
fn open(path: &Path, place: Place, limit: u64) -> Result<RecordFile> {
    if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return Err(Error::other("it is not a regular file"));
    }
    let file = File::options().read(true).append(true).create(true).open(path)?;
    let whole = kept(&mut BufReader::new(&file), place)?;
    RecordFile::new(file, whole, limit)
}

/// Bytes of the rows before a place.
fn kept(lines: &mut impl BufRead, place: Place) -> Result<u64> {
    let (mut kept, mut line) = (0, Vec::new());
    loop {
        line.clear();
        let bytes = lines.by_ref().take(LONGEST).read_until(b'\n', &mut line)?;
        if bytes == 0 {
            return Ok(kept);
        }
        let is_cut = !line.ends_with(b"\n") && (bytes as u64) < LONGEST;
        let is_ours = match kept {
            0 if is_cut => header().as_bytes().starts_with(&line),
            0 => line == header().as_bytes(),
            _ => is_cut || place_of(&line).is_some(),
        };
        if !is_ours {
            let text = "it has other columns than this version writes: move it away";
            return Err(Error::new(ErrorKind::InvalidData, text));
        }
        if is_cut || (kept > 0 && place_of(&line).is_some_and(|found| found >= place)) {
            return Ok(kept);
        }
        kept += bytes as u64;
    }
}

fn place_of(row: &[u8]) -> Option<Place> {
    let mut fields = row.split(|byte| *byte == b',');
    let is_iteration = match fields.next()? {
        b"iter" => true,
        b"eval" => false,
        _ => return None,
    };
    let iter = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    Some(Place { iter, is_iteration })
}

impl Sink for CsvSink {
    fn name(&self) -> &'static str {
        "metrics.csv"
    }

    fn take(&mut self, event: &Event) -> std::result::Result<(), SinkError> {
        if let What::Start(start) = &event.what {
            self.recorder.start(start);
            (self.start, self.place, self.file) = (start.iter, None, None);
        }
        match self.recorder.point(event) {
            Some(point) => self.write(&point).map_err(|e| SinkFailed::csv(&self.path, e).into()),
            None => Ok(()),
        }
    }
}
