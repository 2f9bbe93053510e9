//! What is near a name that means no checkpoint: the runs beside it, and the one that was probably
//! meant.

use crate::error::TrainError;
use crate::found;
use interop::hf;
use spec::nearest::nearest;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Most entries of a folder that are looked at.
const MOST_ENTRIES: usize = 4096;

/// Most names in a message.
const MOST_NAMES: usize = 6;

/// Most characters of a name in a message.
const LONGEST: usize = 200;

/// The folders in `folder` that hold a run, the newest first, as a user would type them. An empty
/// path is the current folder, which may be a run itself.
pub fn runs(folder: &Path) -> Vec<PathBuf> {
    let changed = |path: &PathBuf| path.metadata().and_then(|file| file.modified()).ok();
    let saved = |run: PathBuf| -> Option<(SystemTime, PathBuf)> {
        Some((found::files(&run).iter().filter_map(changed).max()?, run))
    };
    let here = (folder == Path::new("")).then(|| PathBuf::from("."));
    let mut runs: Vec<_> = entries(folder).into_iter().chain(here).filter_map(saved).collect();
    runs.sort_unstable();
    runs.into_iter().rev().map(|(_, run)| run).collect()
}

/// The error for a name that means no checkpoint.
pub fn no_checkpoint(name: &Path) -> TrainError {
    let text = name.to_string_lossy();
    TrainError::NoCheckpoint { name: shown(&text), what: explanation(name, &[]) }
}

/// What is wrong with the name, and what could be meant; `words` are names that have a meaning
/// without a file.
pub fn explanation(name: &Path, words: &[&str]) -> String {
    if name.is_dir() {
        let what = "holds no checkpoint (last.safetensors, best.safetensors or nanoGPT's ckpt.pt)";
        return match runs(name) {
            inside if inside.is_empty() => {
                let folder = parent(name);
                let beside = runs(&folder).into_iter().filter(|run| !is_same(run, name)).collect();
                format!("{what}; {}", advice(&folder, beside))
            }
            inside => format!("{what}; runs in it: {}", listed(&inside)),
        };
    }
    let what = match name.try_exists() {
        Ok(true) => "is neither a file nor a folder",
        Ok(false) => "does not exist",
        Err(error) => return format!("cannot be read: {error}"),
    };
    let folder = parent(name);
    let runs = runs(&folder);
    match meant(name, words) {
        Some(meant) if runs.len() < 2 => format!("{what}; did you mean {meant}?"),
        Some(meant) => format!("{what}; did you mean {meant}? ({})", advice(&folder, runs)),
        None => format!("{what}; {}", advice(&folder, runs)),
    }
}

/// Which runs there are.
fn advice(folder: &Path, runs: Vec<PathBuf>) -> String {
    let place = match folder == Path::new("") {
        true => "this folder".to_owned(),
        false => shown(&folder.to_string_lossy()),
    };
    match runs.is_empty() {
        true => format!(
            "{place} holds no run: train a model with `fitgpt train`, or name a run's folder or a \
             checkpoint"
        ),
        false => format!("runs in {place}: {}", listed(&runs)),
    }
}

