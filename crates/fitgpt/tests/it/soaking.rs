//! The sections of the soak that need the real binary, short, so that they do not rot: kills, a
//! file system that fails, and ranks that fail.

use crate::fixture::TempDir;
use requires::{Need, absent};
use soak::jobs::{self, JOBS};
use soak::tally::Tally;
use soak::{Environment, files, kills, ranks};
use std::path::PathBuf;
use std::process::Command;

fn environment(faults: Option<PathBuf>) -> Environment {
    let binary = PathBuf::from(env!("CARGO_BIN_EXE_fitgpt"));
    Environment { seed: 3, binary, faults, cuda: false }
}

/// What is compared with the undisturbed run is the best checkpoint, too.
#[test]
fn another_best_checkpoint_is_noticed() {
    let binary = environment(None).binary;
    let (dir, other) = (TempDir::empty("soak-best"), TempDir::empty("soak-best-other"));
    for folder in [&dir, &other] {
        jobs::furnish(&folder.path(""), 1000).unwrap();
    }
    JOBS[0].run(&binary, &dir.path("")).unwrap().succeeded().unwrap();
    let want = JOBS[0].made(&dir.path("")).unwrap();
    let mut shorter = JOBS[0].command(&binary, &other.path(""));
    shorter.args(["--max_iters=4", "--learning_rate=1e-3"]);
    assert!(shorter.output().unwrap().status.success());
    let best = dir.path("out/best.safetensors");
    let last = std::fs::read(dir.path("out/last.safetensors")).unwrap();
    assert_ne!(std::fs::read(&best).unwrap(), last, "nothing would show a best that was replaced");
    std::fs::remove_file(&best).unwrap();
    assert!(JOBS[0].made(&dir.path("")).is_err());
    std::fs::copy(other.path("out/best.safetensors"), &best).unwrap();
    let found = JOBS[0].made(&dir.path("")).unwrap();
    let message = jobs::same(&found, &want).unwrap_err();
    assert!(message.contains("best"), "{message}");
}

#[test]
fn kills_cost_nothing() {
    let mut cases = kills::open_with(&environment(None), 400_000).unwrap();
    let mut tally = Tally::default();
    for index in 0..3 {
        assert_eq!(cases.run(index, &mut tally), Ok(()), "{index}");
    }
    assert!(tally.sum("kills") > 0, "{tally:?}");
}

#[test]
fn ranks_that_fail_cost_nothing() {
    if let Some(why) = ranks::skipped(&environment(None)) {
        return absent(Need::Mpi, why);
    }
    let mut tally = Tally::default();
    for (name, count) in [("ranks/kill", 3), ("ranks/config", 1), ("ranks/data", 1)] {
        let mut cases = ranks::open(&environment(None), name).unwrap();
        for index in 0..count {
            assert_eq!(cases.run(index, &mut tally), Ok(()), "{name} {index}");
        }
    }
    let said = ["said/config/fitgpt", "said/data/fitgpt"].map(|name| tally.sum(name));
    assert_eq!(said, [1, 1], "{tally:?}");
    assert_eq!(tally.sum("fired/kill") + tally.sum("idle/kill"), 3, "{tally:?}");
}

/// The library has no dependency: the compiler alone makes it, and no profile of its own is built.
pub fn library(dir: &TempDir) -> Option<PathBuf> {
    if !cfg!(target_os = "linux") {
        absent(Need::Linux, "libc's functions are interposed on Linux only");
        return None;
    }
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../faults/src/lib.rs");
    let path = dir.path("libfaults.so");
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["--edition=2024", "--crate-type=cdylib", "--crate-name=faults", source, "-o"]);
    match rustc.arg(&path).output() {
        Ok(made) => {
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
            Some(path)
        }
        Err(error) => {
            absent(Need::Rustc, format!("no rustc: {error}"));
            None
        }
    }
}

#[test]
fn a_file_system_that_fails_costs_nothing() {
    let dir = TempDir::empty("soak-files");
    let Some(library) = library(&dir) else { return };
    let mut cases = files::open(&environment(Some(library)), "files").unwrap();
    let mut tally = Tally::default();
    for index in 0..8 {
        assert_eq!(cases.run(index, &mut tally), Ok(()), "{index}");
    }
    assert!(tally.sum("ended/4") > 0 && tally.sum("ended/killed") > 0, "{tally:?}");
    let fired = tally.sums.iter().filter(|(name, _)| name.starts_with("fired/"));
    let fired: u64 = fired.map(|(_, sum)| sum).sum();
    assert!(fired >= 6 && fired + tally.sum("idle") == 8, "{tally:?}");
}
