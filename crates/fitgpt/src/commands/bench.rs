//! `fitgpt bench`: whole iterations and evaluation batches timed on the device that `train` would
//! take, on random tokens, then every step by itself beside the ceiling that bounds it.

use super::plan::{Case, host_memory, show_json};
use super::{environment, settings, show};
use crate::bench_report::{BenchReport, MemoryFacts, OpRow, Predictions};
use crate::device::Device;
use crate::flags::{Flag, Given};
use crate::plan_report::document::plain;
use crate::{measure, screen};
use ::train::TrainError;
use ::train::engine::{Engine, Rows};
use plan::StepInputs;
use serde_json::{Map, Value};
use spec::{Command, Machine, Memory, Planned, RunSpec, Settings, SpecError, resolve};
use std::time::Instant;

const FLAGS: [Flag; 3] = [
    Flag { name: "--iterations", value: Some("number") },
    Flag { name: "--json", value: None },
    Flag { name: "--no-keep", value: None },
];

/// Iterations before the timed ones: caches, clocks and graphs settle.
const WARM_UP: u64 = 3;

/// Timed iterations where nobody says: as many as fit these seconds, between least and most.
const LEAST: usize = 5;
const MOST: usize = 20;
const PATIENCE: f64 = 10.0;

/// Iterations that may be asked for.
const ITERATIONS: std::ops::RangeInclusive<usize> = 1..=1_000_000;

/// Small, so that the weights stay where numbers are usual.
const LEARNING_RATE: f64 = 1e-4;

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<u8, TrainError> {
    let flags = Given::new(&FLAGS, arguments)?;
    let count = flags.get("--iterations").map(iterations).transpose()?;
    let json = flags.has("--json");
    let settings = settings(Command::Train, &flags.rest)?;
    let config = given(&settings);
    let mut case = Case::new(&flags, &here_alone(&settings, flags.rest.clone())?)?;
    if case.run.eval_only {
        let what = "bench times training: leave out eval_only".to_string();
        return Err(SpecError::Conflict { what }.into());
    }
    if !json {
        case.introduce();
    }
    let (planned, mut engine) = match load(&mut case, json) {
        Err(error) if json && error.exit_code() == 3 => {
            let device = &case.machine.device.name;
            show_json(&BenchReport::of_refusal(device, &config, &error.to_string()))?;
            return Err(error);
        }
        loaded => loaded?,
    };
    let device = here(&case)?;
    let host = host_memory(&case.run, &planned);
    device.check_host_memory(&host)?;
    engine.initialise(&mut rng::torch::Generator::new(case.run.seed))?;
    if !json {
        show(&crate::bench_report::title(&case.run, &case.dims, &planned, &device.name())?)?;
    }
    let (rates, kept) = (device.measured(case.run.dtype), measure::find(device));
    let predictions = Predictions::new(&planned, &case.run, &rates, kept);
    let vocabulary = case.dims.vocab_size;
    let seconds = time_training(&mut engine, &case.run, vocabulary, count)?;
    let eval_seconds = time_evaluation(&mut engine, &case.run, vocabulary, count)?;
    let device_bytes_seen = device.held_bytes();
    let times = measure::time_segments(engine.backend(), &planned.program, vocabulary)?;
    let report = BenchReport {
        device: device.name(),
        config,
        plan_hash: planned.hash(),
        tokens_per_iteration: case.run.tokens_per_iteration(),
        eval_tokens: case.run.eval_batch_size.saturating_mul(case.run.eval_block_size),
        iterations: seconds.len(),
        seconds: median(seconds),
        eval_seconds: median(eval_seconds),
        predictions,
        memory: MemoryFacts { arena: engine.arena_bytes(), seen: device_bytes_seen },
        ops: OpRow::all(&planned, &times, &rates),
        slices: planned.program.train_slices.clone(),
    };
    match json {
        true => show_json(&report.document())?,
        false => show(&report.text())?,
    }
    if !flags.has("--no-keep") {
        let times = measure::op_times(&planned.plan, &times, &rates);
        let place = measure::keep(&times, device)?;
        if let (Some(place), false) = (place, json) {
            let (count, place) = (times.steps.len(), place.display());
            screen::line(&screen::faint(&format!(
                "kept in {place}: times of {count} kinds of steps, `plan` predicts by them"
            )));
        }
    }
    Ok(0)
}

fn iterations(given: &str) -> Result<usize, SpecError> {
    let number = given.parse().ok().filter(|number| ITERATIONS.contains(number));
    number.ok_or_else(|| {
        let shown: String = given.chars().take(40).collect();
        let what = format!("--iterations needs a whole number of at least 1, not '{shown}'");
        SpecError::Conflict { what }
    })
}

/// Settings that were given, for the document.
fn given(settings: &Settings) -> Map<String, Value> {
    let typed = settings.iter().filter(|setting| setting.is_given());
    typed.map(|setting| (setting.key.name.to_string(), plain(&setting.value))).collect()
}

/// The arguments so that they are planned for this machine: without a GPU, `plan` takes some for a
/// card elsewhere where `train` takes the CPU, or says why there is no GPU.
fn here_alone(settings: &Settings, mut rest: Vec<String>) -> Result<Vec<String>, TrainError> {
    let environment = environment();
    let (run, _) = resolve(settings, &environment)?;
    match run.device {
        spec::Device::Cuda(_) if environment.cuda_devices == 0 => {
            Device::find(run.device)?;
        }
        spec::Device::Auto if environment.cuda_devices == 0 && run.vram != Memory::Auto => {
            rest.push("--device=cpu".to_string());
        }
        _ => {}
    }
    Ok(rest)
}

