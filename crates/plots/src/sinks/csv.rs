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
    /// The first iteration of the process, and the run's seconds before it. The last row that stays
    /// may be later than the checkpoint: an older version's does not have them, and an evaluation
    /// at the end comes after the save.
    start: u64,
    before: f64,
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
    pub fn new(out_dir: &Path, limit: u64) -> CsvSink {
        let (path, recorder) = (out_dir.join("metrics.csv"), Recorder::default());
        let (start, before, place, file, row) = (0, 0.0, None, None, Vec::new());
        CsvSink { path, limit, recorder, start, before, place, file, row }
    }

    fn write(&mut self, point: &Point) -> Result<()> {
        // The first point of a resumed run may be a later iteration, where not all are logged.
        let is_again = point.is_evaluation && point.iter == self.start;
        let place = Place { iter: self.start, is_iteration: !is_again };
        let place = *self.place.get_or_insert(place);
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let (file, seconds) = open(&self.path, place, self.limit)?;
                self.before = self.before.max(seconds);
                self.file.insert(file)
            }
        };
        self.row.clear();
        if file.bytes() == 0 {
            self.row.extend(header().as_bytes());
        }
        let Point { iter, time, .. } = point;
        // Sums of microseconds, without the digits that binary fractions add.
        let seconds = ((self.before + time.seconds) * 1e6).round() / 1e6;
        let unix_time = time.unix_time;
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

/// Opens the file, and cuts off the rows that this run writes again. Also returns the seconds of
/// the last row that stays.
fn open(path: &Path, place: Place, limit: u64) -> Result<(RecordFile, f64)> {
    if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return Err(Error::other("it is not a regular file: move it away"));
    }
    let file = File::options().read(true).append(true).create(true).open(path)?;
    let (whole, seconds) = kept(&mut BufReader::new(&file), place)?;
    Ok((RecordFile::new(file, whole, limit)?, seconds))
}

/// Bytes of the rows before a place, and the seconds of the last of them.
fn kept(lines: &mut impl BufRead, place: Place) -> Result<(u64, f64)> {
    let (mut kept, mut seconds, mut line) = (0, 0.0, Vec::new());
    loop {
        line.clear();
        let bytes = lines.by_ref().take(LONGEST).read_until(b'\n', &mut line)?;
        if bytes == 0 {
            return Ok((kept, seconds));
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
            return Ok((kept, seconds));
        }
        kept += bytes as u64;
        seconds = seconds_of(&line).unwrap_or(seconds);
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

fn seconds_of(row: &[u8]) -> Option<f64> {
    let field = row.split(|byte| *byte == b',').nth(3)?;
    let seconds: f64 = std::str::from_utf8(field).ok()?.parse().ok()?;
    seconds.is_finite().then_some(seconds)
}

impl Sink for CsvSink {
    fn name(&self) -> &'static str {
        "metrics.csv"
    }

    fn keeps_record(&self) -> bool {
        true
    }

    fn take(&mut self, event: &Event) -> std::result::Result<(), SinkError> {
        if let What::Start(start) = &event.what {
            self.recorder.start(start);
            (self.start, self.place, self.file) = (start.iter, None, None);
            self.before = start.seconds_before.unwrap_or(0.0);
        }
        match self.recorder.point(event) {
            Some(point) => self.write(&point).map_err(|e| SinkFailed::csv(&self.path, e).into()),
            None => Ok(()),
        }
    }
}
