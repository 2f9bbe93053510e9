//! `fitgpt bench`: times whole iterations and evaluation batches on the device that `train` would
//! use, with random tokens, then every step, compared with the ceiling that bounds it.

use super::line;
use crate::bench_report::{BenchReport, MemoryFacts, OpRow, Predictions};
use crate::device::Device;
use crate::flags::{FlagSet, RANKS, flags, number};
use crate::invocation::{environment, settings};
use crate::plan_report::document::plain;
use crate::plan_report::sentence;
use crate::planning::{Elsewhere, Planning};
use crate::screen::{show, show_json};
use crate::timing::{self, Count, median};
use crate::{measure, screen};
use ::train::TrainError;
use ::train::engine::Engine;
use search::{Machine, Planned};
use serde_json::{Map, Value};
use spec::{Command, Settings, SpecError, Values, resolve};

flags! {
    /// The flags of `bench`.
    pub struct Flags {
        /// time exactly N iterations; default: 5 to 20, as many as fit in about ten seconds
        iterations: Option<String> = "--iterations", "N" Values::Any;
        /// time the N-th best plan instead of the best (`plan --best` lists them)
        rank: Option<String> = "--rank", "N" Values::Any;
        /// one JSON document (fitgpt.bench/2, docs/bench-json.md) on standard output
        json: bool = "--json";
        /// do not keep the step times for later predictions
        no_keep: bool = "--no-keep";
    }
}

/// The command's row.
pub static COMMAND: super::Command = super::Command {
    name: "bench",
    about: "time a run's iterations and steps on this machine, compared with its peak rates",
    text: &["Plans a training run like `train` and times it on random tokens: whole iterations, \
         evaluation batches, then each step, compared with the hardware limit that bounds it. \
         Needs no data set and writes no checkpoint. Keeps the step times for predictions."],
    usage: &[line("fitgpt bench [config.py|config.toml ...] [--key=value ...] [flags]", "")],
    examples: &[
        line("fitgpt bench", "the built-in demo"),
        line("fitgpt bench config/case_a_124m_b64.py --vram=11.69GiB --json", ""),
    ],
    notes: &[],
    lists_data_sets: false,
    arguments: &[Values::File],
    flags: Flags::TABLE,
    closing: &[],
    keys: Some(Command::Train),
    run,
};

/// Accepted values of `--iterations`.
const ITERATIONS: std::ops::RangeInclusive<usize> = 1..=1_000_000;

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<u8, TrainError> {
    let (flags, rest) = Flags::read(arguments)?;
    let count = flags.iterations.as_deref().map(|n| number("--iterations", n, ITERATIONS));
    let count = count.transpose()?;
    let rank = flags.rank.as_deref().map(|n| number("--rank", n, RANKS)).transpose()?;
    let json = flags.json;
    let settings = settings(Command::Train, &rest)?;
    let config = given(&settings);
    let mut planning = Planning::new(&Elsewhere::default(), &here_alone(&settings, rest)?)?;
    refuse_evaluation(&planning)?;
    if !json {
        planning.introduce();
    }
    let (planned, mut engine) = match load(&mut planning, rank, json) {
        Err(error) if json && error.exit_code() == 3 => {
            let device = &planning.machine.hardware.name;
            show_json(&BenchReport::of_refusal(device, &config, &error.to_string()))?;
            return Err(error);
        }
        loaded => loaded?,
    };
    let (device, run, dims) = (here(&planning)?, &planning.run, &planning.dims);
    engine.initialise(&mut rng::torch::Generator::new(run.seed))?;
    if !json {
        show(&crate::bench_report::title(run, dims, &planned, &device.name())?)?;
    }
    let (rates, kept) = (device.measured(run), measure::find(device));
    let predictions = Predictions::new(&planned, run, &rates, kept);
    let vocabulary = dims.vocab_size;
    let count = count.map_or(Count::USUAL, Count::exactly);
    let seconds = timing::training(&mut engine, run, vocabulary, count)?;
    let eval_seconds = timing::evaluation(&mut engine, run, vocabulary, count)?;
    let device_bytes_seen = device.held_bytes();
    let times = measure::time_segments(engine.backend(), &planned.program, vocabulary)?;
    let report = BenchReport {
        device: device.name(),
        config,
        plan_hash: planned.hash(),
        tokens_per_iteration: run.tokens_per_iteration(),
        eval_tokens: run.eval_batch_size.saturating_mul(run.eval_block_size),
        iterations: seconds.len(),
        seconds: median(seconds),
        eval_seconds: median(eval_seconds),
        predictions,
        memory: MemoryFacts { arena: engine.arena_bytes(), seen: device_bytes_seen },
        ops: OpRow::all(&planned, &times, &rates),
        slices: planned.program.train_slices.clone(),
        plan: planned.cut().map(|cut| sentence::of_cut(&cut, run)),
    };
    match json {
        true => show_json(&report.document())?,
        false => show(&report.text())?,
    }
    if !flags.no_keep {
        let times = measure::op_times(&planned.plan, &times, &rates);
        let place = measure::keep(&times, device)?;
        if let (Some(place), false) = (place, json) {
            tell_kept(times.steps.len(), &place);
        }
    }
    Ok(0)
}

