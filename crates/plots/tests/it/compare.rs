//! Logs as runs, kills and resumptions leave them, and what is drawn of them.

use events::{LogReader, Reason};
use fitgpt_plots::compare::{By, Chart, LOSS, RunLog, VAL_LOSS, png, svg, terminal};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};

const BOTH: [&str; 2] = [VAL_LOSS, LOSS];

fn start(iter: u64) -> Value {
    json!({"kind": "start", "schema": "fitgpt.log/2", "iter": iter, "vocab_size": 65,
           "config": {"n_layer": 2}, "steps_hash": "", "version": "", "device": "cpu",
           "tokens_per_iteration": 100, "unix_time": 1.0, "seconds": 0.0})
}

fn iteration(iter: u64, loss: f64, seconds: f64) -> Value {
    json!({"kind": "iter", "iter": iter, "loss": loss, "lr": 0.1, "grad_norm": null,
           "loss_scale": 1.0, "tokens_per_second": 200.0, "ms": 500.0, "arena_bytes": 1,
           "device_bytes_seen": null, "resident_bytes": 5, "unix_time": 1.0, "seconds": seconds})
}

fn evaluation(iter: u64, loss: f64, seconds: f64) -> Value {
    json!({"kind": "eval", "iter": iter, "train_loss": loss, "val_loss": loss,
           "train_standard_error": 0.1, "val_standard_error": 0.1, "tokens": 10,
           "arena_bytes": 1, "device_bytes_seen": null, "note": null, "unix_time": 1.0,
           "seconds": seconds})
}

fn read(text: &str) -> RunLog {
    RunLog::read(LogReader::new(text.as_bytes()), &BOTH)
}

