//! `cargo xtask check`: everything a change must pass, cheapest first, first failure stops. Tests
//! that the machine lacks something for are listed at the end.

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
}

/// The stages in order of cost. `cargo test` without target flags runs doctests too.
const STAGES: [Stage; 5] = [
    Stage { name: "format", work: Work::Cargo("fmt --all -- --check") },
    Stage { name: "tidy", work: Work::Tidy },
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
    let skips = scratch.path.join("skips");
    let started = Instant::now();
    for stage in &STAGES {
        println!("== {}", stage.name);
        let stage_started = Instant::now();
        let outcome = stage.work.run(&skips);
        let seconds = stage_started.elapsed().as_secs_f64();
        match outcome {
            Ok(()) => println!("== {}: ok, {seconds:.1} s", stage.name),
            Err(failure) => {
                let name = stage.name;
                return Err(Failure::Task(format!(
                    "== {name}: FAILED after {seconds:.1} s\ncheck failed at {name}: {failure}"
                )));
            }
        }
    }
    let total = started.elapsed().as_secs_f64();
    println!("check: all {} stages passed in {total:.1} s", STAGES.len());
    // Without a skipped test there is no file.
    let records = std::fs::read_to_string(&skips).unwrap_or_default();
    println!("{}", requires::Skipped::read(&records).report());
    Ok(())
}

impl Work {
    /// `skips` is where tests record what the machine lacks.
    fn run(&self, skips: &Path) -> Result<(), Failure> {
        let cargo = |words: &str| {
            let mut command = process::cargo();
            command.args(words.split_whitespace());
            command
        };
        match self {
            Work::Tidy => tidy::run(&[]),
            Work::Cargo(words) => process::run(cargo(words).env(requires::SKIPS, skips)),
            Work::CargoDoc(words) => process::run(cargo(words).env("RUSTDOCFLAGS", "-D warnings")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_resolves_dependencies_is_locked() {
        for stage in &STAGES {
            if let Work::Cargo(words) | Work::CargoDoc(words) = &stage.work {
                let locked = words.contains("--locked");
                assert!(locked || words.starts_with("fmt "), "{}", stage.name);
            }
        }
    }
}
