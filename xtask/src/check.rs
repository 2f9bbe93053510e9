//! `cargo xtask check`: everything a change must pass, cheapest first, first failure stops. Tests
//! that the machine lacks something for are listed at the end.

use crate::dependencies;
use crate::gpu_check;
use crate::process::{self, Failure};
use crate::scratch::ScratchFolder;
use crate::tidy;
use std::path::Path;
use std::time::Instant;

/// The flags, for the usage text.
pub const FLAGS: &str = "[--cuda [--build-only DIR]]";

/// One stage of the check.
struct Stage {
    name: &'static str,
    work: Work,
}

/// What a stage does.
enum Work {
    /// Runs cargo with these words.
    Cargo(&'static str),
    /// Runs cargo with these words, where what rustdoc warns of is an error.
    CargoDoc(&'static str),
    /// Runs the rules of `tidy` in this process.
    Tidy,
    /// Looks at the crates that we build on.
    Dependencies,
}

/// The stages in order of cost. `cargo test` without target flags runs doctests too.
const STAGES: [Stage; 6] = [
    Stage { name: "format", work: Work::Cargo("fmt --all -- --check") },
    Stage { name: "tidy", work: Work::Tidy },
    Stage { name: "dependencies", work: Work::Dependencies },
    Stage {
        name: "clippy",
        work: Work::Cargo("clippy --workspace --all-targets --locked -- -D warnings"),
    },
    Stage { name: "tests", work: Work::Cargo("test --workspace --locked") },
    Stage {
        name: "docs",
        work: Work::CargoDoc("doc --workspace --no-deps --locked --document-private-items"),
    },
];

/// Runs every stage; the error names the first one that failed.
pub fn run(args: &[String]) -> Result<(), Failure> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => run_stages(),
        ["--cuda"] => gpu_check::run(),
        ["--cuda", "--build-only", folder] => gpu_check::build_only(Path::new(folder)),
        _ => Err(Failure::Usage(format!("check has {FLAGS}, but got '{}'", args.join(" ")))),
    }
}

fn run_stages() -> Result<(), Failure> {
    let required = std::env::var(requires::REQUIRE).unwrap_or_default();
    requires::required(&required).map_err(Failure::Usage)?;
    let scratch = ScratchFolder::new("check")
        .map_err(|error| Failure::Task(format!("scratch folder: {error}")))?;
    let (outcome, skipped) = run_list(&STAGES, &scratch.path.join("skips"));
    if let Some(skipped) = skipped {
        println!("{skipped}");
    }
    outcome
}

/// Runs stages up to the first failure. Beside the outcome, what tests recorded in `skips`: after a
/// failure only where there is something, since the tests may not have run.
fn run_list(stages: &[Stage], skips: &Path) -> (Result<(), Failure>, Option<String>) {
    let started = Instant::now();
    let outcome = stages.iter().try_for_each(|stage| run_stage(stage, skips));
    if outcome.is_ok() {
        let total = started.elapsed().as_secs_f64();
        println!("check: all {} stages passed in {total:.1} s", stages.len());
    }
    // Without a skipped test there is no file.
    let records = std::fs::read_to_string(skips).unwrap_or_default();
    let is_shown = outcome.is_ok() || !records.is_empty();
    (outcome, is_shown.then(|| requires::Skipped::read(&records).report()))
}

fn run_stage(stage: &Stage, skips: &Path) -> Result<(), Failure> {
    let name = stage.name;
    println!("== {name}");
    let started = Instant::now();
    let outcome = stage.work.run(skips);
    let seconds = started.elapsed().as_secs_f64();
    match outcome {
        Ok(()) => println!("== {name}: ok, {seconds:.1} s"),
        Err(failure) => {
            return Err(Failure::Task(format!(
                "== {name}: FAILED after {seconds:.1} s\ncheck failed at {name}: {failure}"
            )));
        }
    }
    Ok(())
}