fn listed(runs: &[PathBuf]) -> String {
    let first = runs.iter().take(MOST_NAMES).map(|run| shown(&run.to_string_lossy()));
    let first = first.collect::<Vec<_>>().join(", ");
    match runs.len().saturating_sub(MOST_NAMES) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// The name that was probably meant: a run, a model or a checkpoint beside it, or one in a run
/// whose name is near.
pub fn meant(name: &Path, words: &[&str]) -> Option<String> {
    let folder = parent(name);
    let (last, folder) = match folder == Path::new("") || folder.is_dir() {
        true => (name.file_name()?, folder),
        false => {
            let above = parent(&folder);
            if above != Path::new("") && !above.is_dir() {
                return None;
            }
            let run = PathBuf::from(meant(&folder, &[])?);
            let file = run.join(name.file_name()?);
            let is_there = if file.exists() { file } else { run };
            return Some(is_there.to_string_lossy().into_owned());
        }
    };
    let is_model = |path: &Path| {
        let is_file = path.extension().is_some_and(|end| end == "safetensors" || end == "pt");
        is_file && path.is_file() || hf::is_folder(path) || found::is_run(path)
    };
    let of_entry = |path: &PathBuf| Some(path.file_name()?.to_str()?.to_owned());
    let beside = entries(&folder);
    let mut names: Vec<String> =
        beside.iter().filter(|path| is_model(path)).filter_map(of_entry).collect();
    names.sort_unstable();
    let of_words = words.iter().copied().filter(|_| folder == Path::new(""));
    let near = nearest(last.to_str()?, names.iter().map(String::as_str).chain(of_words))?;
    Some(folder.join(near).to_string_lossy().into_owned())
}

/// The folder that a name is in; empty for the current one.
fn parent(name: &Path) -> PathBuf {
    name.parent().map(Path::to_path_buf).unwrap_or_default()
}

fn is_same(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// What a folder holds; an empty path is the current folder, and its entries have no prefix.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let read = if folder == Path::new("") { Path::new(".") } else { folder };
    let found = std::fs::read_dir(read).into_iter().flatten().take(MOST_ENTRIES).flatten();
    found.map(|entry| folder.join(entry.file_name())).collect()
}

/// The first characters of a name, which may have any length.
fn shown(name: &str) -> String {
    name.chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("nearby-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        for file in ["out-a/last.safetensors", "out-b/ckpt.pt", "hf/config.json", "text/a.txt"] {
            std::fs::create_dir_all(folder.join(file).parent().unwrap()).unwrap();
            std::fs::write(folder.join(file), "").unwrap();
        }
        folder
    }

    #[test]
    fn near_names_are_found_and_others_listed() {
        let folder = folder("names");
        let said = |name: &str| {
            explanation(&folder.join(name), &[]).replace(&format!("{}", folder.display()), "F")
        };
        for (name, want) in [
            ("out-aa", "does not exist; did you mean F/out-a? (runs in F: "),
            ("hff", "does not exist; did you mean F/hf? (runs in F: "),
            ("out-a/lst.safetensors", "does not exist; did you mean F/out-a/last.safetensors?"),
            ("uot-a/last.safetensors", "does not exist; did you mean F/out-a/last.safetensors?"),
            ("uot-a/else", "does not exist; did you mean F/out-a?"),
            ("quite-other", "does not exist; runs in F: "),
            (
                "text",
                "holds no checkpoint (last.safetensors, best.safetensors or nanoGPT's \
                      ckpt.pt); runs in F: ",
            ),
        ] {
            assert!(said(name).starts_with(want), "{name}: {}", said(name));
        }
        assert!(explanation(&folder, &[]).contains("; runs in it: "));
        assert!(said("text/none").ends_with(
            "does not exist; F/text holds no run: train a model with `fitgpt train`, or name a \
             run's folder or a checkpoint"
        ));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn words_are_near_in_the_current_folder_only() {
        let words = ["gpt2", "gpt2-xl"];
        assert_eq!(meant(Path::new("gpt3"), &words).as_deref(), Some("gpt2"));
        assert_eq!(meant(Path::new("gtp2-xl"), &words).as_deref(), Some("gpt2-xl"));
        assert_eq!(meant(Path::new("./gpt3"), &words), None);
        assert_eq!(meant(Path::new(""), &words), None);
        assert_eq!(meant(Path::new("/"), &words), None);
    }

    #[test]
    fn long_lists_are_cut() {
        let runs: Vec<PathBuf> = (0..9).map(|run| format!("out-{run}").into()).collect();
        assert_eq!(listed(&runs), "out-0, out-1, out-2, out-3, out-4, out-5 and 3 more");
    }
}
