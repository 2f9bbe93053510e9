//! The command line of `cargo xtask bench`.

use crate::{flags, process};

/// The flags, for the usage text.
pub const FLAGS: &str =
    "[--nanogpt DIR] [--python PY] [--steps N] [--warmup N] [--rounds R] [--threads N]";

const KNOWN: [&str; 6] = ["--nanogpt", "--python", "--steps", "--warmup", "--rounds", "--threads"];

/// What to run, and how often.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    /// A checkout of nanoGPT (the folder of its `model.py`); without one there is no ratio.
    pub nanogpt: Option<String>,
    /// The Python that has torch.
    pub python: String,
    /// Timed iterations of each run.
    pub steps: u32,
    /// Iterations before the timed ones.
    pub warmup: u32,
    /// How often each program runs.
    pub rounds: u32,
    /// Threads of each program.
    pub threads: u32,
}

impl Options {
    /// Reads `--flag value` and `--flag=value`.
    pub fn parse(args: &[String]) -> Result<Options, String> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut options = Options {
            nanogpt: None,
            python: process::default_python(),
            steps: 5,
            warmup: 1,
            rounds: 3,
            threads: u32::try_from(cores).unwrap_or(1),
        };
        for (flag, value) in flags::read("bench", &KNOWN, FLAGS, args)? {
            match flag.as_str() {
                "--nanogpt" => options.nanogpt = Some(value),
                "--python" => options.python = value,
                "--steps" => options.steps = at_least(1, &flag, &value)?,
                "--warmup" => options.warmup = at_least(0, &flag, &value)?,
                "--rounds" => options.rounds = at_least(1, &flag, &value)?,
                _ => options.threads = at_least(1, &flag, &value)?,
            }
        }
        Ok(options)
    }
}

fn at_least(least: u32, flag: &str, text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(number) if number >= least => Ok(number),
        _ => Err(format!("{flag} needs a whole number of at least {least}, not '{text}'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&args)
    }

    #[test]
    fn both_forms_of_a_flag_are_read() {
        let options = parse("--nanogpt /n --python=py --steps 2 --warmup=0 --rounds 1").unwrap();
        assert_eq!(options.nanogpt.as_deref(), Some("/n"));
        assert_eq!(options.python, "py");
        assert_eq!((options.steps, options.warmup, options.rounds), (2, 0, 1));
        assert!(options.threads >= 1);
    }

    #[test]
    fn mistakes_are_named() {
        for (line, want) in [
            ("--steps", "--steps needs a value"),
            ("--steps x", "--steps needs a whole number of at least 1, not 'x'"),
            ("--rounds=0", "--rounds needs a whole number of at least 1, not '0'"),
            ("fast", "bench has no flag 'fast'"),
        ] {
            let problem = parse(line).unwrap_err();
            assert!(problem.starts_with(want), "{problem}");
        }
    }
}
