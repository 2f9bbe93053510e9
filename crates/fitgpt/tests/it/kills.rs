//! kill -9 at twenty random moments: there is always a checkpoint that loads, or none was written
//! yet, and the run that goes on from it ends with the bits of the run that was never disturbed.

use crate::fixture::{Place, TINY, tensors};
use rng::{Purpose, Stream};
use std::process::Stdio;
use std::time::{Duration, Instant};

const KILLS: u32 = 20;

/// Evaluations, and so saves, every other iteration: most moments are near one.
const MORE: &[&str] = &["--max_iters=40", "--eval_interval=2", "--eval_iters=1"];

/// Starts the run from wherever the folder stands; true when it ended by itself in that time.
fn run_for(place: &Place, time: Option<Duration>) -> bool {
    let last = place.path("out/last.safetensors");
    let init = if last.exists() { "--init_from=resume" } else { "--init_from=scratch" };
    let mut command = place.command(&[&["train", init], TINY, MORE].concat());
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
    let whole = Place::new("kills-whole");
    let start = Instant::now();
    assert!(run_for(&whole, None));
    let once = start.elapsed();
    let expected = tensors(&whole.path("out/last.safetensors"));

    let place = Place::new("kills");
    let [last, best] = ["last", "best"].map(|name| place.path(&format!("out/{name}.safetensors")));
    let mut draws = Stream::new(20, Purpose::Sample, 0);
    let (mut kills, mut finished, mut with_checkpoint) = (0, 0, 0);
    while kills < KILLS {
        let share = draws.uniform_f64();
        if run_for(&place, Some(once.mul_f64(0.7 * share))) {
            assert!(tensors(&last) == expected, "after {kills} kills");
            finished += 1;
            std::fs::remove_dir_all(place.path("out")).unwrap();
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
    assert!(run_for(&place, None));
    assert!(tensors(&last) == expected);
    assert!(with_checkpoint >= 10, "most moments were before the first save");
    println!("{KILLS} kills, {finished} runs finished in between, {once:?} undisturbed");
}
