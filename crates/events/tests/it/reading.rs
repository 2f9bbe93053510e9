//! The log reader: both schema versions, torn lines, unknown kinds and versions.

use crate::fixture::{end, iteration, one_of_each, start};
use fitgpt_events::{Emitter, Entry, LogReader, LogSink, What};
use std::fs::File;
use std::path::{Path, PathBuf};

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
