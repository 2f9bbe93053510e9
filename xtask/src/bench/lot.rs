//! `cargo xtask bench --case`: `fitgpt` and the real nanoGPT take turns on one GPU. A lot begins
//! and ends with case (a), so that lots of different minutes can be compared.
//!
//! The record is written anew after every run: whatever ends the lot, what was measured is kept.

use super::cases::{self, ANCHOR, Case, Places, Task, Work};
use super::lot_record::{LotRecord, Run};
use super::machine::Machine;
use super::options::Options;
use super::record::{Who, vacant};
use super::watch::{Started, watch};
use crate::process::{self, Failure};
use crate::scratch::ScratchFolder;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Instant;

/// Runs the lot, prints the table, keeps the record. Without torch or a GPU there is nothing to
/// compare: then it prints so and succeeds.
pub fn run(options: &Options, args: &[String]) -> Result<(), Failure> {
    let Some(nanogpt) = &options.nanogpt else {
        let what = "bench --case compares with nanoGPT: give --nanogpt DIR";
        return Err(Failure::Usage(what.to_owned()));
    };
    let gpu = match cases::gpu_by_torch(&options.python) {
        Ok(gpu) => gpu,
        Err(why) => {
            println!("skipped: {why}");
            return Ok(());
        }
    };
    let scratch = ScratchFolder::new("bench").map_err(|error| Failure::Task(error.to_string()))?;
    let root = process::workspace_root();
    let nanogpt = std::fs::canonicalize(nanogpt).unwrap_or_else(|_| nanogpt.into());
    let fitgpt = root.join(options.fitgpt.as_deref().unwrap_or("target/release/fitgpt"));
    let places = Places { fitgpt, nanogpt, scratch: scratch.path.clone(), root };
    cases::check(&places, &options.cases).map_err(Failure::Task)?;
    let machine = Machine { gpu: Some(gpu), ..Machine::read() };
    let path = vacant(&places.root.join(&options.records), &machine, "_lot")?;
    let record = LotRecord {
        machine,
        command: args.to_vec(),
        settings: settings(options),
        runs: Vec::new(),
    };
    let mut lot = Lot { options, places, path, record, peers: HashMap::new() };
    lot.measure()?;
    println!("\n{}\nwritten to {}", lot.record.table(), lot.path.display());
    match lot.record.runs.iter().any(|run| run.outcome.is_ok()) {
        true => Ok(()),
        false => Err(Failure::Task("bench: every program failed".to_owned())),
    }
}

fn settings(options: &Options) -> Value {
    json!({
        "cases": options.cases.iter().map(|case| case.name).collect::<Vec<_>>(),
        "vram": options.vram(),
        "compile": options.compile,
        "rounds": options.rounds,
        "steps": options.steps,
        "peer_steps": options.peer_steps(),
        "warmup": options.warmup,
        "char_iters": options.char_iters,
        "best": options.best,
        "together": options.together,
    })
}

