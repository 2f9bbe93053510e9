//! The command line of `cargo xtask bench`.

use super::cases::{CASES, Case, VRAM, find};
use crate::{flags, process};
use std::path::PathBuf;

/// The flags, for the usage text.
pub const FLAGS: &str = "[--nanogpt DIR] [--python PY] [--steps N] [--warmup N] [--rounds R] \
     [--threads N] [--case all|NAME,… [--fitgpt PATH] [--vram SIZE] [--compile 0|1] \
     [--peer-steps N] [--char-iters N] [--best N] [--together JOBS] [--records DIR]] | \
     --build-only DIR [--nanogpt DIR] [--fitgpt PATH] | --table FILE,…";

const KNOWN: [&str; 17] = [
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
    "--peer-steps",
    "--char-iters",
    "--best",
    "--together",
    "--records",
    "--build-only",
    "--table",
];

/// What to run, and how often.
#[derive(Debug)]
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
    /// Cases to run on a GPU, instead of a step on the CPU.
    pub cases: Vec<&'static Case>,
    /// Path of our binary, if not the workspace's own.
    pub fitgpt: Option<String>,
    vram: Option<String>,
    /// Whether nanoGPT's model is compiled.
    pub compile: bool,
    peer_steps: Option<u32>,
    /// Length of the whole run, if not that of its config.
    pub char_iters: Option<u32>,
    /// How many of our best plans are timed as well, in cases that time iterations; 0: none.
    pub best: u32,
    /// How many programs of nanoGPT are started at a time before anything is timed; 0: each is
    /// started in its turn.
    pub together: u32,
    /// Where records go, relative to the workspace root.
    pub records: String,
    /// A folder to fill for another machine, instead of a measurement.
    pub build_only: Option<PathBuf>,
    /// Records to print as one table, instead of a measurement.
    pub table: Vec<PathBuf>,
}

impl Options {
    /// Reads `--flag value` and `--flag=value`.
    pub fn parse(args: &[String]) -> Result<Options, String> {
        let given = flags::read("bench", &KNOWN, FLAGS, args)?;
        // Iterations on a GPU are regular: time them in one turn.
        let on_gpu = given.contains_key("--case");
        let mut options = Options::new(if on_gpu { (8, 3, 1) } else { (5, 1, 3) });
        for (flag, value) in given {
            match flag.as_str() {
                "--case" => options.cases = cases(&value)?,
                "--fitgpt" => options.fitgpt = Some(value),
                "--vram" => options.vram = Some(value),
                "--compile" => options.compile = switch(&flag, &value)?,
                "--nanogpt" => options.nanogpt = Some(value),
                "--python" => options.python = value,
                "--records" => options.records = value,
                "--build-only" => options.build_only = Some(value.into()),
                "--table" => options.table = value.split(',').map(PathBuf::from).collect(),
                "--steps" => options.steps = at_least(1, &flag, &value)?,
                "--peer-steps" => options.peer_steps = Some(at_least(1, &flag, &value)?),
                "--char-iters" => options.char_iters = Some(at_least(1, &flag, &value)?),
                "--best" => options.best = at_least(0, &flag, &value)?,
                "--together" => options.together = at_least(0, &flag, &value)?,
                "--warmup" => options.warmup = at_least(0, &flag, &value)?,
                "--rounds" => options.rounds = at_least(1, &flag, &value)?,
                _ => options.threads = at_least(1, &flag, &value)?,
            }
        }
        Ok(options)
    }

    fn new((steps, warmup, rounds): (u32, u32, u32)) -> Options {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Options {
            nanogpt: None,
            python: process::default_python(),
            steps,
            warmup,
            rounds,
            threads: u32::try_from(cores).unwrap_or(1),
            cases: Vec::new(),
            fitgpt: None,
            vram: None,
            compile: true,
            peer_steps: None,
            char_iters: None,
            best: 0,
            together: 0,
            records: "bench-history".to_owned(),
            build_only: None,
            table: Vec::new(),
        }
    }

    /// nanoGPT's timed iterations.
    pub fn peer_steps(&self) -> u32 {
        self.peer_steps.unwrap_or(self.steps)
    }

    /// GPU memory that fitgpt may use in cases with a limit.
    pub fn vram(&self) -> &str {
        self.vram.as_deref().unwrap_or(VRAM)
    }
}

/// The cases of a list, each once, in the order of the table.
fn cases(list: &str) -> Result<Vec<&'static Case>, String> {
    let names: Vec<&str> = list.split(',').map(str::trim).collect();
    if let Some(unknown) = names.iter().find(|name| **name != "all" && find(name).is_none()) {
        let known: Vec<&str> = CASES.iter().map(|case| case.name).collect();
        return Err(format!("--case is all, or some of {}, not '{unknown}'", known.join(", ")));
    }
    let wanted = |case: &&Case| names.contains(&"all") || names.contains(&case.name);
    Ok(CASES.iter().filter(wanted).collect())
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
        assert!(options.threads >= 1 && options.cases.is_empty());
    }

    #[test]
    fn cases_are_listed_once_in_the_order_of_the_table() {
        let names = |line: &str| {
            let options = parse(line).unwrap();
            options.cases.iter().map(|case| case.name).collect::<Vec<_>>()
        };
        assert_eq!(names("--case char,a,b,a"), ["a", "b", "char"]);
        assert_eq!(names("--case all").len(), CASES.len());
        assert_eq!(names("--case all,char").len(), CASES.len());
        let options = parse("--case a --steps 5").unwrap();
        assert_eq!((options.peer_steps(), options.rounds, options.vram()), (5, 1, VRAM));
    }

    #[test]
    fn mistakes_are_named() {
        for (line, want) in [
            ("--steps", "--steps needs a value"),
            ("--steps x", "--steps needs a whole number of at least 1, not 'x'"),
            ("--rounds=0", "--rounds needs a whole number of at least 1, not '0'"),
            ("fast", "bench has no flag 'fast'"),
            ("--case a,c", "--case is all, or some of a, a-no-limit, b, 350m, "),
            ("--case=", "--case is all, or some of "),
            ("--char-iters 0", "--char-iters needs a whole number of at least 1, not '0'"),
            ("--compile yes", "--compile needs 0 or 1, not 'yes'"),
        ] {
            let problem = parse(line).unwrap_err();
            assert!(problem.starts_with(want), "{problem}");
        }
    }
}