/// The device that the case was planned for.
fn here(case: &Case) -> Result<&Device, TrainError> {
    let what = "bench runs here, not on a card elsewhere".to_string();
    case.here.as_ref().ok_or(SpecError::Conflict { what }.into())
}

/// Plans and takes the memory, as `train` does.
fn load(case: &mut Case, quiet: bool) -> Result<(Planned, Engine), TrainError> {
    let mut machine = case.machine.clone();
    let say = |text: &str| {
        if !quiet {
            screen::notice(text);
        }
    };
    let plan = |machine: &Machine| case.planned(machine);
    let loaded = here(case)?.load_planned(&case.run, &mut machine, &[], &say, plan)?;
    let (planned, backend) = loaded;
    let engine = Engine::new(backend, planned.program.clone(), case.dims);
    case.machine = machine;
    Ok((planned, engine))
}

/// Seconds of whole iterations, as `train` runs them but for reading text: the state is read at the
/// end of each, which waits for the device.
fn time_training(
    engine: &mut Engine,
    run: &RunSpec,
    vocabulary: u64,
    count: Option<usize>,
) -> Result<Vec<f64>, TrainError> {
    let sequences = run.sequences_per_iteration();
    let rows = random_rows(sequences, run.block_size, vocabulary)?;
    let inverse_tokens = 1.0 / run.tokens_per_iteration() as f32;
    timed(count, |iteration| {
        let step = StepInputs {
            lr: LEARNING_RATE,
            grad_clip: run.grad_clip.unwrap_or(0.0),
            iteration,
            seed: run.seed,
            inverse_tokens,
            ..StepInputs::default()
        };
        engine.train_rows(&rows, &step, &mut |_| true)?;
        engine.update(&step)?;
        engine.state()?;
        let losses = engine.row_losses(sequences)?;
        // Times of numbers that are none would tell nothing.
        match losses.iter().all(|loss| loss.is_finite()) {
            true => Ok(()),
            false => Err(TrainError::Diverged { iteration, lr: LEARNING_RATE }),
        }
    })
}

/// Seconds of evaluation batches.
fn time_evaluation(
    engine: &mut Engine,
    run: &RunSpec,
    vocabulary: u64,
    count: Option<usize>,
) -> Result<Vec<f64>, TrainError> {
    if engine.program().eval.is_empty() {
        return Ok(Vec::new());
    }
    let rows = random_rows(run.eval_batch_size, run.eval_block_size, vocabulary)?;
    timed(count, |_| {
        engine.eval_rows(&rows, &mut |_| true)?;
        engine.row_losses(run.eval_batch_size)?;
        Ok(())
    })
}

/// Sequences with ids all over the vocabulary, each followed by another.
fn random_rows(sequences: u64, positions: u64, vocabulary: u64) -> Result<Rows, TrainError> {
    let mut rows = Rows::new(sequences, positions)?;
    let (tokens, targets) = (&mut rows.tokens, &mut rows.targets);
    let mut ids = measure::spread(tokens.len() as u64 + 1, vocabulary);
    let mut last = ids.next().unwrap_or(0);
    for ((token, target), id) in tokens.iter_mut().zip(targets).zip(ids) {
        (*token, *target) = (last, id);
        last = id;
    }
    Ok(rows)
}

/// Seconds of each run of some work, warmed up.
fn timed(
    count: Option<usize>,
    mut work: impl FnMut(u64) -> Result<(), TrainError>,
) -> Result<Vec<f64>, TrainError> {
    (0..WARM_UP).try_for_each(&mut work)?;
    let start = Instant::now();
    let mut seconds: Vec<f64> = Vec::new();
    loop {
        let done = seconds.len();
        let enough = match count {
            Some(count) => done >= count,
            None => done >= MOST || (done >= LEAST && start.elapsed().as_secs_f64() > PATIENCE),
        };
        if enough {
            return Ok(seconds);
        }
        let before = Instant::now();
        work(WARM_UP + done as u64)?;
        seconds.push(before.elapsed().as_secs_f64());
    }
}

/// The middle one, or the mean of the middle two; none of none.
fn median(mut seconds: Vec<f64>) -> Option<f64> {
    seconds.sort_by(f64::total_cmp);
    let upper = *seconds.get(seconds.len() / 2)?;
    let lower = *seconds.get((seconds.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_of_the_middle() {
        assert_eq!(median(Vec::new()), None);
        assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 9.0]), Some(3.0));
    }

    #[test]
    fn work_is_warmed_up_and_counted() {
        let mut seen = Vec::new();
        let seconds = timed(Some(2), |iteration| {
            seen.push(iteration);
            Ok(())
        });
        assert_eq!(seconds.unwrap().len(), 2);
        assert_eq!(seen, [0, 1, 2, 3, 4]);
        assert_eq!(timed(None, |_| Ok(())).unwrap().len(), MOST);
    }

    #[test]
    fn every_id_is_followed_by_its_target() {
        let rows = random_rows(2, 3, 65).unwrap();
        assert_eq!(rows.tokens[1..], rows.targets[..5]);
        assert!(rows.tokens.iter().chain(&rows.targets).all(|id| (0..65).contains(id)));
    }
}
