//! Ctrl-C and SIGTERM finish the step, save, and exit with 130; a second one exits at once.

use crate::fixture::{Ended, TINY, TempDir, document, tensors};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn start(dir: &TempDir, more: &[&str]) -> Child {
    let arguments = [&["train"], TINY, more].concat();
    let mut command = dir.command(&arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

/// Waits for a line that begins like this.
fn wait_for(output: &mut impl BufRead, beginning: &str) {
    let mut line = String::new();
    while !line.starts_with(beginning) {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "the run ended early");
    }
}

/// Starts a command and sends SIGINT after a line that begins like this.
pub fn stopped(mut command: Command, beginning: &str) -> Ended {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    interrupted(child, "-INT", beginning)
}

/// Sends a signal after `beginning` was printed; how it ended, with the rest of what it printed.
fn interrupted(mut child: Child, name: &str, beginning: &str) -> Ended {
    let mut output = BufReader::new(child.stdout.take().unwrap());
    wait_for(&mut output, beginning);
    // Well into what follows that line.
    std::thread::sleep(Duration::from_millis(300));
    signal(&child, name);
    let mut out = String::new();
    output.read_to_string(&mut out).unwrap();
    let ended = child.wait_with_output().unwrap();
    Ended { code: ended.status.code(), out, error: String::from_utf8(ended.stderr).unwrap() }
}

#[test]
fn a_signal_saves_and_the_run_goes_on_bit_for_bit() {
    for name in ["-INT", "-TERM"] {
        let dir = TempDir::new(&format!("signal{name}"));
        let long = ["--max_iters=20000", "--eval_interval=1000", "--lr_decay_iters=20000"];
        let ended = interrupted(start(&dir, &long), name, "iter 5:");
        assert_eq!(ended.code, Some(130), "{ended:?}");
        assert!(ended.error.contains("stopping (Ctrl-C again"), "{ended:?}");
        assert!(ended.out.contains("train --init_from=resume --out_dir=out"), "{ended:?}");
        let last = dir.path("out/last.safetensors");
        let stopped_at = document(&last)["iteration"].as_u64().unwrap();
        assert!((6..19_000).contains(&stopped_at));
        let end = format!("--max_iters={}", stopped_at + 5);
        dir.run(&["train", "--init_from=resume", &end]).succeeded();
        let whole = ["--out_dir=whole", &end, "--eval_interval=1000", "--lr_decay_iters=20000"];
        dir.train(&whole).succeeded();
        assert!(tensors(&last) == tensors(&dir.path("whole/last.safetensors")));
    }
}

/// Nobody has to wait for half an hour of evaluation, and the trained weights are saved.
#[test]
fn a_signal_during_an_evaluation_ends_it() {
    let dir = TempDir::new("signal-eval");
    // Long evaluations in the middle of the run, none at its beginning.
    dir.train(&["--max_iters=5", "--eval_iters=1"]).succeeded();
    let slow = ["--init_from=resume", "--eval_iters=60000", "--max_iters=12"];
    let begin = Instant::now();
    let ended = interrupted(start(&dir, &slow), "-INT", "iter 9:");
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert!(!ended.out.contains("step 10"), "{ended:?}");
    assert!(begin.elapsed().as_secs() < 60);
    let last = dir.path("out/last.safetensors");
    assert_eq!(document(&last)["iteration"], 10);
    dir.run(&["train", "--init_from=resume", "--eval_iters=1"]).succeeded();
    dir.train(&["--out_dir=whole", "--max_iters=12", "--eval_iters=1"]).succeeded();
    assert!(tensors(&last) == tensors(&dir.path("whole/last.safetensors")));
}

/// The evaluation at the end of the built-in run is one too.
#[test]
fn a_signal_during_the_last_evaluation() {
    let dir = TempDir::empty("signal-end");
    let tiny = ["--block_size=16", "--n_layer=1", "--n_head=1", "--n_embd=8", "--batch_size=1"];
    let keys = ["--dataset=builtin", "--eval_interval=1000000", "--log_interval=1"];
    let one = ["--gradient_accumulation_steps=1", "--eval_iters=1", "--max_iters=1"];
    dir.run(&[&["train"], &tiny[..], &keys, &one].concat()).succeeded();
    let slow = ["train", "--init_from=resume", "--eval_iters=60000", "--max_iters=3"];
    let mut command = dir.command(&slow);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let ended = interrupted(child, "-INT", "iter 3:");
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert!(!ended.out.contains("validation loss"), "{ended:?}");
    assert_eq!(document(&dir.path("out/last.safetensors"))["iteration"], 4);
}

/// A step of many seconds, and somebody who does not want to wait for it.
#[test]
fn a_second_signal_leaves_at_once() {
    let dir = TempDir::new("signal-twice");
    let slow = ["--gradient_accumulation_steps=60000", "--eval_iters=1"];
    let mut child = start(&dir, &slow);
    wait_for(&mut BufReader::new(child.stdout.take().unwrap()), "step 0");
    signal(&child, "-INT");
    wait_for(&mut BufReader::new(child.stderr.take().unwrap()), "stopping");
    let begin = Instant::now();
    signal(&child, "-INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(begin.elapsed().as_secs() < 5);
}
