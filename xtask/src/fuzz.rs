//! `cargo xtask fuzz`: damaged and hostile files into every reader, a million unless told
//! otherwise. It is the section `bytes` of the soak, by the number of cases instead of by time.
//! `crates/soak/src/bytes/readers.rs` lists the readers.

use crate::flags;
use crate::process::Failure;
use crate::soak;

/// The flags, for the usage text.
pub const FLAGS: &str = "[--target READER] [--cases N] [--seed S] [--first I] [--keep FOLDER]";

const KNOWN: [&str; 5] = ["--target", "--cases", "--seed", "--first", "--keep"];

/// Cases unless told otherwise.
const CASES: &str = "1000000";

/// Runs the section.
pub fn run(args: &[String]) -> Result<(), Failure> {
    soak::run(&arguments(args).map_err(Failure::Usage)?)
}

/// The words of `cargo xtask soak`.
fn arguments(args: &[String]) -> Result<Vec<String>, String> {
    let mut found = flags::read("fuzz", &KNOWN, FLAGS, args)?;
    let section = match found.remove("--target") {
        Some(reader) => format!("bytes/{reader}"),
        None => "bytes".to_owned(),
    };
    found.entry("--cases".to_owned()).or_insert(CASES.to_owned());
    let flags = found.into_iter().map(|(flag, value)| format!("{flag}={value}"));
    Ok(std::iter::once(section).chain(flags).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fuzz_is_a_part_of_the_soak() {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(arguments(&[]).unwrap(), words("bytes --cases=1000000"));
        let one = words("--target ckpt --cases 5 --seed=3");
        assert_eq!(arguments(&one).unwrap(), words("bytes/ckpt --cases=5 --seed=3"));
        assert!(arguments(&words("--minutes 5")).is_err());
    }
}
