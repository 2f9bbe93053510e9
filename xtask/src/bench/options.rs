//! The command line of `cargo xtask bench`.

use super::cases::CASES;
use crate::{flags, process};

/// The flags, for the usage text.
pub const FLAGS: &str = "[--nanogpt DIR] [--python PY] [--steps N] [--warmup N] [--rounds R] \
     [--threads N] [--case a|b|gpt2 [--fitgpt PATH] [--vram SIZE] [--compile 0|1]]";

const KNOWN: [&str; 10] = [
    "--nanogpt",
    "--python",
    "--steps",
    "--warmup",
    "--rounds",
    "--threads",
    "--case",
    "--fitgpt",
    "--vram",
    "--compile",
];

/// What to run, and how often.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    /// A checkout of nanoGPT (the folder with `model.py`); without it there is no ratio.
    pub nanogpt: Option<String>,
    /// The Python that has torch.
    pub python: String,
    /// Timed iterations per run.
    pub steps: u32,
    /// Iterations before the timed ones.
    pub warmup: u32,
    /// How often each program runs.
    pub rounds: u32,
    /// Threads per program, on the CPU.
    pub threads: u32,
    /// A case to run on a GPU, instead of a step on the CPU.
    pub case: Option<String>,
    /// Path of our binary, relative to the workspace root.
    pub fitgpt: String,
    /// GPU memory that fitgpt may use.
    pub vram: Option<String>,
    /// Whether nanoGPT's model is compiled.
    pub compile: bool,
}

impl Options {
    /// Reads `--flag value` and `--flag=value`.
    pub fn parse(args: &[String]) -> Result<Options, String> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let given = flags::read("bench", &KNOWN, FLAGS, args)?;
        // Iterations on a GPU are short and regular: time more of them, in one turn.
        let (steps, warmup, rounds) =
            if given.contains_key("--case") { (20, 3, 1) } else { (5, 1, 3) };
        let mut options = Options {
            nanogpt: None,
            python: process::default_python(),
            steps,
            warmup,
            rounds,
            threads: u32::try_from(cores).unwrap_or(1),
            case: None,
            fitgpt: "target/release/fitgpt".to_owned(),
            vram: None,
            compile: true,
        };
        for (flag, value) in given {
            match flag.as_str() {
                "--case" => options.case = Some(case(&value)?),
                "--fitgpt" => options.fitgpt = value,
                "--vram" => options.vram = Some(value),
                "--compile" => options.compile = switch(&flag, &value)?,
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

fn case(name: &str) -> Result<String, String> {
    let names = CASES.map(|(name, _)| name);
    match names.contains(&name) {
        true => Ok(name.to_owned()),
        false => Err(format!("--case is one of {}, not '{name}'", names.join(", "))),
    }
}

fn switch(flag: &str, text: &str) -> Result<bool, String> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(format!("{flag} needs 0 or 1, not '{text}'")),
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
            ("--case c", "--case is one of a, b, gpt2, not 'c'"),
            ("--compile yes", "--compile needs 0 or 1, not 'yes'"),
        ] {
            let problem = parse(line).unwrap_err();
            assert!(problem.starts_with(want), "{problem}");
        }
    }
}
