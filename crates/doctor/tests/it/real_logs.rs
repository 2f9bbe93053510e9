//! Logs of real failures: nanoGPT under a cap of 11.69 GiB. Checks the tensor, the phase, and what
//! held the memory.

use fitgpt_doctor::account::{Account, What};
use fitgpt_doctor::log::Log;
use fitgpt_doctor::recovered::RecoveredRun;
use fitgpt_doctor::tensor::{Confidence, Named, of_run};
use fitgpt_doctor::torch::{Played, play};
use plan::Dtype;
use spec::World;

pub fn recovered(log: &Log) -> (RecoveredRun, Played) {
    let nothing = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    let world = World { read: &nothing, unix_time: 0.0 };
    let recovered = RecoveredRun::recover(Some(log), &[], &world, None, |_| None).unwrap().unwrap();
    assert!(recovered.agrees_with(log), "the log's count of parameters is this model's");
    let played = play(&recovered.torch).unwrap();
    (recovered, played)
}

fn read(text: &str) -> (Log, Named, Vec<(What, u64)>) {
    let log = Log::read(text.as_bytes());
    let (_, played) = recovered(&log);
    let named = of_run(&log, &played).unwrap();
    let rows = Account::new(&log, named.birth.as_ref().map(|birth| (&played, birth))).rows;
    println!(
        "{} {:?} {:?} {:?}\n  {rows:?}",
        log.traceback.phase.name(),
        named.name,
        named.shape,
        named.alternatives
    );
    (log, named, rows)
}

fn gib(rows: &[(What, u64)], what: What) -> f64 {
    let row = rows.iter().find(|(row, _)| *row == what);
    row.map_or(0.0, |(_, bytes)| *bytes as f64 / (1u64 << 30) as f64)
}

#[test]
fn eager_dies_in_cross_entropy() {
    let (log, named, rows) = read(include_str!("../logs/eager_124m_batch_64.log"));
    assert_eq!(log.traceback.phase.name(), "first_eval");
    assert_eq!(named.name, "copy of the logits in cross-entropy");
    assert_eq!((named.shape, named.dtype), (vec![65536, 50304], Dtype::Bf16));
    assert_eq!(named.confidence, Confidence::Certain);
    assert!((gib(&rows, What::Logits) - 6.14).abs() < 0.01);
    assert!(gib(&rows, What::Unexplained) < 0.4, "{rows:?}");
    assert_eq!(log.run.unrelated, ["GradScaler FutureWarning"]);
}

#[test]
fn compiled_code_dies_on_the_second_batch() {
    let (log, named, rows) = read(include_str!("../logs/compiled_124m_batch_64.log"));
    assert_eq!(log.traceback.phase.name(), "first_eval");
    assert_eq!(named.name, "eval logits, next batch");
    assert_eq!((named.shape, named.dtype), (vec![65536, 50304], Dtype::Bf16));
    assert_eq!(named.confidence, Confidence::Certain);
    assert!((gib(&rows, What::StaleLogits) - 6.14).abs() < 0.01, "{rows:?}");
    assert!(gib(&rows, What::Unexplained) < 0.1, "{rows:?}");
}

#[test]
fn float16_dies_on_logits_in_f32() {
    let (log, named, rows) = read(include_str!("../logs/eager_77m_float16_batch_16.log"));
    assert_eq!(log.traceback.phase.name(), "forward");
    assert_eq!(named.name, "log-softmax of the logits, f32");
    assert_eq!((named.shape, named.dtype), (vec![16384, 50304], Dtype::F32));
    assert!(gib(&rows, What::Unexplained) < 0.5, "{rows:?}");
}

#[test]
fn a_large_model_dies_making_adam() {
    let (log, named, rows) = read(include_str!("../logs/eager_774m_batch_1.log"));
    assert_eq!(log.traceback.phase.name(), "optimizer");
    assert!(named.name.starts_with("Adam's exp_avg of "), "{}", named.name);
    assert_eq!((named.shape, named.dtype), (vec![1280, 5120], Dtype::F32));
    assert!(gib(&rows, What::Adam) > 4.0 && gib(&rows, What::Gradients) > 2.8, "{rows:?}");
}
