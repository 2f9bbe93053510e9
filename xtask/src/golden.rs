//! `cargo xtask golden`: regenerates the conformance goldens with PyTorch.
//!
//! Rust writes the inputs of every case, and `reference.py` computes the answers. `--check` writes
//! them to a scratch folder and lists the files that differ from those in the tree. It allows for
//! the rounding of another CPU: PyTorch adds in another order there. With a NAME, only the cases
//! `NAME` and `NAME_…` are computed, and all other goldens stay as they are.

use crate::parity;
use crate::process::{self, Failure};
use crate::scratch::ScratchFolder;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::process::Command;

/// The PyTorch that the goldens in the tree were made with.
const TORCH: &str = "2.11.0";
const SCRIPT: &str = "crates/conformance/golden/reference.py";
const DATA: &str = "crates/conformance/golden/data";
const MANIFEST: &str = "manifest.txt";

/// The flags, for the usage text.
pub const FLAGS: &str = "[NAME | --check]";

/// A run of nanoGPT's loop, and the losses it printed.
const RUN_SCRIPT: &str = "crates/fitgpt/tests/golden/nanogpt_run.py";
const RUN_LOSSES: &str = "crates/fitgpt/tests/golden/nanogpt_run.txt";

/// What float64 may leave where terms cancel, such as in a gradient that is zero. Two CPUs differed
/// by 3e-16.
const CANCELLED: f32 = 1e-14;

/// What the losses of the run, computed in float32 and printed with six digits, may differ by. Two
/// CPUs differed by 1e-6; the test that reads the losses allows 5e-4.
const LOSS_ROUNDING: f64 = 1e-5;

/// Writes the goldens, or with `--check` compares fresh ones with those in the tree.
pub fn run(args: &[String]) -> Result<(), Failure> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => {
            let data = process::workspace_root().join(DATA);
            generate(&data, None)?;
            let losses = run_losses()?;
            let written = std::fs::write(process::workspace_root().join(RUN_LOSSES), losses);
            written.map_err(|error| Failure::Task(format!("golden: {RUN_LOSSES}: {error}")))?;
            println!("golden: written to {DATA} and {RUN_LOSSES}; read the difference");
            Ok(())
        }
        ["--check"] => check(),
        [name] if !name.starts_with('-') => write_named(name),
        [other, ..] => {
            let refused = format!("golden takes one NAME or --check, but got '{other}'");
            Err(Failure::Usage(refused))
        }
    }
}

/// Computes the cases of one name and puts their goldens beside the others.
fn write_named(name: &str) -> Result<(), Failure> {
    let fresh = ScratchFolder::new("golden-named").map_err(|error| in_scratch(&error))?;
    generate(&fresh.path, Some(name))?;
    let made = files_below(&fresh.path).map_err(|error| in_scratch(&error))?;
    let data = process::workspace_root().join(DATA);
    let replaced = replace_named(&data, name, &made);
    let written = replaced.map_err(|problem| Failure::Task(format!("golden: {problem}")))?;
    println!("golden: written to {DATA}: {}", written.join(", "));
    Ok(())
}

