//! kill -9 at twenty random moments: there is always a checkpoint that loads, or none was written
//! yet, and the resumed run ends with the same bits as a run that was never killed.

use crate::fixture::{TINY, TempDir, tensors};
use rng::{Purpose, Stream};
use std::process::Stdio;
use std::time::{Duration, Instant};

const KILLS: u32 = 20;

/// Evaluations, and so saves, every other iteration: most moments are near one.
const MORE: &[&str] = &["--max_iters=40", "--eval_interval=2", "--eval_iters=1"];

/// Starts or resumes the run; true if it ended by itself within that time.
fn run_for(dir: &TempDir, time: Option<Duration>) -> bool {
    let last = dir.path("out/last.safetensors");
    let init = if last.exists() { "--init_from=resume" } else { "--init_from=scratch" };
    let mut command = dir.command(&[&["train", init], TINY, MORE].concat());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while time.is_none_or(|time| start.elapsed() < time) {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "{status}");
            return true;
        }
        std::thread::sleep(Duration::from_micros(300));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    false
}

#[test]
fn twenty_kills_cost_nothing_that_was_saved() {
    let whole = TempDir::new("kills-whole");
    let start = Instant::now();
    assert!(run_for(&whole, None));
    let once = start.elapsed();
    let expected = tensors(&whole.path("out/last.safetensors"));

    let dir = TempDir::new("kills");
    let [last, best] = ["last", "best"].map(|name| dir.path(&format!("out/{name}.safetensors")));
    let mut draws = Stream::new(20, Purpose::Sample, 0);
    let (mut kills, mut finished, mut with_checkpoint) = (0, 0, 0);
    while kills < KILLS {
        let share = draws.uniform_f64();
        if run_for(&dir, Some(once.mul_f64(0.7 * share))) {
            assert!(tensors(&last) == expected, "after {kills} kills");
            finished += 1;
            std::fs::remove_dir_all(dir.path("out")).unwrap();
            continue;
        }
        kills += 1;
        for path in [&last, &best] {
            if path.exists() {
                tensors(path);
                with_checkpoint += 1;
            }
        }
    }
    assert!(run_for(&dir, None));
    assert!(tensors(&last) == expected);
    assert!(with_checkpoint >= 10, "most moments were before the first save");
    println!("{KILLS} kills, {finished} runs finished in between, {once:?} undisturbed");
}