/// The cases of a round: the anchor, then the others.
fn round_of(cases: &[&'static Case]) -> impl Iterator<Item = &'static Case> {
    let others = cases.iter().copied().filter(|case| case.name != ANCHOR);
    cases::find(ANCHOR).into_iter().chain(others)
}

/// The visits of a lot: each round begins with the anchor, and the anchor comes last.
fn visits(cases: &[&'static Case], rounds: u32) -> Vec<(u32, &'static Case)> {
    let of_round = |round| round_of(cases).map(move |case| (round, case));
    let mut visits: Vec<_> = (1..=rounds).flat_map(of_round).collect();
    visits.extend(cases::find(ANCHOR).map(|case| (rounds + 1, case)));
    visits
}

/// What a program of nanoGPT that waits can do.
const PEER_TURN: (Who, Task) = (Who::Nanogpt, Task::Iterations);

/// A lot that is being measured.
struct Lot<'a> {
    options: &'a Options,
    places: Places,
    path: PathBuf,
    record: LotRecord,
    /// Programs of nanoGPT that wait for their turn, by case.
    peers: HashMap<&'static str, Started>,
}

impl Lot<'_> {
    fn measure(&mut self) -> Result<(), Failure> {
        let gpu = self.record.machine.gpu.as_deref().unwrap_or("no GPU");
        println!("{gpu}: ours and nanoGPT's in turns; record {}", self.path.display());
        self.record.write(&self.path)?;
        if self.options.cases.iter().any(|case| case.work == Work::Loop) {
            let written = cases::write_tokens(&self.places.scratch);
            written.map_err(|error| Failure::Task(format!("bench: its tokens: {error}")))?;
        }
        if self.options.together > 0 {
            self.start_peers();
        }
        for (round, case) in visits(&self.options.cases, self.options.rounds) {
            for (who, task) in case.turns(self.options.best) {
                let run = self.timed(round, case, who, task);
                self.record.runs.push(run);
                self.record.write(&self.path)?;
            }
        }
        Ok(())
    }

    fn timed(&mut self, round: u32, case: &'static Case, who: Who, task: Task) -> Run {
        // A run of an earlier round would be resumed.
        let _ = std::fs::remove_dir_all(self.places.scratch.join(who.name()));
        if task == Task::ColdTrain {
            let _ = std::fs::remove_dir_all(self.places.cache());
        }
        let start = Instant::now();
        let peer = self.peers.get_mut(case.name).filter(|_| (who, task) == PEER_TURN);
        let watched = peer.map_or_else(
            || {
                let mut command = case.command(who, task, &self.places, self.options);
                watch(&mut command, &self.places.scratch.join("log"))
            },
            Started::ask,
        );
        let outcome = watched.and_then(|watched| match task {
            Task::Iterations | Task::Plan(_) => watched.iterations(),
            Task::WholeRun | Task::ColdTrain | Task::WarmTrain => watched.whole_run(),
        });
        let said = match &outcome {
            Ok(report) => said(report, task),
            Err(why) => format!("failed: {why}"),
        };
        let (name, who_name, seconds) = (case.name, who.name(), start.elapsed().as_secs_f64());
        println!("round {round}: {name:<12} {who_name:<8} {said}  ({seconds:.0} s)");
        Run { case: name.to_owned(), who, task, round, outcome }
    }

    /// Starts all programs of nanoGPT, several at a time. Each compiles its model and is asked in
    /// its turn. One that fails here runs by itself in its turn, alone on the GPU.
    fn start_peers(&mut self) {
        let start = Instant::now();
        let mut cases: Vec<_> = round_of(&self.options.cases).collect();
        cases.retain(|case| case.turns(0).contains(&PEER_TURN));
        // The deepest take longest to compile.
        cases.sort_by_key(|case| Reverse(case.layers()));
        let left = Mutex::new(cases.into_iter());
        let next = || left.lock().ok()?.next();
        let peers = Mutex::new(HashMap::new());
        let work = || {
            while let Some(case) = next() {
                let mut command = case.waiting(&self.places, self.options);
                let log = self.places.scratch.join(format!("peer-{}", case.name));
                let started = Started::new(&mut command, &log)
                    .and_then(|mut started| started.wait_ready().map(|()| started));
                match (started, peers.lock()) {
                    (Ok(started), Ok(mut peers)) => drop(peers.insert(case.name, started)),
                    (Err(why), _) => println!("{}: nanogpt is not ready: {why}", case.name),
                    _ => {}
                }
            }
        };
        std::thread::scope(|scope| {
            (0..self.options.together).for_each(|_| drop(scope.spawn(work)));
        });
        self.peers = peers.into_inner().unwrap_or_default();
        let (count, seconds) = (self.peers.len(), start.elapsed().as_secs_f64());
        println!("{count} programs of nanoGPT are compiled and ready ({seconds:.0} s)");
    }
}

fn said(report: &Value, task: Task) -> String {
    let number = |field: &str| report[field].as_f64().unwrap_or(f64::NAN);
    let ms = number("ms_per_iteration");
    match task {
        Task::Iterations => format!("{:>12.0} tok/s {ms:>9.2} ms", number("tokens_per_second")),
        Task::Plan(rank) => {
            format!("{:>12.0} tok/s {ms:>9.2} ms, plan {rank}", number("tokens_per_second"))
        }
        Task::WholeRun => format!("{:>12.1} s     {ms:>9.2} ms, whole run", number("seconds")),
        Task::ColdTrain | Task::WarmTrain => {
            let start = number("second_iteration_seconds");
            format!("{start:>12.1} s     {ms:>9.2} ms, {}", task.name())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::Command;

    fn parse(line: &str) -> (Options, Vec<String>) {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        (Options::parse(&args).unwrap(), args)
    }

    /// Prints a report like fitgpt's; trains by printing nanoGPT's lines. The case b fails.
    const OURS: &str = r#"#!/bin/sh
case "$*" in
*train_shakespeare*) [ -f data/shakespeare_char/train.bin ] || exit 9 ;;
esac
case "$*" in
train*dataset=tokens*)
    [ -f data/tokens/val.bin ] && [ -n "$XDG_CACHE_HOME" ] || exit 9
    printf 'step 0: val loss 4.0\niter 0: loss 4\niter 1: loss 3\n'
    ;;
train*) printf 'step 0: val loss 4.0\niter 0: loss 4\niter 10: loss 3\n' ;;
*case_b*) echo 'needs 9 GiB' >&2; exit 3 ;;
*) printf '{\n"tokens_per_second": 600,\n"ms_per_iteration": 5,\n"device_bytes_seen": 1\n}\n' ;;
esac
"#;

    /// A Python with torch: names a GPU, and runs both of nanoGPT's scripts.
    const PYTHON: &str = r#"#!/bin/sh
