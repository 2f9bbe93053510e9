//! `cargo xtask bench --case`: `fitgpt bench` and the real nanoGPT take turns on one GPU, ours
//! first and last, with the same config file.

use super::machine::Machine;
use super::options::Options;
use super::record::{Record, Run, Who, quoted};
use super::timed;
use crate::process::{self, Failure};
use std::path::PathBuf;
use std::process::Command;

const PEER_SCRIPT: &str = "xtask/peers/nanogpt_gpu.py";

/// Prints the name of the GPU that torch would use, or an empty line.
const PROBE: &str = "import torch; c = torch.cuda; \
                     print(c.get_device_name(0) if c.is_available() else '')";

/// The cases by name, each with its config file.
pub const CASES: [(&str, &str); 3] = [
    ("a", "config/case_a_124m_b64.py"),
    ("b", "config/case_b_77m_fp16.py"),
    ("gpt2", "config/train_gpt2.py"),
];

/// Times both programs, prints the table, writes the record. Without torch or a GPU there is
/// nothing to compare: then it prints so and succeeds.
pub fn run(case: &str, options: &Options, args: &[String]) -> Result<(), Failure> {
    let Some(nanogpt) = &options.nanogpt else {
        let what = "bench --case compares with nanoGPT: give --nanogpt DIR";
        return Err(Failure::Usage(what.to_owned()));
    };
    let root = process::workspace_root();
    let config = CASES.iter().find(|(name, _)| *name == case).map_or("", |(_, config)| config);
    let gpu = match gpu_by_torch(&options.python) {
        Ok(gpu) => gpu,
        Err(why) => {
            println!("skipped: {why}");
            return Ok(());
        }
    };
    let fitgpt = root.join(&options.fitgpt);
    if !fitgpt.is_file() {
        let what = "does not exist; run `cargo build --release`, or name it with --fitgpt";
        return Err(Failure::Task(format!("{} {what}", fitgpt.display())));
    }
    println!("{gpu}: {config}, ours and nanoGPT's in turns");
    let mut runs = Vec::new();
    for round in 1..=options.rounds {
        runs.push(timed(Who::Fitgpt, round, &mut ours(options, fitgpt.clone(), config))?);
        runs.push(timed(Who::Nanogpt, round, &mut theirs(options, nanogpt, config))?);
    }
    let last = options.rounds + 1;
    runs.push(timed(Who::Fitgpt, last, &mut ours(options, fitgpt, config))?);
    let vram = options.vram.as_deref().map_or("null".to_owned(), quoted);
    let record = Record {
        machine: Machine { gpu: Some(gpu), ..Machine::read() },
        command: args.to_vec(),
        settings: vec![
            ("case", quoted(case)),
            ("config", quoted(config)),
            ("vram", vram),
            ("compile", options.compile.to_string()),
            ("steps", options.steps.to_string()),
            ("warmup", options.warmup.to_string()),
        ],
        runs,
    };
    println!("\n{}", record.table());
    let path = record.write(&root.join("bench-history"))?;
    println!("written to {}", path.display());
    Ok(())
}

/// The GPU's name, or why no comparison is possible.
fn gpu_by_torch(python: &str) -> Result<String, String> {
    let said = process::ask(Command::new(python).args(["-c", PROBE]));
    let said = said.ok_or(format!(
        "{python} has no torch; name a Python that has it with FITGPT_PYTHON or --python"
    ))?;
    match said.trim() {
        "" => Err("torch sees no GPU here".to_owned()),
        name => Ok(name.to_owned()),
    }
}

/// The command that times our iteration. It does not change the user's kept step times.
fn ours(options: &Options, fitgpt: PathBuf, config: &str) -> Command {
    let mut command = Command::new(fitgpt);
    command.current_dir(process::workspace_root());
    command.args(["bench", config, "--device=cuda", "--json", "--no-keep"]);
    command.arg(format!("--iterations={}", options.steps));
    command.args(options.vram.iter().map(|vram| format!("--vram={vram}")));
    command
}

/// The command that times nanoGPT's iteration: our script around its model.
fn theirs(options: &Options, nanogpt: &str, config: &str) -> Command {
    let root = process::workspace_root();
    let mut command = Command::new(&options.python);
    command.arg(root.join(PEER_SCRIPT));
    command.args(["--nanogpt", nanogpt]).arg("--config").arg(root.join(config));
    command.args(["--steps", &options.steps.to_string()]);
    command.args(["--warmup", &options.warmup.to_string()]);
    command.args(["--compile", if options.compile { "1" } else { "0" }]);
    command
}

/// Joins a JSON document into one line. JSON strings contain no line breaks.
pub fn one_line(printed: &str) -> String {
    if !printed.trim_start().starts_with('{') {
        return printed.to_owned();
    }
    printed.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

impl Run {
    /// Reads the output of either program.
    pub fn of_output(who: Who, round: u32, printed: &str) -> Result<Run, String> {
        match who {
            Who::Fitgpt => Run::read(who, round, &one_line(printed)),
            Who::Nanogpt => Run::read(who, round, printed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> Options {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&args).unwrap()
    }

    #[test]
    fn every_case_has_its_files() {
        let root = process::workspace_root();
        for (_, config) in CASES {
            assert!(root.join(config).is_file(), "{config}");
        }
        assert!(root.join(PEER_SCRIPT).is_file());
    }

    #[test]
    fn both_programs_get_the_same_config_and_count() {
        let options = options("--case b --nanogpt /n --vram 11.69GiB --steps 7 --compile 0");
        assert_eq!((options.case.as_deref(), options.rounds), (Some("b"), 1));
        let ours = process::shown(&ours(&options, "fitgpt".into(), CASES[1].1));
        assert_eq!(
            ours,
            "fitgpt bench config/case_b_77m_fp16.py --device=cuda --json --no-keep \
             --iterations=7 --vram=11.69GiB"
        );
        let theirs = process::shown(&theirs(&options, "/n", CASES[1].1));
        assert!(
            theirs.ends_with("config/case_b_77m_fp16.py --steps 7 --warmup 3 --compile 0"),
            "{theirs}"
        );
    }

    #[test]
    fn without_a_checkout_there_is_nothing_to_compare() {
        let failure = run("a", &options("--case a"), &[]).unwrap_err();
        assert!(matches!(failure, Failure::Usage(_)));
    }

    #[test]
    fn a_python_without_torch_is_named() {
        let why = gpu_by_torch("/no/such/python").unwrap_err();
        assert!(why.starts_with("/no/such/python has no torch"), "{why}");
    }

    #[test]
    fn a_document_on_several_lines_is_read() {
        let printed = "{\n  \"predicted_tokens_per_second\": 9,\n  \"tokens_per_second\": 5.5\n}\n";
        let run = Run::of_output(Who::Fitgpt, 1, printed).unwrap();
        assert_eq!(run.tokens_per_second, 5.5);
    }
}