impl Work {
    /// `skips` is where tests record what the machine lacks.
    fn run(&self, skips: &Path) -> Result<(), Failure> {
        let cargo = |words: &str| {
            let mut command = process::cargo();
            // It would leave out kernels.
            command.args(words.split_whitespace()).env_remove("FITGPT_KERNELS");
            command
        };
        match self {
            Work::Tidy => tidy::run(&[]),
            Work::Dependencies => dependencies::run(&[]),
            Work::Cargo(words) => process::run(cargo(words).env(requires::SKIPS, skips)),
            Work::CargoDoc(words) => process::run(cargo(words).env("RUSTDOCFLAGS", "-D warnings")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn what_resolves_dependencies_is_locked() {
        for stage in &STAGES {
            if let Work::Cargo(words) | Work::CargoDoc(words) = &stage.work {
                let locked = words.contains("--locked");
                assert!(locked || words.starts_with("fmt "), "{}", stage.name);
            }
        }
    }
    /// The first failure ends the list; what was skipped before it is told all the same.
    #[test]
    fn a_failure_does_not_hide_what_was_skipped() {
        let folder = ScratchFolder::new("check-list").unwrap();
        let skips = folder.path.join("skips");
        let stages = [
            Stage { name: "good", work: Work::Cargo("--version") },
            Stage { name: "bad", work: Work::Cargo("--no-such-flag") },
            Stage { name: "never", work: Work::Cargo("--version") },
        ];
        let (outcome, skipped) = run_list(&stages[..1], &skips);
        assert!(outcome.is_ok());
        assert_eq!(skipped.as_deref(), Some("skipped: nothing"));
        let (outcome, skipped) = run_list(&stages, &skips);
        assert!(outcome.unwrap_err().to_string().contains("check failed at bad: "));
        assert_eq!(skipped, None, "nobody knows what would have been skipped");
        std::fs::write(&skips, "gpu\ta::x\twhy\n").unwrap();
        let (outcome, skipped) = run_list(&stages, &skips);
        assert!(outcome.is_err());
        assert_eq!(skipped.as_deref(), Some("no GPU: a::x\nskipped: 1 GPU"));
    }

    /// `.ci/run` with stand-ins for Python and cargo: what cannot be installed is not required, and
    /// a warning at the end names it, however the check ends.
    #[test]
    fn ci_requires_what_it_installed_and_names_the_rest() {
        let folder = ScratchFolder::new("ci").unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path.join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            process::run(Command::new("chmod").arg("+x").arg(&path)).unwrap();
        };
        write("cargo", "echo \"cargo $* requires '$FITGPT_REQUIRE'\"\nexit $ENDS");
        write("pip", "case \"$*\" in *nvrtc*) exit 1;; esac");
        // Three arguments: -m venv FOLDER.
        let venv = "mkdir -p \"$3/bin\" && cp \"$(dirname \"$0\")/pip\" \"$3/bin/pip\"";
        for (python, ends, required, missing) in [
            (venv, "0", "requires 'python,peers,mpi'", "NOT INSTALLED: nvrtc,architectures\n"),
            ("exit 1", "7", "requires ''", "NOT INSTALLED: nvrtc,architectures,python,peers,mpi\n"),
        ] {
            write("python3", python);
            let path = format!("{}:{}", folder.path.display(), std::env::var("PATH").unwrap());
            let mut run = Command::new("bash");
            run.arg(process::workspace_root().join(".ci/run")).env("PATH", path);
            run.env("TMPDIR", &folder.path).env("ENDS", ends);
            let Ok(output) = run.output() else {
                return requires::absent(requires::Need::Bash, "there is no bash here");
            };
            let said =
                String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code().unwrap().to_string(), ends, "{said}");
            assert!(said.contains(&format!("cargo xtask check {required}\n")), "{said}");
            assert_eq!(said.matches(missing).count(), 1, "{said}");
        }
    }
}
