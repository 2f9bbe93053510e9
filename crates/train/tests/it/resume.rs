//! Promise 5: a run that was stopped resumes bit for bit; and evaluation changes nothing.

use crate::fixture::{TempDir, TinyFeed, go, go_shared, run_spec, try_with, weights};
use data::Split;
use events::{Entry, LogReader, Reason, What};
use fitgpt_train::TrainError;
use fitgpt_train::engine::{Engine, Rows};
use fitgpt_train::feed::Feed;
use fitgpt_train::run::Outcome;
use serde_json::Value;
use spec::RunSpec;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

type Go = fn(&RunSpec, Option<u64>) -> (Outcome, Engine, Vec<(u64, u64)>);

#[test]
fn a_stopped_run_goes_on_bit_for_bit() {
    check("pure", go);
}

/// Evaluations draw from training's stream here: the saved state must be the one before them.
#[test]
fn and_so_does_one_whose_batches_share_a_generator() {
    check("shared", go_shared);
}

#[test]
fn a_finished_run_stays_as_it_is() {
    let folder = TempDir::new("finished");
    let spec = run_spec(&folder.0, &[]);
    let (outcome, mut engine, _) = go(&spec, None);
    let (again, mut unchanged, losses) = go(&spec, None);
    assert_eq!((again.iteration, losses.len()), (outcome.iteration, 0));
    assert_eq!(weights(&mut unchanged), weights(&mut engine));
    // Its evaluation can be had, wherever it stands; moments are not needed for it.
    let (evaluated, _, losses) = go(&run_spec(&folder.0, &["--eval_only=True"]), None);
    assert!(losses.is_empty() && evaluated.evaluation.is_some());
}

fn check(name: &str, go: Go) {
    let whole = TempDir::new(&format!("{name}-whole"));
    let (outcome, mut engine, losses) = go(&run_spec(&whole.0, &[]), None);
    assert_eq!((outcome.iteration, outcome.interrupted), (9, false), "max_iters=8 runs 9");
    let want = weights(&mut engine);
    for stop_after in 0..8 {
        let folder = TempDir::new(&format!("{name}-stopped-{stop_after}"));
        let spec = run_spec(&folder.0, &[]);
        let (outcome, _, first) = go(&spec, Some(stop_after));
        assert_eq!((outcome.iteration, outcome.interrupted), (stop_after + 1, true));
        assert_eq!(end_of(&folder), (stop_after + 1, Reason::Interrupted, None));
        let (outcome, mut engine, rest) = go(&spec, None);
        assert_eq!(outcome.iteration, 9);
        assert_eq!([first, rest].concat(), losses, "stopped after {stop_after}");
        assert_eq!(weights(&mut engine), want, "stopped after {stop_after}");
    }
}

#[test]
fn evaluation_never_changes_training() {
    let often = TempDir::new("often");
    let seldom = TempDir::new("seldom");
    let (_, mut a, _) = go(&run_spec(&often.0, &["--eval_interval=1"]), None);
    let (_, mut b, _) = go(&run_spec(&seldom.0, &["--eval_interval=100"]), None);
    assert_eq!(weights(&mut a), weights(&mut b));
}

#[test]
fn eval_only_evaluates_once_and_writes_no_checkpoint() {
    let folder = TempDir::new("eval-only");
    let (outcome, _, losses) = go(&run_spec(&folder.0, &["--eval_only=True"]), None);
    assert!(losses.is_empty() && outcome.evaluation.is_some());
    assert_eq!(outcome.checkpoint, None);
    assert_eq!(end_of(&folder), (0, Reason::Finished, None));
}

/// A feed that fails, or panics, at its fifth iteration.
struct BrokenFeed {
    panics: bool,
}

impl Feed for BrokenFeed {
    fn train(&mut self, iteration: u64, rows: &mut Rows) -> Result<(), TrainError> {
        match (iteration, self.panics) {
            (4, false) => Err(TrainError::EmptyPrompt),
            (4, true) => panic!("planted"),
            _ => TinyFeed.train(iteration, rows),
        }
    }

    fn eval(&mut self, split: Split, at: u64, batch: u64, to: &mut Rows) -> Result<(), TrainError> {
        TinyFeed.eval(split, at, batch, to)
    }

    fn mark(&mut self) {}

    fn rewind(&mut self) {}

    fn state(&self) -> Value {
        Value::Null
    }

    fn restore(&mut self, _: &Value) -> Result<(), TrainError> {
        Ok(())
    }
}

#[test]
fn a_run_that_fails_logs_its_end() {
    let folder = TempDir::new("failing");
    let spec = run_spec(&folder.0, &[]);
    let (ended, ..) = try_with(&spec, None, &mut BrokenFeed { panics: false });
    let error = ended.unwrap_err().to_string();
    assert_eq!(end_of(&folder), (4, Reason::Error, Some(error)));
}

