//! `cargo xtask golden`: regenerates the conformance goldens with PyTorch.
//!
//! Rust writes the inputs of every case, and `reference.py` computes the answers. `--check` writes
//! them to a scratch folder and lists the files that differ from those in the tree.

use crate::process::{self, Failure};
use crate::scratch::ScratchFolder;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Command;

/// The PyTorch that the goldens in the tree were made with.
const TORCH: &str = "2.11.0";
const SCRIPT: &str = "crates/conformance/golden/reference.py";
const DATA: &str = "crates/conformance/golden/data";

/// A run of nanoGPT's loop, and the losses it printed.
const RUN_SCRIPT: &str = "crates/fitgpt/tests/golden/nanogpt_run.py";
const RUN_LOSSES: &str = "crates/fitgpt/tests/golden/nanogpt_run.txt";

/// Writes the goldens, or with `--check` compares fresh ones with those in the tree.
pub fn run(args: &[String]) -> Result<(), Failure> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => {
            let data = process::workspace_root().join(DATA);
            generate(&data)?;
            let losses = run_losses()?;
            let written = std::fs::write(process::workspace_root().join(RUN_LOSSES), losses);
            written.map_err(|error| Failure::Task(format!("golden: {RUN_LOSSES}: {error}")))?;
            println!("golden: written to {DATA} and {RUN_LOSSES}; read the difference");
            Ok(())
        }
        ["--check"] => check(),
        [other, ..] => Err(Failure::Usage(format!("golden takes only --check, but got '{other}'"))),
    }
}

fn check() -> Result<(), Failure> {
    let fresh = ScratchFolder::new("golden-data").map_err(|error| in_scratch(&error))?;
    generate(&fresh.path)?;
    let kept = files_below(&process::workspace_root().join(DATA)).map_err(|error| {
        Failure::Task(format!("golden: {DATA}: {error}; run `cargo xtask golden` first"))
    })?;
    let made = files_below(&fresh.path).map_err(|error| in_scratch(&error))?;
    let mut differences: Vec<String> =
        differences(&kept, &made).iter().map(|line| format!("{DATA}/{line}")).collect();
    let run = std::fs::read_to_string(process::workspace_root().join(RUN_LOSSES));
    if run.ok() != Some(run_losses()?) {
        differences.push(format!("{RUN_LOSSES}: other losses"));
    }
    for difference in &differences {
        eprintln!("{difference}");
    }
    if differences.is_empty() {
        println!("golden: all {} files are the same", kept.len());
        return Ok(());
    }
    let count = differences.len();
    Err(Failure::Task(format!("golden: {count} of {} files differ", kept.len().max(made.len()))))
}

/// Writes the inputs of every case; then PyTorch computes the answers into `data`.
fn generate(data: &Path) -> Result<(), Failure> {
    let python = process::default_python();
    require_torch(&python)?;
    let inputs = ScratchFolder::new("golden-inputs").map_err(|error| in_scratch(&error))?;
    let dump = ["run", "--quiet", "--release", "-p", "fitgpt-conformance", "--example"];
    process::run(process::cargo().args(dump).args(["dump_cases", "--"]).arg(&inputs.path))?;
    let mut reference = Command::new(&python);
    reference.current_dir(process::workspace_root()).arg(SCRIPT).arg(&inputs.path).arg(data);
    process::run(&mut reference)
}

fn run_losses() -> Result<String, Failure> {
    let mut reference = Command::new(process::default_python());
    process::capture(reference.current_dir(process::workspace_root()).arg(RUN_SCRIPT))
}

/// Checks for PyTorch before anything slow starts; the error says what to install.
fn require_torch(python: &str) -> Result<(), Failure> {
    let mut question = Command::new(python);
    question.args(["-c", "import numpy, torch; print(torch.__version__)"]);
    let Some(version) = process::ask(&mut question) else {
        return Err(Failure::Task(format!(
            "golden: '{python}' cannot import torch and numpy.\n\
             Install them (pip install torch=={TORCH} numpy), \
             or name a Python that has them: FITGPT_PYTHON=/path/to/python cargo xtask golden"
        )));
    };
    let version = version.trim();
    if version.split('+').next() != Some(TORCH) {
        eprintln!("golden: note: this is torch {version}; the goldens were made with {TORCH}");
    }
    Ok(())
}

/// The content of every file below a folder, by relative path.
fn files_below(folder: &Path) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(current) = folders.pop() {
        for entry in std::fs::read_dir(&current)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).unwrap_or(&path);
            files.insert(name.to_string_lossy().into_owned(), std::fs::read(&path)?);
        }
    }
    Ok(files)
}

/// One line per file that differs.
fn differences(kept: &BTreeMap<String, Vec<u8>>, made: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let mut names: Vec<&String> = kept.keys().chain(made.keys()).collect();
    names.sort();
    names.dedup();
    let difference = |name: &String| match (kept.get(name), made.get(name)) {
        (Some(_), None) => Some(format!("{name}: no case produces this file any more")),
        (None, _) => Some(format!("{name}: is missing from the tree")),
        (Some(old), Some(new)) if old.len() != new.len() => {
            Some(format!("{name}: {} bytes in the tree, {} made now", old.len(), new.len()))
        }
        (Some(old), Some(new)) => {
            let changed = old.iter().zip(new).filter(|(a, b)| a != b).count();
            (changed > 0).then(|| format!("{name}: {changed} of {} bytes differ", old.len()))
        }
    };
    names.into_iter().filter_map(difference).collect()
}

fn in_scratch(error: &io::Error) -> Failure {
    let folder = std::env::temp_dir();
    Failure::Task(format!("golden: scratch folder in {}: {error}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_listed_file_by_file() {
        let side = |files: &[(&str, &[u8])]| -> BTreeMap<String, Vec<u8>> {
            files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec())).collect()
        };
        let kept = side(&[("a", b"same"), ("b", b"1234"), ("c", b"12"), ("old", b"")]);
        let made = side(&[("a", b"same"), ("b", b"1x34"), ("c", b"123"), ("new", b"")]);
        let want = [
            "b: 1 of 4 bytes differ",
            "c: 2 bytes in the tree, 3 made now",
            "new: is missing from the tree",
            "old: no case produces this file any more",
        ];
        assert_eq!(differences(&kept, &made), want);
        assert_eq!(differences(&kept, &kept), Vec::<String>::new());
    }

    #[test]
    fn a_scratch_folder_is_read_and_removed() {
        let scratch = ScratchFolder::new("golden-test").unwrap();
        let path = scratch.path.clone();
        std::fs::create_dir(path.join("sub")).unwrap();
        std::fs::write(path.join("sub/a.bin"), [7]).unwrap();
        let files = files_below(&path).unwrap();
        assert_eq!(files, BTreeMap::from([("sub/a.bin".to_owned(), vec![7])]));
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn without_torch_the_error_says_what_to_install() {
        let failure = require_torch("/no/such/python").unwrap_err().to_string();
        assert!(failure.contains("pip install torch==2.11.0 numpy"), "{failure}");
    }
}
