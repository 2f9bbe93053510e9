//! The log reader: both schema versions, torn lines, unknown kinds and versions.

use crate::fixture::{end, iteration, one_of_each, start};
use fitgpt_events::{Emitter, Entry, LogReader, LogSink, What};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// A temporary file.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str) -> TempFile {
        TempFile(std::env::temp_dir().join(format!("fitgpt-{name}-{}.jsonl", std::process::id())))
    }

    fn append(&self, room: u64, is_torn: bool, whats: impl IntoIterator<Item = What>) {
        let file = File::options().create(true).append(true).open(&self.0).unwrap();
        let sink = LogSink::new(self.0.clone(), file, room, is_torn);
        let mut events = Emitter::new(vec![Box::new(sink)]).unwrap();
        whats.into_iter().for_each(|what| events.emit(what));
    }

    fn read(&self) -> Vec<Entry> {
        LogReader::open(&self.0).unwrap().map(Result::unwrap).collect()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A log with a resume, written by the version before events.
#[test]
fn a_log_of_the_first_version_is_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/log-1.jsonl");
    let entries: Vec<Entry> = LogReader::open(&path).unwrap().map(Result::unwrap).collect();
    assert!(entries.iter().all(|entry| entry.time.is_none()));
    let kinds: String = entries
        .iter()
        .map(|entry| match &entry.what {
            What::Start(_) => 's',
            What::Iteration(_) => 'i',
            What::Evaluated(_) => 'e',
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, "seiieiesei");
    let What::Start(start) = &entries[7].what else { panic!("{:?}", entries[7]) };
    assert_eq!((start.iter, start.schema.as_str()), (5, "fitgpt.log/1"));
    assert_eq!((&start.config["max_iters"], start.arena_bytes), (&6.into(), None));
    let What::Iteration(last) = entries[9].what else { panic!("{:?}", entries[9]) };
    assert_eq!((last.iter, last.loss, last.grad_norm), (6, 4.15369987487793, 1.0778322219848633));
    let What::Evaluated(found) = &entries[8].what else { panic!("{:?}", entries[8]) };
    assert_eq!((found.val_loss, found.best), (4.159303426742554, None));
}

#[test]
fn what_is_written_is_read_and_a_resumed_run_appends() {
    let scratch = TempFile::new("round-trip");
    let logged = || one_of_each().into_iter().filter(|what| !matches!(what, What::Evaluating(_)));
    for _ in 0..2 {
        scratch.append(u64::MAX, false, one_of_each());
    }
    let entries = scratch.read();
    assert!(entries.iter().all(|entry| entry.time.is_some_and(|time| time.unix_time > 1.7e9)));
    let whats: Vec<What> = entries.into_iter().map(|entry| entry.what).collect();
    assert_eq!(whats, Vec::from_iter(logged().chain(logged())));
}

#[test]
fn an_infinite_norm_is_read_as_nan() {
    let scratch = TempFile::new("infinite");
    let What::Iteration(mut report) = iteration(3) else { panic!() };
    report.grad_norm = f64::INFINITY;
    scratch.append(u64::MAX, false, [What::Iteration(report)]);
    let [Entry { what: What::Iteration(read), .. }] = scratch.read()[..] else { panic!() };
    assert!(read.grad_norm.is_nan() && read.loss == report.loss);
}

/// A kill cuts a line, a newer version adds a kind, a much newer one a schema.
#[test]
fn lines_that_cannot_be_read_are_named_and_the_rest_is_read() {
    let scratch = TempFile::new("torn");
    scratch.append(u64::MAX, false, [start(), iteration(0)]);
    let whole = std::fs::read(&scratch.0).unwrap();
    std::fs::write(&scratch.0, &whole[..whole.len() - 20]).unwrap();
    scratch.append(u64::MAX, true, [iteration(1)]);
    let mut text = std::fs::read_to_string(&scratch.0).unwrap();
    text += "{\"kind\":\"heartbeat\"}\n[]\n{\"kind\":\"start\",\"schema\":\"fitgpt.log/3\"}\n";
    let later = text.lines().next().unwrap().replace("fitgpt.log/2", "fitgpt.log/3");
    text += &format!("{later}\n{}\n", text.lines().nth(2).unwrap());
    let read: Vec<_> = LogReader::new(text.as_bytes()).collect();
    let wrong: Vec<u64> =
        read.iter().filter_map(|entry| entry.as_ref().err().map(|error| error.line)).collect();
    assert_eq!(wrong, [2, 5, 6, 7], "{read:?}");
    for entry in &read[4..6] {
        let error = entry.as_ref().unwrap_err().to_string();
        assert!(error.contains("does not know the schema 'fitgpt.log/3'"), "{error}");
    }
    assert_eq!(read.iter().filter(|entry| entry.is_ok()).count(), 3, "{read:?}");
}

/// `ulimit -f`: a line that does not fit is not begun.
#[test]
fn the_log_stops_before_its_limit() {
    let scratch = TempFile::new("limit");
    scratch.append(1000, false, (0..10).map(iteration).chain([end()]));
    let bytes = std::fs::metadata(&scratch.0).unwrap().len();
    assert!(bytes > 500 && bytes <= 1000, "{bytes}");
    assert!(scratch.read().len() >= 2);
}

/// A disk that is full now and then: after some bytes of a line, or before the first.
struct FullNowAndThen {
    written: Arc<Mutex<Vec<u8>>>,
    /// Bytes that each write takes; none: the disk is full.
    takes: std::vec::IntoIter<Option<usize>>,
}

impl Write for FullNowAndThen {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let most = self.takes.next().unwrap_or(Some(usize::MAX));
        let taken = most.ok_or(ErrorKind::StorageFull)?.min(bytes.len());
        self.written.lock().unwrap().extend(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_leaves_no_blank_line_and_one_torn_line_at_most() {
    // Line 0 is whole, 1 is lost, 2 comes in two parts, 3 is torn, 4 only begins a new line, 5 is
    // whole.
    let takes = [None, Some(9), Some(999), Some(7), None, Some(1), None];
    let takes = [&[Some(999)][..], &takes].concat().into_iter();
    let written = Arc::new(Mutex::new(Vec::new()));
    let disk = FullNowAndThen { written: Arc::clone(&written), takes };
    let sink = LogSink::new(PathBuf::from("log.jsonl"), disk, u64::MAX, false);
    let mut events = Emitter::new(vec![Box::new(sink)]).unwrap();
    (0..6).for_each(|number| events.emit(iteration(number)));
    drop(events);
    let bytes = written.lock().unwrap().clone();
    let text = String::from_utf8(bytes).unwrap();
    let iterations = |entry: Result<Entry, _>| match entry.map(|entry| entry.what) {
        Ok(What::Iteration(report)) => Some(report.iter),
        _ => None,
    };
    let read: Vec<_> = LogReader::new(text.as_bytes()).map(iterations).collect();
    assert_eq!(read, [Some(0), Some(2), None, Some(5)], "{text}");
    assert!(text.lines().all(|line| !line.is_empty()), "{text}");
}

#[test]
fn an_error_that_quotes_its_line_is_one_short_line() {
    let noise = "no\\nsuch\\u0007".repeat(5000);
    for text in [
        format!("{{\"kind\":\"start\",\"schema\":\"{noise}\"}}"),
        format!("{{\"kind\":\"end\",\"iter\":0,\"reason\":\"{noise}\"}}"),
    ] {
        let error = LogReader::new(text.as_bytes()).next().unwrap().unwrap_err().to_string();
        assert!(error.len() < 500 && !error.contains(char::is_control), "{error}");
    }
}

/// A line of a foreign program, larger than any of ours, and blank lines of older versions.
#[test]
fn a_long_line_is_one_error_and_blank_lines_are_none() {
    let scratch = TempFile::new("long");
    scratch.append(u64::MAX, false, [iteration(7)]);
    let good = std::fs::read_to_string(&scratch.0).unwrap();
    for long in [1 << 18, 3 << 20] {
        let text = format!("\n{good}  \r\n{}\n\n{good}", "x".repeat(long));
        let read: Vec<_> = LogReader::new(text.as_bytes()).collect();
        assert_eq!(read.len(), 3, "{read:?}");
        assert_eq!(read[1].as_ref().unwrap_err().line, 4);
        assert!(read[0].is_ok() && read[2].is_ok(), "{read:?}");
    }
}
