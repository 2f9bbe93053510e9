//! `cargo xtask fuzz`: the tests on random and damaged input (config files, meta.pkl, token files,
//! checkpoints and their documents), for as long as one likes. The check runs the same tests short.

use crate::process::{self, Failure};

/// The flags, for the usage text.
pub const FLAGS: &str = "[CASES]";

/// Cases of each test: about ten minutes on two cores.
const CASES: u64 = 100_000;

/// Crates that read what others wrote.
const CRATES: [&str; 5] = ["spec", "pickle", "data", "checkpoint", "train"];

/// Runs the tests in release mode.
pub fn run(args: &[String]) -> Result<(), Failure> {
    let cases = match args {
        [] => CASES,
        [one] => one.parse().map_err(|_| usage(one))?,
        [_, more, ..] => return Err(usage(more)),
    };
    let mut test = process::cargo();
    test.args(["test", "--release", "--test", "it"]).env("PROPTEST_CASES", cases.to_string());
    for name in CRATES {
        test.args(["-p", &format!("fitgpt-{name}")]);
    }
    process::run(&mut test)
}

fn usage(given: &str) -> Failure {
    Failure::Usage(format!("fuzz takes the number of cases, but got '{given}'"))
}