fn refuse_evaluation(planning: &Planning) -> Result<(), SpecError> {
    match planning.run.eval_only {
        true => {
            let what = "bench times training: leave out eval_only".to_string();
            Err(SpecError::Conflict { what })
        }
        false => Ok(()),
    }
}

fn tell_kept(count: usize, place: &std::path::Path) {
    let place = place.display();
    screen::line(&screen::faint(&format!(
        "times of {count} kinds of steps are kept in {place}; `plan` predicts from them"
    )));
}

/// The given settings, for the document.
fn given(settings: &Settings) -> Map<String, Value> {
    let typed = settings.iter().filter(|setting| setting.is_given());
    typed.map(|setting| (setting.key.name.to_string(), plain(&setting.value))).collect()
}

/// The arguments, changed so that they are planned for this machine. Without a GPU, some settings
/// make `plan` plan for another machine's card; `bench` uses the CPU instead, or says why there is
/// no GPU.
fn here_alone(settings: &Settings, mut rest: Vec<String>) -> Result<Vec<String>, TrainError> {
    let environment = environment();
    let (run, _) = resolve(settings, &environment)?;
    match run.device {
        spec::RequestedDevice::Cuda(_) | spec::RequestedDevice::Auto
            if environment.cuda_devices == 0 =>
        {
            Device::find(run.device, settings.asks_for_gpu())?;
            rest.push("--device=cpu".to_string());
        }
        _ => {}
    }
    Ok(rest)
}

/// The device that the run was planned for.
fn here(planning: &Planning) -> Result<&Device, TrainError> {
    let what = "bench runs on this machine only".to_string();
    planning.here.as_ref().ok_or(SpecError::Conflict { what }.into())
}

fn too_few(rank: usize, found: usize) -> String {
    let are = if found == 1 { "is only 1 plan" } else { &format!("are only {found} plans") };
    format!("--rank {rank}: there {are} (`plan --best {rank}` lists them)")
}

/// Plans and allocates the memory: like `train`, or the plan of a rank.
fn load(
    planning: &mut Planning,
    rank: Option<usize>,
    quiet: bool,
) -> Result<(Planned, Engine), TrainError> {
    let mut machine = planning.machine.clone();
    let say = |text: &str| {
        if !quiet {
            screen::notice(text);
        }
    };
    let plan = |machine: &Machine| match rank {
        None => planning.planned(machine),
        Some(rank) => {
            let mut best = planning.best(machine, rank)?;
            let found = best.len();
            let none = || SpecError::Conflict { what: too_few(rank, found) };
            Ok(best.pop().filter(|_| found == rank).ok_or_else(none)?)
        }
    };
    let loaded = here(planning)?.load_planned(&planning.run, &mut machine, &[], &say, plan)?;
    let (planned, backend) = loaded;
    let engine = Engine::new(backend, planned.program.clone(), planning.dims);
    planning.machine = machine;
    Ok((planned, engine))
}
