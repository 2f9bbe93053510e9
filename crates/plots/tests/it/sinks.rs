//! What each sink writes: a whole run, a kill in the middle of a line, a resumption, a foreign
//! file, a folder that cannot be written.

use crate::fixture::{TempDir, at, end, evaluation, give, iteration, start};
use events::{Event, Sink, What};
use fitgpt_plots::{CsvSink, TensorBoardSink, TrackioRun, TrackioSink, trackio_inbox};
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

const NO_LIMIT: u64 = u64::MAX;

fn csv(dir: &TempDir) -> CsvSink {
    CsvSink::new(&dir.0, NO_LIMIT)
}

fn board(dir: &TempDir) -> TensorBoardSink {
    TensorBoardSink::new(&dir.0, NO_LIMIT)
}

fn trackio(dir: &TempDir) -> TrackioSink {
    let run = TrackioRun { project: "owt".to_string(), name: Some("gpt2".to_string()) };
    TrackioSink::new(&dir.0.join("inbox"), &dir.0, run, NO_LIMIT)
}

/// Iterations from `first` to `last`, with an evaluation before every tenth.
fn run(first: u64, last: u64, loss: f64) -> Vec<Event> {
    let mut events = vec![start(first)];
    for iter in first..=last {
        if iter.is_multiple_of(10) {
            events.push(evaluation(iter, loss));
        }
        events.push(iteration(iter, loss));
    }
    events
}

/// Kind and iteration of each row.
fn rows(dir: &TempDir) -> Vec<String> {
    let text = dir.read("metrics.csv");
    assert!(text.ends_with('\n'));
    let row = |line: &str| line.splitn(3, ',').take(2).collect::<Vec<_>>().join(" ");
    text.lines().skip(1).map(row).collect()
}

#[test]
fn a_row_has_the_values_of_its_event() {
    let dir = TempDir::new();
    give(&mut csv(&dir), &[start(0), evaluation(0, 3.5), iteration(0, 3.25), end(1)]);
    let want = "kind,iter,unix_time,seconds,train/loss,val/loss,train/standard_error,\
                val/standard_error,loss,lr,mfu,grad_norm,loss_scale,tokens_per_second,ms,tokens,\
                device_bytes_seen,resident_bytes\n\
                eval,0,1795010709.25,0,3.5,4,0.25,0.125,,,,,,,,,,\n\
                iter,0,1795010709.25,0,,,,,3.25,0.001,20,0.5,1,10000,10,100,,4096\n";
    assert_eq!(dir.read("metrics.csv"), want);
}

#[test]
fn a_resumed_run_replaces_its_rows_and_a_cut_line() {
    let dir = TempDir::new();
    give(&mut csv(&dir), &run(0, 25, 3.0));
    let path = dir.0.join("metrics.csv");
    let text = dir.read("metrics.csv");
    std::fs::write(&path, &text[..text.len() - 20]).unwrap();
    give(&mut csv(&dir), &run(20, 22, 2.0));
    let rows = rows(&dir);
    assert_eq!(rows.len(), 23 + 3);
    assert_eq!(rows[21..], ["iter 19", "eval 20", "iter 20", "iter 21", "iter 22"]);
    // The run had trained for 20 seconds when it was saved.
    assert!(dir.read("metrics.csv").contains("iter,20,1795010709.45,20.2,,,,,2,"));
}

/// A checkpoint of an older version does not have the time of training.
#[test]
fn seconds_go_on_from_the_last_row_where_nothing_else_is_known() {
    let dir = TempDir::new();
    give(&mut csv(&dir), &run(0, 25, 3.0));
    let mut events = run(20, 22, 2.0);
    unsaid(&mut events[0]);
    give(&mut csv(&dir), &events);
    let text = dir.read("metrics.csv");
    // Iteration 19 is at 0.19 seconds, iteration 20 at 0.2 of its process.
    assert!(text.contains("\niter,20,1795010709.45,0.39,"), "{text}");
}

/// A start as an older version logged it.
fn unsaid(event: &mut Event) {
    let What::Start(start) = &mut event.what else { panic!("{event:?}") };
    let start = std::sync::Arc::make_mut(start);
    (start.tokens_before, start.seconds_before) = (None, None);
}

/// Resumed with batches of another size: the sum counts, not iterations times tokens.
#[test]
fn tokens_are_a_running_sum() {
    let dir = TempDir::new();
    give(&mut csv(&dir), &run(0, 9, 3.0));
    let mut events = run(10, 11, 2.0);
    let What::Start(start) = &mut events[0].what else { panic!("no start") };
    std::sync::Arc::make_mut(start).tokens_per_iteration = Some(7);
    give(&mut csv(&dir), &events);
    let text = dir.read("metrics.csv");
    let tokens = |iter: &str| {
        let row = text.lines().find(|line| line.starts_with(iter)).unwrap();
        row.split(',').nth(15).unwrap().to_string()
    };
    assert_eq!(tokens("kind"), "tokens");
    assert_eq!(["iter,9,", "iter,10,", "iter,11,"].map(tokens), ["1000", "1007", "1014"]);
}