[ -n "$TORCHINDUCTOR_CACHE_DIR" ] || [ "$1" = -c ] || exit 9
case "$*" in
-c*) echo 'Fake GPU' ;;
*case_b*--wait) echo 'no room' >&2; exit 1 ;;
*--wait)
    echo ready
    while read go; do echo '{"tokens_per_second": 500, "asked": true}'; done
    ;;
*train.py*) printf 'step 0: val loss 4.0\niter 0: loss 4\niter 10: loss 3\n' ;;
*) echo '{"tokens_per_second": 500, "ms_per_iteration": 6, "reserved_peak_bytes": 2}' ;;
esac
"#;

    fn program(path: &Path, text: &str) {
        std::fs::write(path, text).unwrap();
        process::run(Command::new("chmod").arg("+x").arg(path)).unwrap();
    }

    /// A folder with both programs, a checkout of nanoGPT, and room for records.
    fn folder(purpose: &str) -> ScratchFolder {
        let folder = ScratchFolder::new(purpose).unwrap();
        program(&folder.path.join("fitgpt"), OURS);
        program(&folder.path.join("python"), PYTHON);
        let data = folder.path.join("nanogpt/data/shakespeare_char");
        std::fs::create_dir_all(&data).unwrap();
        std::fs::write(data.join("train.bin"), [0]).unwrap();
        folder
    }

    fn line(folder: &Path, rest: &str) -> String {
        let at = folder.display();
        let programs = format!("--fitgpt {at}/fitgpt --python {at}/python --nanogpt {at}/nanogpt");
        format!("{programs} --records {at}/r {rest}")
    }

    #[test]
    fn the_anchor_comes_first_and_last() {
        let names = |line: &str| {
            let (options, _) = parse(line);
            let visits = visits(&options.cases, options.rounds);
            visits.iter().map(|(round, case)| format!("{round}{}", case.name)).collect::<Vec<_>>()
        };
        assert_eq!(names("--case a"), ["1a", "2a"]);
        assert_eq!(names("--case b,char"), ["1a", "1b", "1char", "2a"]);
        assert_eq!(names("--case a,b --rounds 2"), ["1a", "1b", "2a", "2b", "3a"]);
    }

    #[test]
    fn a_lot_runs_to_its_end_and_says_what_failed() {
        let folder = folder("lot");
        let (options, args) = parse(&line(&folder.path, "--case b,char --together 2"));
        run(&options, &args).unwrap();
        let mut records = std::fs::read_dir(folder.path.join("r")).unwrap();
        let path = records.next().unwrap().unwrap().path();
        assert!(path.to_str().unwrap().ends_with("_lot.json"), "{}", path.display());
        assert!(path.to_str().unwrap().contains("_fake-gpu_"), "{}", path.display());
        let record: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let runs = record["runs"].as_array().unwrap();
        let told = |run: &Value| {
            let failed = if run["error"].is_null() { "" } else { "!" };
            format!("{} {}{failed}", run["case"].as_str().unwrap(), run["who"].as_str().unwrap())
        };
        assert_eq!(
            runs.iter().map(told).collect::<Vec<_>>(),
            [
                "a fitgpt",
                "a nanogpt",
                "b fitgpt!",
                "b nanogpt",
                "char fitgpt",
                "char fitgpt",
                "char nanogpt",
                "a fitgpt",
                "a nanogpt"
            ]
        );
        assert_eq!(runs[2]["error"], "needs 9 GiB");
        // Of those that were started together, b's was not ready and ran by itself.
        let asked = [1, 3, 8].map(|index: usize| runs[index]["report"]["asked"] == true);
        assert_eq!(asked, [true, false, true]);
        assert_eq!(record["cases"][0]["ratio"], 1.2);
        assert_eq!(record["anchor_drift"], json!({ "fitgpt": 0.0, "nanogpt": 0.0 }));
    }

    #[test]
    fn train_and_the_best_plans_are_timed_beside_bench() {
        let folder = folder("lot-loop");
        let (options, args) = parse(&line(&folder.path, "--case loop --best 2"));
        run(&options, &args).unwrap();
        let mut records = std::fs::read_dir(folder.path.join("r")).unwrap();
        let text = std::fs::read_to_string(records.next().unwrap().unwrap().path()).unwrap();
        let record: Value = serde_json::from_str(&text).unwrap();
        let runs = record["runs"].as_array().unwrap();
        let told = |run: &Value| format!("{} {}", run["case"], run["task"]).replace('"', "");
        assert!(runs.iter().all(|run| run["error"].is_null()), "{text}");
        assert_eq!(
            runs.iter().map(told).collect::<Vec<_>>(),
            [
                "a iterations",
                "a iterations",
                "a plan 1",
                "a plan 2",
                "loop train, empty cache",
                "loop train",
                "loop iterations",
                "a iterations",
                "a iterations",
                "a plan 1",
                "a plan 2"
            ]
        );
    }

    #[test]
    fn what_is_missing_is_named_before_anything_runs() {
        let folder = folder("lot-missing");
        let (options, _) = parse("--case a");
        assert!(matches!(run(&options, &[]), Err(Failure::Usage(_))));
        std::fs::remove_file(folder.path.join("nanogpt/data/shakespeare_char/train.bin")).unwrap();
        let (options, _) = parse(&line(&folder.path, "--case char"));
        let why = run(&options, &[]).unwrap_err().to_string();
        assert!(why.starts_with("the case char needs "), "{why}");
        std::fs::remove_file(folder.path.join("fitgpt")).unwrap();
        let (options, _) = parse(&line(&folder.path, "--case a"));
        let why = run(&options, &[]).unwrap_err().to_string();
        assert!(why.contains("fitgpt does not exist"), "{why}");
    }
}