/// Whether a golden belongs to the case `name` or to one of its variants, `name_…`.
fn is_named(case: &str, name: &str) -> bool {
    let rest = case.strip_prefix(name);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

/// Replaces the goldens of one name in the folder, and their part of the manifest. Returns the
/// names of the files written.
fn replace_named(
    data: &Path,
    name: &str,
    made: &BTreeMap<String, Vec<u8>>,
) -> Result<Vec<String>, String> {
    let old = std::fs::read_to_string(data.join(MANIFEST));
    let old = old.map_err(|error| format!("{DATA}/{MANIFEST}: {error}"))?;
    let new = made.get(MANIFEST).map(|text| String::from_utf8_lossy(text));
    let new = new.ok_or_else(|| format!("no {MANIFEST} was made"))?;
    let manifest = merged(&old, &new, name)?;
    let [before, after] = [&old, &manifest]
        .map(|text| sections(text).1.into_iter().map(|(case, _)| case).collect::<BTreeSet<_>>());
    for gone in before.difference(&after) {
        let removed = std::fs::remove_file(data.join(format!("{gone}.bin")));
        removed.map_err(|error| format!("{gone}.bin: {error}"))?;
    }
    for (file, bytes) in made.iter().filter(|(file, _)| *file != MANIFEST) {
        std::fs::write(data.join(file), bytes).map_err(|error| format!("{file}: {error}"))?;
    }
    let written = std::fs::write(data.join(MANIFEST), manifest);
    written.map_err(|error| format!("{DATA}/{MANIFEST}: {error}"))?;
    Ok(made.keys().cloned().collect())
}

/// The old manifest with the cases of one name replaced by those of the new one. Both must have
/// been made with the same PyTorch from the same seed.
fn merged(old: &str, new: &str, name: &str) -> Result<String, String> {
    let (header, old) = sections(old);
    let (other, new) = sections(new);
    if header != other {
        return Err(format!(
            "these were made with '{}', those in the tree with '{}'; install that PyTorch, or \
             make all goldens again",
            other.replace('\n', ", "),
            header.replace('\n', ", ")
        ));
    }
    let kept = old.into_iter().filter(|(case, _)| !is_named(case, name));
    let all: BTreeMap<&str, &str> = kept.chain(new).collect();
    let text: Vec<&str> = [header].into_iter().chain(all.into_values()).collect();
    Ok(text.join("\n\n") + "\n")
}

/// A manifest's header, and the text of each case by name.
fn sections(manifest: &str) -> (&str, Vec<(&str, &str)>) {
    let mut parts = manifest.trim_end().split("\n\n");
    let header = parts.next().unwrap_or_default();
    let cases = parts.filter_map(|section| {
        let name = section.strip_prefix("case ")?.split(' ').next()?;
        Some((name, section))
    });
    (header, cases.collect())
}

fn check() -> Result<(), Failure> {
    let fresh = ScratchFolder::new("golden-data").map_err(|error| in_scratch(&error))?;
    generate(&fresh.path, None)?;
    let kept = files_below(&process::workspace_root().join(DATA)).map_err(|error| {
        Failure::Task(format!("golden: {DATA}: {error}; run `cargo xtask golden` first"))
    })?;
    let made = files_below(&fresh.path).map_err(|error| in_scratch(&error))?;
    let mut differences: Vec<String> =
        differences(&kept, &made).iter().map(|line| format!("{DATA}/{line}")).collect();
    let run = std::fs::read_to_string(process::workspace_root().join(RUN_LOSSES));
    let other = other_losses(&run.unwrap_or_default(), &run_losses()?);
    differences.extend(other.map(|other| format!("{RUN_LOSSES}: {other}")));
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

/// Writes the inputs of every case, or of those of one name; then PyTorch computes the answers
/// into `data`.
fn generate(data: &Path, name: Option<&str>) -> Result<(), Failure> {
    let python = process::default_python();
    require_torch(&python)?;
    let inputs = ScratchFolder::new("golden-inputs").map_err(|error| in_scratch(&error))?;
    let dump = ["run", "--quiet", "--release", "-p", "fitgpt-conformance", "--example"];
    process::run(process::cargo().args(dump).args(["dump_cases", "--"]).arg(&inputs.path))?;
    if let Some(name) = name {
        keep_named(&inputs.path, name)?;
    }
    let mut reference = Command::new(&python);
    reference.current_dir(process::workspace_root()).arg(SCRIPT).arg(&inputs.path).arg(data);
    process::run(&mut reference)
}

/// Removes the questions that are not of the name.
fn keep_named(inputs: &Path, name: &str) -> Result<(), Failure> {
    let files = files_below(inputs).map_err(|error| in_scratch(&error))?;
    let is_kept = |file: &String| is_named(file.split('.').next().unwrap_or_default(), name);
    let (kept, others): (Vec<&String>, Vec<&String>) = files.keys().partition(|f| is_kept(f));
    if kept.is_empty() {
        return Err(Failure::Task(format!("golden: no case is called {name} or {name}_…")));
    }
    for file in others {
        std::fs::remove_file(inputs.join(file)).map_err(|error| in_scratch(&error))?;
    }
    Ok(())
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
pub fn files_below(folder: &Path) -> io::Result<BTreeMap<String, Vec<u8>>> {
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
pub fn differences(
    kept: &BTreeMap<String, Vec<u8>>,
    made: &BTreeMap<String, Vec<u8>>,
) -> Vec<String> {
    let mut names: Vec<&String> = kept.keys().chain(made.keys()).collect();
    names.sort();
    names.dedup();
    let difference = |name: &String| match (kept.get(name), made.get(name)) {
        (Some(_), None) => Some(format!("{name}: no case produces this file any more")),
        (None, _) => Some(format!("{name}: is missing from the tree")),
        (Some(old), Some(new)) if old.len() != new.len() => {
            Some(format!("{name}: {} bytes in the tree, {} made now", old.len(), new.len()))
        }
        (Some(old), Some(new)) if name.ends_with(".bin") => {
            other_floats(old, new).map(|other| format!("{name}: {other}"))
        }
        (Some(old), Some(new)) => (old != new).then(|| format!("{name}: other content")),
    };
    names.into_iter().filter_map(difference).collect()
}

/// How many floats of two files of one length differ by more than rounding, and by how much.
fn other_floats(kept: &[u8], made: &[u8]) -> Option<String> {
    let floats = |bytes: &[u8]| -> Vec<f32> {
        bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    };
    let (kept, made) = (floats(kept), floats(made));
    let other = |(a, b): &(&f32, &f32)| {
        // Not a number and infinity are only equal to themselves.
        let near = (**a - **b).abs() <= f32::EPSILON * a.abs() + CANCELLED;
        a.to_bits() != b.to_bits() && !(near && a.is_finite() && b.is_finite())
    };
    let others: Vec<(&f32, &f32)> = kept.iter().zip(&made).filter(other).collect();
    let (a, b) = others.iter().max_by(|a, b| (a.0 - a.1).abs().total_cmp(&(b.0 - b.1).abs()))?;
    Some(format!("{} of {} values differ, most {a:e} and {b:e}", others.len(), kept.len()))
}

/// The first line of the run whose loss differs by more than rounding.
fn other_losses(kept: &str, made: &str) -> Option<String> {
    let (kept, made) = (parity::losses(kept), parity::losses(made));
    if kept.is_empty() || !kept.keys().eq(made.keys()) {
        return Some(format!("{} losses in the tree, {} made now", kept.len(), made.len()));
    }
    // Two losses that are not numbers differ too.
    let difference = |name: &String| (kept[name] - made[name]).abs();
    let other = |name: &&String| difference(name).is_nan() || difference(name) > LOSS_ROUNDING;
    let name = kept.keys().find(other)?;
    Some(format!("{name} {} in the tree, {} made now", kept[name], made[name]))
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
            "b: other content",
            "c: 2 bytes in the tree, 3 made now",
            "new: is missing from the tree",
            "old: no case produces this file any more",
        ];
        assert_eq!(differences(&kept, &made), want);
        assert_eq!(differences(&kept, &kept), Vec::<String>::new());
    }

    /// What two CPUs may differ by is no difference; anything more is.
    #[test]
    fn rounding_is_no_difference() {
        let bytes = |floats: &[f32]| -> Vec<u8> {
            floats.iter().flat_map(|float| float.to_le_bytes()).collect()
        };
        let kept = [1.0, 3e-18, -0.25, f32::NAN];
        let made = |at: usize, float: f32| {
            let mut made = kept;
            made[at] = float;
            other_floats(&bytes(&kept), &bytes(&made))
        };
        for (at, near) in [(0, 1.0_f32.next_up()), (1, -2e-18), (2, (-0.25_f32).next_down())] {
            assert_eq!(made(at, near), None, "{near:e}");
        }
        for (at, far) in [(0, 1.000_001), (1, 1e-12), (2, 0.25), (0, f32::NAN), (3, 1.0)] {
            let told = made(at, far).unwrap();
            assert!(told.starts_with("1 of 4 values differ, most "), "{told}");
        }
        let kept = "step 0: train loss 3.5, val loss 3.4\niter 0: loss 3.412388\n";
        assert_eq!(other_losses(kept, &kept.replace("388", "387")), None);
        let told = other_losses(kept, &kept.replace("388", "488")).unwrap();
        assert_eq!(told, "iter 0: loss 3.412388 in the tree, 3.412488 made now");
        assert!(other_losses(kept, &kept.replace("3.412388", "nan")).is_some());
        assert!(other_losses(kept, "").is_some());
        assert!(other_losses("", "").is_some());
    }

    #[test]
    fn a_name_replaces_its_own_goldens_only() {
        let data = ScratchFolder::new("golden-merge").unwrap();
        let header = "fitgpt golden 1\ntorch 2.11.0\nseed 7\nprecision float64";
        let case = |name: &str, mark: u8| format!("\n\ncase {name} {mark}\nvalue out 2 2");
        let old: Vec<_> = ["gelu", "gelu_old", "gelus", "linear"].map(|name| case(name, 1)).into();
        std::fs::write(data.path.join(MANIFEST), format!("{header}{}\n", old.concat())).unwrap();
        for name in ["gelu", "gelu_old", "gelus", "linear"] {
            std::fs::write(data.path.join(format!("{name}.bin")), name).unwrap();
        }
        let made = |header: &str| {
            let manifest = format!("{header}{}{}\n", case("gelu", 2), case("gelu_new", 2));
            let files = [("gelu.bin", "2"), ("gelu_new.bin", "2"), (MANIFEST, &manifest)];
            files.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec())).into()
        };
        let refused = replace_named(&data.path, "gelu", &made("fitgpt golden 1\ntorch 3"));
        let refused = refused.unwrap_err();
        assert!(refused.contains("torch 3', those in the tree with") && refused.contains("2.11.0"));
        let written = replace_named(&data.path, "gelu", &made(header)).unwrap();
        assert_eq!(written, ["gelu.bin", "gelu_new.bin", MANIFEST]);
        let parts = [case("gelu", 2), case("gelu_new", 2), case("gelus", 1), case("linear", 1)];
        let manifest = std::fs::read_to_string(data.path.join(MANIFEST)).unwrap();
        assert_eq!(manifest, format!("{header}{}\n", parts.concat()));
        let files = files_below(&data.path).unwrap();
        let names: Vec<&str> = files.keys().map(String::as_str).collect();
        assert_eq!(names, ["gelu.bin", "gelu_new.bin", "gelus.bin", "linear.bin", MANIFEST]);
        assert_eq!((&files["gelu.bin"][..], &files["gelus.bin"][..]), (&b"2"[..], &b"gelus"[..]));
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