/// The evaluation after the last iteration has the number that an extended run starts with, but is
/// not repeated.
#[test]
fn the_last_evaluation_of_a_run_stays() {
    let dir = TempDir::new();
    let mut events = run(0, 4, 3.0);
    events.extend([evaluation(5, 2.5), end(5)]);
    give(&mut csv(&dir), &events);
    // Resumed and already finished: nothing changes.
    let before = dir.read("metrics.csv");
    give(&mut csv(&dir), &[start(5), end(5)]);
    assert_eq!(dir.read("metrics.csv"), before);
    // The evaluation came 7 seconds after the save: the time does not go back.
    let text = before.replace("eval,5,1795010709.3,0.05,", "eval,5,1795010709.3,12,");
    assert_ne!(text, before);
    std::fs::write(dir.0.join("metrics.csv"), text).unwrap();
    give(&mut csv(&dir), &[start(5), iteration(6, 2.0)]);
    assert_eq!(rows(&dir)[5..], ["iter 4", "eval 5", "iter 6"]);
    let text = dir.read("metrics.csv");
    assert!(text.contains("\niter,6,1795010709.31,12.06,"), "{text}");
}

#[test]
fn a_foreign_file_is_not_touched() {
    for content in ["a,b\n1,2\n", "kind,iter\niter,1\n", "\u{0}", &"x".repeat(10_000)] {
        let dir = TempDir::new();
        std::fs::write(dir.0.join("metrics.csv"), content).unwrap();
        let mut sink = csv(&dir);
        sink.take(&start(0)).unwrap();
        let error = sink.take(&iteration(0, 3.0)).unwrap_err().to_string();
        assert!(error.contains("metrics.csv: cannot write the CSV file: it has other"), "{error}");
        assert_eq!(dir.read("metrics.csv"), content);
    }
}

/// Every failure names the file, the reason and the key; a later event may succeed.
#[test]
fn a_folder_that_cannot_be_written_is_an_error_each_time() {
    let dir = TempDir::new();
    std::fs::write(dir.0.join("file"), "").unwrap();
    let out_dir = dir.0.join("file");
    let run = TrackioRun { project: "p".to_string(), name: Some("r".to_string()) };
    let sinks: [(Box<dyn Sink>, &str); 3] = [
        (Box::new(CsvSink::new(&out_dir, NO_LIMIT)), "leave out csv=True"),
        (Box::new(TensorBoardSink::new(&out_dir, NO_LIMIT)), "tensorboard=True"),
        (Box::new(TrackioSink::new(&out_dir, &dir.0, run, NO_LIMIT)), "trackio=True"),
    ];
    for (mut sink, want) in sinks {
        sink.take(&start(0)).unwrap();
        for _ in 0..2 {
            let error = sink.take(&evaluation(0, 3.0)).unwrap_err().to_string();
            assert!(error.contains("/file") && error.ends_with(want), "{error}");
            assert!(error.contains("; move away what is in its place, or leave out "), "{error}");
            assert!(!error.contains("space"), "{error}");
        }
    }
}

/// Where `ulimit -f` is reached, whole records stay.
#[test]
fn a_file_ends_with_a_whole_record() {
    let dir = TempDir::new();
    let mut sink = CsvSink::new(&dir.0, 400);
    sink.take(&start(0)).unwrap();
    let taken = (0..10).filter(|iter| sink.take(&iteration(*iter, 3.0)).is_ok()).count();
    let error = sink.take(&iteration(10, 3.0)).unwrap_err().to_string();
    assert!(error.contains("raise the limit (`ulimit -f`), or leave out csv=True"), "{error}");
    assert!((1..9).contains(&taken));
    assert_eq!(rows(&dir).len(), taken);
}

fn event_files(dir: &TempDir) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir.0.join("tensorboard")).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Lengths of the records in a file; their checksums are tested beside the format.
fn records(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).unwrap();
    let (mut at, mut found) = (0, Vec::new());
    while at < bytes.len() {
        let length = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
        found.push(bytes[at + 12..at + 12 + length].to_vec());
        at += length + 16;
    }
    found
}

