//! Inputs that are not text: our own files in a folder that is prepared in place, and pipes. Also a
//! standard input that stays silent.

use crate::fixture::{TempDir, client, run_with};
use fitgpt_prepare::{Client, Hub, Job, Observer, Outcome, Progress};
use requires::{Need, absent};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const TEXT: &[u8] = b"It was the best of times, it was the worst of times. ".as_slice();

/// Keeps the notes.
#[derive(Default)]
struct Told(Vec<String>);

impl Observer for Told {
    fn note(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }
    fn progress(&mut self, _: &Progress) {}
}

/// As on some network file systems.
#[test]
fn a_folder_without_locks_is_prepared_and_the_user_told() {
    let dir = TempDir::new("no-locks");
    dir.write("input.txt", &TEXT.repeat(50));
    let mut client = client("http://127.0.0.1:9");
    client.try_lock = |_| {
        let error = std::io::Error::from(std::io::ErrorKind::Unsupported);
        Err(std::fs::TryLockError::Error(error))
    };
    let input = dir.path("input.txt").to_str().unwrap().to_owned();
    let job = Job::new(dir.request(&input, "out"), &client).unwrap();
    let mut told = Told::default();
    let outcome = fitgpt_prepare::run(job, &client, &mut told).unwrap();
    assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    let about = told.0.iter().filter(|note| note.contains("has no file locks")).count();
    assert_eq!(about, 1, "{:?}", told.0);
}

#[test]
fn a_folder_that_is_prepared_in_place_reads_nothing_of_its_own() {
    let dir = TempDir::new("in-dir");
    dir.write("set/input.txt", &TEXT.repeat(50));
    let set = dir.path("set").to_str().unwrap().to_owned();
    let client = client("http://127.0.0.1:9");
    let done = run_with(dir.request(&set, "set"), &client).unwrap();
    let (train, val) = (dir.read("set/train.bin"), dir.read("set/val.bin"));
    let again = run_with(dir.request(&set, "set"), &client).unwrap();
    assert_eq!(again, done);
    // The state after a kill: partial files and a journal.
    std::fs::rename(dir.path("set/train.bin"), dir.path("set/train.bin.part")).unwrap();
    let job = Job::new(dir.request(&set, "set"), &client).unwrap();
    assert_eq!(job.sources.len(), 1, "{:?}", job.sources);
    run_with(dir.request(&set, "set"), &client).unwrap();
    assert!(dir.read("set/train.bin") == train && dir.read("set/val.bin") == val);
}

#[test]
fn a_pipe_is_refused_with_the_way_that_works() {
    let dir = TempDir::new("pipe");
    let pipe = dir.path("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    if !made.is_ok_and(|status| status.success()) {
        return absent(Need::Mkfifo, "no mkfifo");
    }
    let request = dir.request(pipe.to_str().unwrap(), "out");
    let message = Job::new(request, &client("http://127.0.0.1:9")).unwrap_err().to_string();
    assert!(message.contains("give it as `-`"), "{message}");
}

struct Nobody;

impl Observer for Nobody {
    fn note(&mut self, _: &str) {}
    fn progress(&mut self, _: &Progress) {}
}

/// Stopping does not wait for a silent writer. Runs in its own process, whose standard input stays
/// open.
#[test]
fn a_silent_standard_input_is_left_at_once() {
    const SILENT: &str = "FITGPT_TEST_SILENT";
    if std::env::var_os(SILENT).is_some() {
        let dir = TempDir::new("silent");
        let stop = Arc::new(AtomicBool::new(false));
        let hub = Hub { endpoint: "http://127.0.0.1:9".to_owned(), token: None };
        let client = Client::new(hub, Arc::clone(&stop));
        let job = Job::new(dir.request("-", "out"), &client).unwrap();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            stop.store(true, Ordering::Relaxed);
        });
        let outcome = fitgpt_prepare::run(job, &client, &mut Nobody).unwrap();
        return assert!(matches!(outcome, Outcome::Interrupted(_)), "{outcome:?}");
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "own_files::a_silent_standard_input_is_left_at_once"])
        .env(SILENT, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let held = child.stdin.take();
    let start = Instant::now();
    let ended = loop {
        match child.try_wait().unwrap() {
            None if start.elapsed() < Duration::from_secs(15) => {
                std::thread::sleep(Duration::from_millis(20));
            }
            ended => break ended,
        }
    };
    drop(held);
    if ended.is_none() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
}
