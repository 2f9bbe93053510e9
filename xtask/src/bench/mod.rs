//! `cargo xtask bench`: times our training step next to nanoGPT's and keeps the numbers: a step on
//! the CPU, or with `--case` whole iterations and runs on a GPU.
//!
//! The two take turns, so that a machine that slows down slows both. Each program prints JSON; the
//! record in `bench-history/` contains it unchanged.

mod cases;
mod lot;
mod lot_record;
mod machine;
mod options;
mod package;
mod record;
mod watch;

use crate::process::{self, Failure};
pub use machine::Machine;
pub use options::FLAGS;
use options::Options;
pub use record::quoted;
use record::{Record, Run, Who};
use std::process::Command;

/// The model that both programs train, nanoGPT's small Shakespeare model, as flags they share.
pub const MODEL: [(&str, u32); 6] = [
    ("n_layer", 6),
    ("n_head", 6),
    ("n_embd", 384),
    ("block_size", 256),
    ("vocab", 65),
    ("batch_size", 64),
];

const PEER_SCRIPT: &str = "xtask/peers/nanogpt_cpu.py";

/// Times both programs, prints the table, writes the record.
pub fn run(args: &[String]) -> Result<(), Failure> {
    let options = Options::parse(args).map_err(Failure::Usage)?;
    if let Some(folder) = &options.build_only {
        return package::build(folder, &options);
    }
    if !options.table.is_empty() {
        return lot_record::print(&options.table);
    }
    if !options.cases.is_empty() {
        return lot::run(&options, args);
    }
    let build = ["build", "--release", "-p", "fitgpt-cpu", "--example", "bench_step"];
    process::run(process::cargo().args(build))?;

    let mut runs = Vec::new();
    for round in 1..=options.rounds {
        runs.push(timed(Who::Fitgpt, round, &mut ours(&options))?);
        if let Some(folder) = &options.nanogpt {
            runs.push(timed(Who::Nanogpt, round, &mut theirs(&options, folder))?);
        }
    }
    let record = Record {
        machine: Machine::read(),
        command: args.to_vec(),
        settings: vec![
            ("threads", options.threads.to_string()),
            ("steps", options.steps.to_string()),
            ("warmup", options.warmup.to_string()),
            ("model", model_json()),
        ],
        runs,
    };
    println!("\n{}", record.table());
    let path = record.write(&process::workspace_root().join("bench-history"))?;
    println!("written to {}", path.display());
    Ok(())
}

/// The command that times our step. It is already built, so `cargo run` starts it at once.
fn ours(options: &Options) -> Command {
    let mut command = process::cargo();
    command.args(["run", "--quiet", "--release", "-p", "fitgpt-cpu", "--example", "bench_step"]);
    command.arg("--").args(shared_flags(options));
    command
}

/// The command that times nanoGPT's step: our script around its model.
fn theirs(options: &Options, nanogpt: &str) -> Command {
    let mut command = Command::new(&options.python);
    command.arg(process::workspace_root().join(PEER_SCRIPT));
    command.args(["--nanogpt", nanogpt]).args(shared_flags(options));
    command
}

fn model_json() -> String {
    let model: Vec<String> =
        MODEL.iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
    format!("{{{}}}", model.join(", "))
}

fn shared_flags(options: &Options) -> Vec<String> {
    let run = [("threads", options.threads), ("steps", options.steps), ("warmup", options.warmup)];
    let flags = MODEL.into_iter().chain(run);
    flags.flat_map(|(flag, value)| [format!("--{flag}"), value.to_string()]).collect()
}

fn timed(who: Who, round: u32, command: &mut Command) -> Result<Run, Failure> {
    let printed = process::capture(command)?;
    let run = Run::read(who, round, &printed)
        .map_err(|problem| Failure::Task(format!("{}: {problem}", process::shown(command))))?;
    println!("round {round}: {:<8} {:>12.1} tokens/s", who.name(), run.tokens_per_second);
    Ok(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_programs_get_the_same_work() {
        let args: Vec<String> = ["--steps", "7", "--threads=3"].map(str::to_owned).to_vec();
        let options = Options::parse(&args).unwrap();
        let flags = shared_flags(&options).join(" ");
        assert_eq!(
            flags,
            "--n_layer 6 --n_head 6 --n_embd 384 --block_size 256 --vocab 65 --batch_size 64 \
             --threads 3 --steps 7 --warmup 1"
        );
        for command in [ours(&options), theirs(&options, "/tmp/nanogpt")] {
            assert!(process::shown(&command).ends_with(&flags));
        }
    }
}