/// Each session is a file whose name comes after the others, although the clock says the same.
#[test]
fn each_session_has_an_event_file() {
    let dir = TempDir::new();
    give(&mut board(&dir), &run(0, 3, 3.0));
    give(&mut board(&dir), &run(2, 3, 3.0));
    give(&mut board(&dir), &[start(4), end(4)]);
    let files = event_files(&dir);
    assert_eq!(files.len(), 2, "a session without points has none: {files:?}");
    let first = records(&files[0]);
    // Version, session, config; then an evaluation and four iterations.
    assert_eq!(first.len(), 3 + 5);
    assert!(first[0].ends_with(b"brain.Event:2"));
    assert!(first[1].ends_with(&[0x10, 0, 0x3a, 2, 8, 1]), "{:?}", first[1]);
    assert!(first[3].windows(8).any(|part| part == b"val/loss"));
    let again = &records(&files[1])[1];
    assert!(again.ends_with(&[0x10, 2, 0x3a, 2, 8, 1]), "{again:?}");
}

/// Steps of the records with a tag, as TensorBoard shows them: a session forgets what was there of
/// its first step and later ones.
fn shown(dir: &TempDir, tag: &str) -> Vec<u8> {
    let mut steps: Vec<u8> = Vec::new();
    for record in event_files(dir).iter().flat_map(|path| records(path)) {
        // The time has nine bytes; steps below 128 have one.
        let (step, body) = (record[10], &record[11..]);
        if body[0] == 0x3a {
            steps.retain(|found| *found < step);
        } else if body.windows(tag.len()).any(|part| part == tag.as_bytes()) {
            steps.push(step);
        }
    }
    steps
}