fn lines(lines: &[Value]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn values(log: &RunLog, curve: usize) -> Vec<(u64, f64)> {
    log.curves[curve].1.points().map(|at| (at.iter, at.value)).collect()
}

/// Killed after iteration 3, resumed from 2: the later lines count, and so does their time.
#[test]
fn of_repeated_iterations_the_later_counts() {
    let mut all = vec![start(0), evaluation(0, 4.0, 0.5)];
    all.extend([0, 1].map(|iter| iteration(iter, 3.0, 1.0 + iter as f64)));
    all.push(evaluation(2, 1.5, 2.5));
    all.extend([2, 3].map(|iter| iteration(iter, 3.0, 1.0 + iter as f64)));
    let torn = lines(&all) + &iteration(4, 3.0, 5.0).to_string()[..40] + "\n";
    let log = read(&torn);
    assert_eq!((log.iterations, log.end, log.unreadable), (4, None, 1));
    assert_eq!((log.best(), log.seconds), (Some((2, 1.5)), Some(4.0)));
    let again = [start(2), evaluation(2, 2.0, 0.5), iteration(2, 2.5, 1.0)];
    let log = read(&(torn + &lines(&again)));
    assert_eq!(values(&log, 1), [(0, 3.0), (1, 3.0), (2, 2.5)]);
    assert_eq!(values(&log, 0), [(0, 4.0), (2, 2.0)]);
    assert_eq!(log.best(), Some((2, 2.0)), "the lower loss was of the process that was killed");
    assert_eq!((log.iterations, log.tokens, log.resumed), (3, Some(300.0), 1));
    // Two seconds until iteration 1, half a second of them for an evaluation that is repeated.
    assert_eq!(log.seconds, Some(3.5));
    assert_eq!(log.last_loss(), Some(2.5));
    assert_eq!(log.tokens_per_second(), Some(200.0));
}

/// Resumed with another batch size, by a version that says how many tokens and seconds came before,
/// and by one that does not.
#[test]
fn tokens_and_seconds_are_sums_over_resumptions() {
    let first = [start(0), iteration(0, 3.0, 1.0), iteration(1, 3.0, 2.0)];
    let mut second = start(2);
    second["tokens_per_iteration"] = 10.into();
    let rest = [iteration(2, 2.0, 1.0), iteration(3, 2.0, 2.0)];
    let run =
        |start: &Value| read(&lines(&[&first[..], std::slice::from_ref(start), &rest].concat()));
    let old = run(&second);
    assert_eq!((old.tokens, old.seconds), (Some(220.0), Some(4.0)));
    // One timed iteration of 100 tokens, one of 10; each takes half a second.
    assert_eq!(old.tokens_per_second(), Some(110.0));
    let tokens: Vec<f64> = old.curves[1].1.points().map(|at| at.tokens).collect();
    assert_eq!(tokens, [100.0, 200.0, 210.0, 220.0]);
    second["tokens_before"] = 1000.into();
    second["seconds_before"] = 2.5.into();
    let new = run(&second);
    assert_eq!((new.tokens, new.seconds), (Some(1020.0), Some(4.5)));
    // The last point is later than the save: the time does not go back.
    second["seconds_before"] = 1.5.into();
    assert_eq!(run(&second).seconds, Some(4.0));
}

/// What a resumed run began with is in its first line.
#[test]
fn resume_is_not_what_a_run_began_with() {
    let [mut first, mut second] = [start(0), start(2)];
    first["config"]["init_from"] = "gpt2".into();
    second["config"]["init_from"] = "resume".into();
    assert_eq!(read(&lines(&[first, second.clone()])).config["init_from"], "gpt2");
    assert!(read(&lines(&[second])).config.get("init_from").is_none());
}

/// It needs what the device can do, which older logs do not say.
#[test]
fn mfu_is_the_share_of_the_peak() {
    let mut begin = start(0);
    let log = |begin: &Value| {
        let text = lines(&[begin.clone(), iteration(0, 3.0, 1.0), iteration(1, 3.0, 2.0)]);
        RunLog::read(LogReader::new(text.as_bytes()), &["mfu"])
    };
    assert_eq!(values(&log(&begin), 0), []);
    (begin["flops_per_token"], begin["peak_flops"]) = (5.into(), 4000.into());
    assert_eq!(values(&log(&begin), 0), [(0, 25.0), (1, 25.0)]);
}

/// A run that was never evaluated has its loss beside the others' val/loss, and the chart says so.
#[test]
fn a_run_without_evaluations_is_named() {
    let mut runs = two_runs();
    let only: Vec<Value> = (0..20).map(|iter| iteration(iter, 2.0, 1.0)).collect();
    runs.push(("bare".to_string(), read(&lines(&[vec![start(0)], only].concat()))));
    let chart = Chart::new(&runs, false, true);
    assert_eq!(chart.note(false), ["bare: loss instead, too few evaluations"]);
    assert!(
        svg(&chart, &By::ALL).contains("behind it: loss; bare: loss instead, too few evaluations")
    );
    assert!(Chart::new(&two_runs(), false, true).note(false).is_empty());
    let alone = Chart::new(&runs[2..], false, true);
    assert_eq!((alone.title.as_str(), alone.note(true).len()), ("loss", 0));
}

#[test]
fn what_only_evaluates_is_no_part_of_the_run() {
    let mut only = start(1);
    only["config"] = json!({"eval_only": true});
    let trained = [start(0), iteration(0, 3.0, 1.0), iteration(1, 2.0, 2.0)];
    let log = read(&(lines(&trained) + &lines(&[only, evaluation(1, 0.5, 1.0)])));
    assert_eq!((log.iterations, log.best(), log.resumed), (2, None, 0));
    assert_eq!(values(&log, 1).len(), 2);
    assert_eq!(log.config["n_layer"], 2);
}

#[test]
fn the_first_version_of_the_log_has_no_times() {
    let log = read(include_str!("../../../events/tests/data/log-1.jsonl"));
    assert!(log.iterations > 0 && log.best().is_some());
    assert_eq!((log.seconds, log.tokens), (None, Some(16.0 * log.iterations as f64)));
    let chart = Chart::new(&[("old".to_string(), log)], false, false);
    assert!(chart.is_empty(By::Time) && !chart.is_empty(By::Tokens));
    assert!(svg(&chart, &By::ALL).contains("no time in these logs"));
}

#[test]
fn an_end_is_read_and_an_empty_log_is_empty() {
    let end = json!({"kind": "end", "iter": 9, "reason": "diverged", "message": null,
                     "checkpoint": null, "unix_time": 1.0, "seconds": 7.0});
    let log = read(&lines(&[start(0), end]));
    assert_eq!((log.iterations, log.end), (9, Some(Reason::Diverged)));
    assert!(read("").is_empty() && read("").first_problem.is_none());
    let foreign = read("#!/bin/sh\necho\n");
    assert!(foreign.is_empty() && foreign.unreadable == 2 && foreign.first_problem.is_some());
}

fn two_runs() -> Vec<(String, RunLog)> {
    let run = |loss: f64| {
        let mut all = vec![start(0)];
        for iter in 0..100 {
            if iter % 10 == 0 {
                all.push(evaluation(iter, loss + 1.0 / (iter as f64 + 1.0), iter as f64));
            }
            all.push(iteration(iter, loss, iter as f64));
        }
        read(&lines(&all))
    };
    vec![("a<b&\"c\u{7}".to_string(), run(2.0)), ("b".to_string(), run(1.0))]
}

#[test]
fn pictures_are_whole_at_every_size() {
    for count in [0, 1, 2, 40] {
        let runs: Vec<_> = two_runs().into_iter().cycle().take(count).collect();
        let runs = if count == 0 { vec![("none".to_string(), read(""))] } else { runs };
        for is_logarithmic in [false, true] {
            let chart = Chart::new(&runs, is_logarithmic, true);
            for over in [&By::ALL[..], &[By::Time]] {
                let text = svg(&chart, over);
                assert!(text.ends_with("</svg>\n") && !text.contains("NaN"), "{text}");
                assert!(!text.contains('\u{7}'));
            }
            for (columns, rows) in [(0, 0), (1, 1), (20, 6), (44, 18), (300, 50)] {
                for letters in [false, true] {
                    let picture = terminal(&chart, By::Tokens, columns, rows, letters);
                    assert!(picture.iter().all(|row| row.len() == picture[0].len()));
                    assert!(picture[0].len() <= columns.max(22), "{columns}");
                    assert_eq!(picture.len(), rows.max(6));
                }
            }
        }
    }
    let text = svg(&Chart::new(&two_runs(), false, false), &By::ALL);
    assert!(text.contains("a&lt;b&amp;&quot;c "), "{text}");
}

/// The signature, the chunks' lengths and the pixels' number.
#[test]
fn a_png_is_well_formed() {
    let chart = Chart::new(&two_runs(), false, false);
    let bytes = png(&chart, &[By::Iteration]).unwrap();
    assert_eq!(bytes[..8], *b"\x89PNG\r\n\x1a\n");
    let (mut at, mut kinds) = (8, Vec::new());
    let mut pixels = Vec::new();
    while at < bytes.len() {
        let length = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        kinds.push(bytes[at + 4..at + 8].to_vec());
        if kinds.len() == 2 {
            let content = &bytes[at + 8..at + 8 + length];
            flate2::read::ZlibDecoder::new(content).read_to_end(&mut pixels).unwrap();
        }
        at += length + 12;
    }
    assert_eq!(kinds, [b"IHDR", b"IDAT", b"IEND"]);
    let size = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    assert_eq!(pixels.len(), (3 * size(16) + 1) * size(20));
}

/// The reader must not care how the file is cut into reads.
#[test]
fn small_reads_give_the_same_log() {
    let text = lines(&[start(0), iteration(0, 3.0, 1.0), evaluation(1, 2.0, 2.0)]);
    let mut small = BufReader::with_capacity(3, text.as_bytes());
    assert!(small.fill_buf().unwrap().len() <= 3);
    let log = RunLog::read(LogReader::new(small), &BOTH);
    assert_eq!((log.iterations, log.best()), (1, Some((1, 2.0))));
}