#[test]
fn a_run_that_panics_logs_its_end() {
    let folder = TempDir::new("panicking");
    let spec = run_spec(&folder.0, &[]);
    let run = AssertUnwindSafe(|| try_with(&spec, None, &mut BrokenFeed { panics: true }));
    let panic = catch_unwind(run).map(|_| ()).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"planted"), "it is still the same panic");
    let bug = "a bug in fitgpt ended the run".to_string();
    // The batch of iteration 4 is drawn during iteration 3.
    assert_eq!(end_of(&folder), (3, Reason::Error, Some(bug)));
}

/// No room for `best`: the evaluation that found it is not lost.
#[test]
fn an_evaluation_is_logged_before_its_checkpoint_is_kept() {
    let folder = TempDir::new("no-best");
    std::fs::create_dir_all(folder.0.join("best.safetensors/occupied")).unwrap();
    let (ended, ..) = try_with(&run_spec(&folder.0, &[]), None, &mut TinyFeed);
    let error = ended.unwrap_err().to_string();
    // It may be found only when the next checkpoint is written.
    let (iter, reason, message) = end_of(&folder);
    assert_eq!((reason, message), (Reason::Error, Some(error)));
    assert!((3..=6).contains(&iter), "{iter}");
    let log = LogReader::open(&folder.0.join("log.jsonl")).unwrap();
    let evaluated = log.filter_map(|entry| match entry.unwrap().what {
        What::Evaluated(found) => Some((found.iter, found.best.unwrap())),
        _ => None,
    });
    assert_eq!(Vec::from_iter(evaluated)[..2], [(0, true), (3, true)]);
}

#[test]
fn the_log_has_a_line_for_everything() {
    let folder = TempDir::new("log");
    go(&run_spec(&folder.0, &[]), None);
    let log = LogReader::open(&folder.0.join("log.jsonl")).unwrap();
    let entries: Vec<Entry> = log.map(Result::unwrap).collect();
    let (mut iterations, mut evaluations, mut saves) = (Vec::new(), Vec::new(), Vec::new());
    for entry in &entries {
        match &entry.what {
            What::Iteration(report) => iterations.push(report.iter),
            What::Evaluated(found) => evaluations.push((found.iter, found.best.unwrap())),
            What::Save(save) => saves.push((save.iter, save.path.contains("best."))),
            _ => {}
        }
    }
    assert_eq!(iterations, Vec::from_iter(0..9));
    assert_eq!(Vec::from_iter(evaluations.iter().map(|(at, _)| *at)), [0, 3, 6]);
    assert!(evaluations[0].1);
    // `last` at each evaluation and at the end, `best` after each that was the best.
    let (best, last): (Vec<_>, Vec<_>) = saves.into_iter().partition(|(_, is_best)| *is_best);
    assert_eq!(last, [3, 6, 9].map(|at| (at, false)));
    let were_best = evaluations.iter().filter(|(at, is_best)| *at > 0 && *is_best);
    assert_eq!(best, Vec::from_iter(were_best.copied()));
    assert!(!best.is_empty(), "a test of nothing");
    assert!(matches!(&entries[0].what, What::Start(start) if start.arena_bytes > Some(0)));
    let What::End(end) = &entries[entries.len() - 1].what else { panic!("{entries:?}") };
    assert_eq!((end.iter, end.reason), (9, Reason::Finished));
    assert!(end.checkpoint.as_ref().unwrap().ends_with("last.safetensors"));
    assert!(Path::new(&folder.0).join("best.safetensors").exists());
}

/// Why a run ended, according to its log.
fn end_of(folder: &TempDir) -> (u64, Reason, Option<String>) {
    let log = LogReader::open(&folder.0.join("log.jsonl")).unwrap();
    match log.last().unwrap().unwrap().what {
        What::End(end) => (end.iter, end.reason, end.message.clone()),
        other => panic!("{other:?}"),
    }
}

/// A stop is requested after a step that broke the weights: they must not be saved.
#[test]
fn a_stop_after_a_spoilt_step_keeps_the_checkpoint_before() {
    let folder = TempDir::new("spoilt-stop");
    go(&run_spec(&folder.0, &["--max_iters=3"]), None);
    let last = folder.0.join("last.safetensors");
    let before = std::fs::read(&last).unwrap();
    for rate in ["1e15", "1e25", "1e38"] {
        let rate = format!("--learning_rate={rate}");
        let wild = [&rate, "--decay_lr=False", "--eval_interval=100"];
        let (ended, _, losses) = try_with(&run_spec(&folder.0, &wild), Some(4), &mut TinyFeed);
        assert_eq!(losses.len(), 1, "one step was done, and its loss was a number");
        let error = ended.unwrap_err();
        assert_eq!(error.exit_code(), 1, "{error}");
        assert_eq!(end_of(&folder), (5, Reason::Diverged, Some(error.to_string())));
        assert!(error.to_string().contains("lower learning_rate"), "{error}");
        assert!(std::fs::read(&last).unwrap() == before, "{rate}");
    }
    assert_eq!(go(&run_spec(&folder.0, &[]), None).0.iteration, 9);
}