/// Stopped after iteration 4, resumed, killed after 8, resumed again: each step once.
#[test]
fn a_repeated_step_is_shown_once() {
    let dir = TempDir::new();
    give(&mut board(&dir), &run(0, 4, 3.0));
    give(&mut board(&dir), &run(5, 8, 3.0));
    give(&mut board(&dir), &run(5, 6, 2.0));
    assert_eq!(shown(&dir, "grad_norm"), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(shown(&dir, "val/loss"), [0]);
}

/// The evaluation and the sample after the last iteration have the number that an extended run
/// starts with. They are not repeated, and stay; its iteration is repeated after a kill.
#[test]
fn the_end_of_a_run_is_kept_when_it_is_extended() {
    let dir = TempDir::new();
    let text = "once".to_string();
    let sample = What::Sample(std::sync::Arc::new(events::Sample { iter: 5, text }));
    let mut events = run(0, 4, 3.0);
    events.extend([evaluation(5, 2.5), at(5.0, sample)]);
    give(&mut board(&dir), &events);
    for last in [7, 6] {
        give(&mut board(&dir), &run(5, last, 2.0));
        assert_eq!((shown(&dir, "val/loss"), shown(&dir, "sample")), (vec![0, 5], vec![5]));
    }
    assert_eq!(shown(&dir, "grad_norm"), [0, 1, 2, 3, 4, 5, 6]);
    // What follows a damaged record is not there, and nothing of it is kept.
    let last = event_files(&dir).pop().unwrap();
    let mut bytes = std::fs::read(&last).unwrap();
    bytes[60] ^= 1;
    std::fs::write(&last, bytes).unwrap();
    give(&mut board(&dir), &run(5, 5, 2.0));
    assert_eq!(shown(&dir, "grad_norm").last(), Some(&5));
}

fn fragments(dir: &TempDir) -> Vec<Value> {
    let folders = std::fs::read_dir(dir.0.join("inbox")).unwrap();
    let mut files: Vec<PathBuf> = folders
        .flat_map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap())
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let texts = files.iter().map(|path| {
        assert!(path.extension().is_some_and(|ending| ending == "jsonl"), "{path:?}");
        std::fs::read_to_string(path).unwrap()
    });
    let lines: Vec<String> =
        texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn trackio_gets_lines_in_files_that_never_change() {
    let dir = TempDir::new();
    let mut events = run(0, 3, f64::INFINITY);
    events.push(end(4));
    give(&mut trackio(&dir), &events);
    let lines = fragments(&dir);
    assert_eq!(lines.len(), 5);
    let first = &lines[0];
    assert_eq!(first["config"]["n_layer"], 2);
    assert_eq!((&first["project"], &first["run"]), (&"owt".into(), &"gpt2".into()));
    assert_eq!(first["timestamp"], "2026-11-18T14:05:09.250000+00:00");
    assert_eq!(first["metrics"]["train/loss"], "Infinity");
    assert_eq!((&lines[4]["step"], &lines[4]["metrics"]["tokens"]), (&3.into(), &400.0.into()));
    assert!(lines[1..].iter().all(|line| line["config"].is_null()));
    // A kill left half a file; `fragments` finds none.
    let folder = std::fs::read_dir(dir.0.join("inbox")).unwrap().next().unwrap().unwrap();
    std::fs::write(folder.path().join("00000009.tmp"), b"{\"step\":").unwrap();
    // A resumed run is the same run. What it writes again has the same id, and replaces what
    // trackio has not imported yet.
    give(&mut trackio(&dir), &[start(3), iteration(3, 2.0), end(4)]);
    let again = fragments(&dir);
    assert_eq!(again.len(), 5);
    let repeated: Vec<&Value> = again.iter().filter(|line| line["step"] == 3).collect();
    assert_eq!(repeated.len(), 1);
    assert_eq!(repeated[0]["metrics"]["loss"], 2.0);
    let ids = |field: &str| {
        again.iter().map(|line| line[field].to_string()).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!((ids("run_id").len(), ids("log_id").len()), (1, 5));
    // A new run in the same folder is another one.
    give(&mut trackio(&dir), &run(0, 0, 2.0));
    let all = fragments(&dir);
    assert!(all.iter().any(|line| line["run_id"] != first["run_id"]));
}

/// Points are collected for a second, but a checkpoint does not come before its points.
#[test]
fn trackio_gets_what_was_collected_before_a_checkpoint() {
    let dir = TempDir::new();
    let mut sink = trackio(&dir);
    assert!(sink.keeps_record());
    sink.settle().unwrap();
    sink.take(&start(0)).unwrap();
    (0..2).for_each(|iter| sink.take(&iteration(iter, 3.0)).unwrap());
    assert!(!dir.0.join("inbox").exists() || fragments(&dir).is_empty());
    sink.settle().unwrap();
    assert_eq!(fragments(&dir).len(), 2);
}

/// Without `wandb_run_name`: the folder and the start. A resumed run keeps the name.
#[test]
fn a_run_without_a_name_gets_one() {
    let dir = TempDir::new();
    let (inbox, out_dir) = (dir.0.join("inbox"), dir.0.join("out-char"));
    std::fs::create_dir(&out_dir).unwrap();
    let sink = |name: Option<&str>| {
        let run = TrackioRun { project: "owt".to_string(), name: name.map(str::to_string) };
        TrackioSink::new(&inbox, &out_dir, run, NO_LIMIT)
    };
    let names = || -> std::collections::BTreeSet<String> {
        fragments(&dir).iter().map(|line| line["run"].as_str().unwrap().to_string()).collect()
    };
    let later = |mut events: Vec<Event>| {
        events.iter_mut().for_each(|event| event.time.unix_time += 100.0);
        events
    };
    give(&mut sink(None), &[run(0, 3, 3.0), vec![end(4)]].concat());
    give(&mut sink(None), &later([run(4, 5, 3.0), vec![end(6)]].concat()));
    assert_eq!(Vec::from_iter(names()), ["out-char-20261118-140509"]);
    // Another run in the same folder, and one with a name.
    give(&mut sink(None), &later([run(0, 3, 3.0), vec![end(4)]].concat()));
    give(&mut sink(Some("mine")), &[run(0, 3, 3.0), vec![end(4)]].concat());
    let all = ["mine", "out-char-20261118-140509", "out-char-20261118-140649"];
    assert_eq!(Vec::from_iter(names()), all);
}

/// A run of ten hours, one iteration a second: not one file for each.
#[test]
fn long_runs_leave_few_files() {
    let dir = TempDir::new();
    let mut sink = trackio(&dir);
    let mut later = |iter: u64, event: Event| {
        let mut event = event;
        event.time.seconds = iter as f64;
        sink.take(&event).unwrap();
    };
    later(0, start(0));
    (0..36_000).for_each(|iter| later(iter, iteration(iter, 3.0)));
    later(36_000, end(36_000));
    let folder = std::fs::read_dir(dir.0.join("inbox")).unwrap().next().unwrap().unwrap();
    let files = std::fs::read_dir(folder.path()).unwrap().count();
    assert!(files < 3000, "{files}");
}

#[test]
fn the_inbox_is_where_trackio_looks() {
    let inbox = |trackio: Option<&str>, home: Option<&str>| {
        trackio_inbox(trackio.map(OsString::from), home.map(PathBuf::from))
    };
    for (trackio, home, want) in [
        (Some("/t"), Some("/h"), Some("/t/inbox")),
        (Some("/t"), None, Some("/t/inbox")),
        (Some(""), Some("/h"), Some("/h/trackio/inbox")),
        (None, Some("/h"), Some("/h/trackio/inbox")),
        (None, None, None),
    ] {
        assert_eq!(inbox(trackio, home), want.map(PathBuf::from));
    }
}
