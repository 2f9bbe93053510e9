//! `cargo xtask soak`: builds `crates/soak` and `fitgpt` with all arithmetic checks, and runs the
//! first on the second. `crates/soak/src/section.rs` explains what it does.

use crate::bench::Machine;
use crate::process::{self, Failure};

/// The flags, for the usage text.
pub const FLAGS: &str = "[NAME] [--minutes N] [--seed S] [--cases N] [--first I] [--cuda] \
                         [--keep bench-history]";

/// Flags that take a value.
const VALUED: [&str; 5] = ["--minutes", "--seed", "--cases", "--first", "--keep"];

/// The profile in `Cargo.toml`; also the name of its folder under `target`.
const PROFILE: &str = "soak";

/// Builds and runs.
pub fn run(args: &[String]) -> Result<(), Failure> {
    check(args).map_err(Failure::Usage)?;
    let mut build = process::cargo();
    build.args(["build", "--quiet", "--locked", "--profile", PROFILE]);
    process::run(build.args(["-p", "fitgpt", "-p", "fitgpt-soak", "-p", "fitgpt-faults"]))?;
    let folder = process::target_folder().join(PROFILE);
    let machine = Machine::read();
    let mut soak = std::process::Command::new(folder.join("fitgpt-soak"));
    soak.current_dir(process::workspace_root()).args(args);
    soak.arg(format!("--binary={}", folder.join("fitgpt").display()));
    soak.arg(format!("--faults={}", folder.join("libfitgpt_faults.so").display()));
    soak.arg(format!("--commit={}", machine.commit)).arg(format!("--date={}", machine.date));
    soak.arg(format!("--machine={}", machine.slug()));
    let status = soak.arg(format!("--cpu={}", machine.cpu)).status();
    match status.map_err(|error| Failure::Task(format!("soak: {error}")))?.code() {
        Some(0) => Ok(()),
        Some(1) => Err(Failure::Task(
            "soak: there are findings, or a section could not run; see above".to_owned(),
        )),
        code => Err(Failure::Task(format!("soak: ended with {code:?}"))),
    }
}

/// Refuses invalid flags before minutes of building.
fn check(args: &[String]) -> Result<(), String> {
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let (flag, value) = arg.split_once('=').map_or((arg.as_str(), None), |(f, v)| (f, Some(v)));
        let known = !flag.starts_with("--") || flag == "--cuda" || VALUED.contains(&flag);
        if !known {
            return Err(format!("soak has no flag '{flag}'; it has {FLAGS}"));
        }
        if VALUED.contains(&flag) && value.is_none() && rest.next().is_none() {
            return Err(format!("{flag} needs a value"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_checked_before_anything_is_built() {
        for (line, good) in [
            ("bytes/parquet --seed 77 --cases=1 --first 123 --cuda", true),
            ("", true),
            ("--speed 5", false),
            ("--seed", false),
        ] {
            let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            assert_eq!(check(&args).is_ok(), good, "{line}");
        }
    }
}
