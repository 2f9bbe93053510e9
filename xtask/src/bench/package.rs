//! `cargo xtask bench --build-only DIR`: a folder with all that the cases need, for a machine with
//! a GPU and no Rust. `sh DIR/run.sh --case …` runs them there; records are in the folder's
//! `bench-history/`.

use super::machine;
use super::options::Options;
use crate::process::{self, Failure};
use std::path::{Path, PathBuf};
use std::process::Command;

const SCRIPT: &str = "run.sh";

/// nanoGPT's files that the cases need.
const NANOGPT: [&str; 7] = [
    "model.py",
    "train.py",
    "configurator.py",
    "LICENSE",
    "data/shakespeare_char/train.bin",
    "data/shakespeare_char/val.bin",
    "data/shakespeare_char/meta.pkl",
];

/// Builds fitgpt, unless one is given, and fills the folder.
pub fn build(folder: &Path, options: &Options) -> Result<(), Failure> {
    let fitgpt = match &options.fitgpt {
        Some(path) => path.into(),
        None => built()?,
    };
    fill(folder, &fitgpt, options.nanogpt.as_deref().map(Path::new))?;
    println!("bench: on the machine with the GPU: sh {}", folder.join(SCRIPT).display());
    Ok(())
}

fn built() -> Result<PathBuf, Failure> {
    let build = ["build", "--release", "--locked", "-p", "fitgpt", "--bin", "fitgpt"];
    let mut cargo = process::cargo();
    cargo.args(build).arg("--message-format=json-render-diagnostics");
    let messages = process::capture(&mut cargo)?;
    process::executable(&messages, "fitgpt")
        .ok_or(Failure::Task("bench: cargo built no fitgpt".to_owned()))
}

fn fill(folder: &Path, fitgpt: &Path, nanogpt: Option<&Path>) -> Result<(), Failure> {
    let root = process::workspace_root();
    let own = std::env::current_exe().map_err(|error| failed(Path::new("xtask"), &error))?;
    for (program, name) in [(fitgpt, "fitgpt"), (own.as_path(), "xtask-bench")] {
        let to = folder.join(name);
        copy(program, &to)?;
        // The names of functions are most of the file. Without `strip` they stay.
        let _ = process::ask(Command::new("strip").arg(&to));
    }
    for part in ["config", "xtask/peers"] {
        let entries =
            std::fs::read_dir(root.join(part)).map_err(|error| failed(Path::new(part), &error))?;
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            if let (true, Some(name)) = (path.is_file(), path.file_name()) {
                copy(&path, &folder.join(part).join(name))?;
            }
        }
    }
    if let Some(nanogpt) = nanogpt {
        for file in NANOGPT.iter().filter(|file| nanogpt.join(file).is_file()) {
            copy(&nanogpt.join(file), &folder.join("nanogpt").join(file))?;
        }
    }
    let script = folder.join(SCRIPT);
    std::fs::write(&script, text(&machine::commit())).map_err(|error| failed(&script, &error))
}

/// Later flags win, so that every default can be changed.
fn text(commit: &str) -> String {
    format!(
        r#"# `cargo xtask bench` where there is no Rust: sh run.sh --case a,b [--nanogpt DIR] …
# Paths are relative to this folder.
cd "$(dirname "$0")" || exit 1
export FITGPT_ROOT="$PWD" FITGPT_COMMIT={commit}
exec ./xtask-bench bench --fitgpt fitgpt --nanogpt nanogpt "$@"
"#
    )
}

fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    let made = to.parent().map_or(Ok(()), std::fs::create_dir_all);
    made.and_then(|()| std::fs::copy(from, to)).map(drop).map_err(|error| failed(from, &error))
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Task(format!("bench: {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::ScratchFolder;

    #[test]
    fn the_folder_has_all_that_the_cases_read() {
        let scratch = ScratchFolder::new("bench-package").unwrap();
        let (folder, checkout) = (scratch.path.join("job"), scratch.path.join("checkout"));
        for file in NANOGPT {
            copy(&process::workspace_root().join("Cargo.toml"), &checkout.join(file)).unwrap();
        }
        fill(&folder, Path::new("/bin/true"), Some(&checkout)).unwrap();
        for file in ["fitgpt", "xtask-bench", SCRIPT, super::super::cases::PEER_SCRIPT]
            .into_iter()
            .chain(["config/train_gpt2.py", "xtask/peers/nanogpt_model.py", "nanogpt/model.py"])
        {
            assert!(folder.join(file).is_file(), "{file}");
        }
        let script = std::fs::read_to_string(folder.join(SCRIPT)).unwrap();
        assert!(script.contains("FITGPT_COMMIT="), "{script}");
        // The copied program is this test: it takes no such flag, but it starts.
        let run = Command::new("sh").arg(folder.join(SCRIPT)).arg("--no-such").output().unwrap();
        assert!(!run.status.success() && !run.stderr.is_empty());
    }
}
