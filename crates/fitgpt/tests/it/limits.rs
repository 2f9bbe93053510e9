//! What reading a file can cost: configs, logs, data sets, read by the binary itself. Memory of the
//! whole process and time, for the worst known inputs. `docs/limits.md` states both.

use crate::fixture::TempDir;
use requires::{Need, absent};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Memory: this many times the file, plus a constant.
const PER_BYTE: u64 = 4;
const BESIDE: u64 = 64 << 20;

/// Time: a constant, plus this much per MiB of the file. Many times what an idle machine takes.
const SECONDS: f64 = 5.0;
const SECONDS_PER_MIB: f64 = 2.0;

/// Runs the binary on a file and measures.
#[track_caller]
fn within_limits(dir: &TempDir, name: &str, content: &[u8], arguments: &[&str]) {
    dir.write(name, content);
    let start = Instant::now();
    let mut run = dir.command(arguments);
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut most = 0;
    let code = loop {
        let status = std::fs::read_to_string(format!("/proc/{}/status", run.id()));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        most = most.max(kib.unwrap_or(0) * 1024);
        if let Some(status) = run.try_wait().unwrap() {
            break status.code();
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let seconds = start.elapsed().as_secs_f64();
    println!("{name}: {} bytes, {most} bytes of memory, {seconds:.2} s, {code:?}", content.len());
    let allowed = content.len() as u64 * PER_BYTE + BESIDE;
    // What ends at once may end unseen.
    assert!(most > 0 || seconds < 0.1, "{name}: not measured");
    assert!(most <= allowed, "{name}: {most} of {allowed} bytes");
    let allowed = SECONDS + content.len() as f64 / 1048576.0 * SECONDS_PER_MIB;
    assert!(seconds <= allowed, "{name}: {seconds} of {allowed} s");
    assert!(code.is_some_and(|code| code < 100), "{name}: ended with {code:?}");
}

#[test]
fn files_cost_what_is_stated() {
    if !cfg!(target_os = "linux") {
        return absent(Need::Linux, "it reads /proc");
    }
    let dir = TempDir::new("limits");
    let many = |text: &str, bytes: usize| text.repeat(bytes / text.len());
    let configs = [
        ("deep.py", format!("x = {}1{}", many("(", 500_000), many(")", 500_000))),
        ("wide.py", format!("batch_size = {}1", many("1+", 1_000_000))),
        ("text.py", format!("out_dir = '{}'", many("a", 1_000_000))),
        ("names.py", (0..90_000).map(|i| format!("a{i} = 1\n")).collect()),
        ("large.py", many("batch_size = 1\n", 9_000_000)),
        ("tables.toml", (0..9000).map(|i| format!("[a{i}.b.c]\n")).collect()),
        ("dots.toml", format!("a{} = 1", many(".a", 120_000))),
        ("deep.toml", format!("x = {}", many("[", 120_000))),
        ("wide.toml", format!("x = [{}]", many("1,", 120_000))),
        ("keys.toml", (0..12_000).map(|i| format!("a{i} = 1\n")).collect()),
        ("large.toml", many("[[a]]\n", 1_000_000)),
    ];
    for (name, content) in configs {
        within_limits(&dir, name, content.as_bytes(), &["plan", name]);
    }
    let message = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 \
                   has a total capacity of 11.69 GiB of which 1.00 GiB is free. ";
    let logs = [
        ("line.log", many(message, 20 << 20)),
        ("lines.log", many(&format!("n_layer = 12\n{message}\n"), 20 << 20)),
        (
            "trace.log",
            many("  File \"model.py\", line 3, in forward\n    x = self.h(x)\n", 20 << 20),
        ),
        ("empty.log", many("\n", 20 << 20)),
        ("letters.log", many("a\n", 20 << 20)),
        ("numbers.log", many("Overriding: batch_size = 64\n", 20 << 20)),
    ];
    for (name, content) in logs {
        within_limits(&dir, name, content.as_bytes(), &["doctor", name]);
    }
    // A vocabulary of one id, and tokens beyond it.
    within_limits(&dir, "data/tiny/val.bin", &[0xff; 32 << 20], &["plan", "--dataset=tiny"]);
    let train = ["train", "--dataset=tiny", "--n_layer=1", "--n_embd=8", "--n_head=1"];
    within_limits(&dir, "data/tiny/train.bin", &[0xff; 32 << 20], &train);
}
