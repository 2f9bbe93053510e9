//! `best.safetensors` is never replaced by a worse one, however a run was stopped and resumed.

use crate::fixture::{TINY, TempDir, document};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

/// The best loss recorded in a checkpoint.
fn best_loss(path: &Path) -> f64 {
    let bits = document(path)["best_val_loss_bits"].as_str().unwrap().parse().unwrap();
    f64::from_bits(bits)
}

/// Validation losses by iteration, as they were printed.
fn losses(out: &str) -> Vec<(u64, f64)> {
    let steps = out.lines().filter_map(|line| line.strip_prefix("step "));
    let number = |line: &str| {
        let (step, rest) = line.split_once(':')?;
        let loss = rest.split("val loss ").nth(1)?.split([' ', ',']).next()?;
        Some((step.parse().ok()?, loss.parse().ok()?))
    };
    steps.filter_map(number).collect()
}

/// Printed when a checkpoint is in its place.
fn is_save(line: &str) -> bool {
    line.starts_with("saving checkpoint")
}

/// `last` may be older than `best`: the loss to beat is the one of the file itself.
#[test]
fn an_older_checkpoint_resumed_does_not_replace_a_better_one() {
    let dir = TempDir::new("best-older");
    let first = dir.train(&["--max_iters=10"]).succeeded();
    let early = dir.path("out/early.safetensors");
    std::fs::copy(dir.path("out/last.safetensors"), &early).unwrap();
    let long = ["train", "--init_from=resume", "--max_iters=60", "--lr_decay_iters=60"];
    let longer = dir.run(&long).succeeded();
    let best = dir.path("out/best.safetensors");
    let (at, loss) = (document(&best)["iteration"].as_u64().unwrap(), best_loss(&best));
    assert!(at > 20, "{}", longer.out);
    let printed = losses(&longer.out).into_iter().find(|(step, _)| *step == at).unwrap().1;
    assert_eq!(format!("{loss:.4}"), format!("{printed:.4}"), "the file says its own loss");

    let from = ["train", "--init_from=resume", "--out_dir=out/early.safetensors"];
    let other = ["--max_iters=15", "--eval_interval=7"];
    let again = dir.run(&[&from[..], &other].concat()).succeeded();
    let (known, found) = (losses(&first.out)[0].1, losses(&again.out)[0].1);
    assert!(loss < found && found < known, "{loss} {found} {known}: a test of nothing");
    assert_eq!(document(&best)["iteration"], at, "{}", again.out);
    assert_eq!(best_loss(&best), loss);
    assert_eq!(best_loss(&dir.path("out/last.safetensors")), loss);
}

/// Killed after an evaluation that was the best so far, before the next save.
#[test]
fn a_kill_after_the_best_evaluation_does_not_forget_it() {
    let dir = TempDir::new("best-kill");
    let keys = ["--eval_interval=20", "--max_iters=20000", "--learning_rate=1e-2"];
    let more = ["--lr_decay_iters=20000", "--eval_iters=20"];
    let mut command = dir.command(&[&["train"], TINY, &keys, &more].concat());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut out = String::new();
    // The saves of iterations 20 and 40.
    while out.lines().filter(|line| is_save(line)).count() < 2 {
        out += &format!("{}\n", lines.next().unwrap_or_else(|| panic!("{out}")));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    lines.for_each(|line| out += &format!("{line}\n"));
    let [last, best] = ["last", "best"].map(|name| dir.path(&format!("out/{name}.safetensors")));
    let at = document(&best)["iteration"].as_u64().unwrap();
    let before = losses(&out).into_iter().find(|(step, _)| *step == at).unwrap().1;
    assert!(document(&last)["iteration"].as_u64().unwrap() >= 40);

    // A learning rate that makes the model much worse without breaking it.
    let worse = ["--eval_interval=7", "--learning_rate=3e-2", "--max_iters=84"];
    let again = dir.run(&[&["train", "--init_from=resume"], &worse[..]].concat()).succeeded();
    let best_now = losses(&again.out).into_iter().map(|(_, loss)| loss).fold(before, f64::min);
    let loss = best_loss(&best);
    assert!((loss - best_now).abs() < 1e-3, "{loss}, but {best_now} was seen: {}", again.out);
}

/// Killed between the save that states a best loss and the link that makes it `best`: the resumed
/// run evaluates the same weights, finds the same loss, and makes up for the link.
#[test]
fn a_best_that_was_not_linked_is_made_up_for() {
    let dir = TempDir::new("best-unlinked");
    let keys = ["--max_iters=20000", "--lr_decay_iters=20000"];
    let [last, best] = ["last", "best"].map(|name| dir.path(&format!("out/{name}.safetensors")));
    // The kill may come between the save and the link: then once more.
    let mut ends = (0..5).map(|_| {
        let _ = std::fs::remove_dir_all(dir.path("out"));
        let mut command = dir.command(&[&["train"], TINY, &keys].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| is_save(&line.unwrap())));
        child.kill().unwrap();
        child.wait().unwrap();
        [&last, &best].map(|path| document(path)["iteration"].as_u64().unwrap())
    });
    let [at, _] = ends.find(|[last, best]| last == best).expect("last is best after a kill");
    std::fs::remove_file(&best).unwrap();
    // Every later state is worse: one step at a rate that makes the model much worse.
    let worse = format!("--max_iters={}", at + 1);
    let resume = ["train", "--init_from=resume", "--learning_rate=0.3", "--decay_lr=False"];
    dir.run(&[&resume[..], &[&worse, "--eval_interval=1"]].concat());
    assert_eq!(document(&best)["iteration"], at);
}
