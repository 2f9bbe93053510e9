//! The process holds what the bill says and a fixed, stated overhead: anonymous memory is watched
//! from outside while a run trains, evaluates, saves and samples.

use crate::fixture::{TINY, TempDir, walk};
use requires::{Need, absent};
use serde_json::Value;
use std::time::Duration;

/// Memory that the bill does not list: the program's own tables, stacks of its
/// threads, buffers of its files. The README states it.
const OVERHEAD: u64 = 16 << 20;

/// Anonymous bytes of a process that are in memory now.
fn anonymous(process: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

#[test]
fn anonymous_memory_stays_within_the_plan_and_its_overhead() {
    if !cfg!(target_os = "linux") {
        return absent(Need::Linux, "it reads /proc");
    }
    let dir = TempDir::new("resident");
    // Without characters the vocabulary is GPT-2's: the embedding is most of the model, and any
    // copy of it shows.
    let ids = walk(3, 3000, 5000);
    dir.data_set("words", &ids, &ids);
    let words = "--dataset=words";
    let shapes: [&[&str]; 4] = [
        &["--n_embd=128", "--block_size=128", "--batch_size=24", "--max_iters=6"],
        &["--n_embd=256", "--n_layer=4", "--block_size=64", "--batch_size=2", "--max_iters=6"],
        &[
            "--n_embd=128",
            "--batch_size=16",
            "--grad_checkpoint=True",
            "--optimizer_state=bfloat16",
        ],
        &[words, "--n_embd=128", "--n_layer=1", "--max_iters=2", "--eval_iters=1"],
    ];
    for (index, shape) in shapes.iter().enumerate() {
        let out_dir = format!("--out_dir=run-{index}");
        let arguments = [TINY, shape, &["--eval_interval=2", &out_dir]].concat();
        watch(&dir, &arguments);
        // The same again from its checkpoint, once with moments of another format.
        for format in ["float32", "bfloat16"] {
            let format = format!("--optimizer_state={format}");
            let more = ["--init_from=resume", &out_dir, "--max_iters=9", &format];
            watch(&dir, &more);
        }
    }
}

fn watch(dir: &TempDir, arguments: &[&str]) {
    let planned = dir.run(&[&["plan"], arguments, &["--json"]].concat());
    assert_eq!(planned.code, Some(0), "{planned:?}");
    let planned: Value = serde_json::from_str(&planned.out).unwrap();
    let planned = ["arena_bytes", "host_bytes"].map(|key| planned[key].as_u64().unwrap());
    let mut run = dir.command(&[&["train"], arguments].concat());
    let mut run = run.stdout(std::process::Stdio::null()).spawn().unwrap();
    let mut most = 0;
    while run.try_wait().unwrap().is_none() {
        most = most.max(anonymous(run.id()).unwrap_or(0));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(run.wait().unwrap().success());
    let allowed = planned.iter().sum::<u64>() + OVERHEAD;
    println!("{most} bytes seen, {planned:?} planned, {allowed} allowed");
    assert!(most <= allowed, "{arguments:?}: {most} of {allowed}");
    assert!(most >= planned[0], "{arguments:?}: the arena is touched: {most} of {}", planned[0]);
}
