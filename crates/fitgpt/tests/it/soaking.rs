//! The sections of the soak that need the real binary, short, so that they do not rot: kills, and
//! a file system that fails.

use crate::fixture::Place;
use soak::tally::Tally;
use soak::{Context, files, kills};
use std::path::PathBuf;
use std::process::Command;

fn context(faults: Option<PathBuf>) -> Context {
    let binary = PathBuf::from(env!("CARGO_BIN_EXE_fitgpt"));
    Context { seed: 3, binary, faults, cuda: false }
}

#[test]
fn kills_cost_nothing() {
    let mut cases = kills::open_with(&context(None), 400_000).unwrap();
    let mut tally = Tally::default();
    for index in 0..3 {
        assert_eq!(cases.run(index, &mut tally), Ok(()), "{index}");
    }
    assert!(tally.sum("kills") > 0, "{tally:?}");
}

/// The library has no dependency: the compiler alone makes it, and no profile of its own is built.
fn library(place: &Place) -> Option<PathBuf> {
    if !cfg!(target_os = "linux") {
        println!("skipped: libc's functions are interposed on Linux only");
        return None;
    }
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../faults/src/lib.rs");
    let path = place.path("libfaults.so");
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["--edition=2024", "--crate-type=cdylib", "--crate-name=faults", source, "-o"]);
    match rustc.arg(&path).output() {
        Ok(made) => {
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
            Some(path)
        }
        Err(error) => {
            println!("skipped: no rustc: {error}");
            None
        }
    }
}

#[test]
fn a_file_system_that_fails_costs_nothing() {
    let place = Place::empty("soak-files");
    let Some(library) = library(&place) else { return };
    let mut cases = files::open(&context(Some(library)), "files").unwrap();
    let mut tally = Tally::default();
    for index in 0..8 {
        assert_eq!(cases.run(index, &mut tally), Ok(()), "{index}");
    }
    assert!(tally.sum("ended/4") > 0 && tally.sum("ended/killed") > 0, "{tally:?}");
}
