//! Chooses a model for a text, a device and a time limit: the cost model picks it, it is timed on
//! the device, and that time gives the number of iterations. Keys that the user gave are kept.

use crate::device::Device;
use crate::invocation::environment;
use crate::numbers::{duration, grouped, short};
use crate::timing::{self, Count, median};
use crate::{measure, screen};
use data::{Dataset, Split};
use model::GPT2_ROWS;
use plan::hardware::Hardware;
use search::sizing::{self, EVALUATIONS, FEWEST_TOKENS, FixedSettings, SizedRun, Text};
use search::{Machine, SearchError, plan_for};
use spec::{Origin, RunSpec, Settings, Value, resolve};
use std::path::Path;
use std::time::Instant;
use tokenizer::Tokenizer;
use train::TrainError;
use train::engine::Engine;

/// Share of the time limit that is spent on timing the model, and its limits in seconds.
const FOR_TIMING: f64 = 0.02;
const TIMED: std::ops::RangeInclusive<f64> = 0.5..=6.0;
const EVALUATION_TIMED: Count = Count { least: 3, most: 200, seconds: 0.5 };

/// Share of the time for evaluations, and seconds for the end: a checkpoint and a sample.
const FOR_EVALUATION: f64 = 0.08;
const END_SECONDS: f64 = 1.0;

/// Limits of `eval_iters`.
const EVAL_ITERS: std::ops::RangeInclusive<u64> = 10..=200;

/// Fills in the keys of a run on a data set that takes `seconds` from `start` on.
pub fn sized(
    folder: &Path,
    settings: &mut Settings,
    device: &Device,
    (seconds, start): (f64, Instant),
) -> Result<(), TrainError> {
    let dataset = Dataset::open(folder)?;
    let sizer = Sizer::new(&dataset, settings, device, seconds)?;
    screen::line("measuring this machine …");
    let mut sized = sizer.choose(seconds)?;
    let mut times = sizer.timed(&sized)?;
    // A busy machine is slower than the cost model predicts: choose for less time.
    let share = sizer.predicted(&sized).map_or(1.0, |predicted| predicted / times.iteration);
    let again = sizer.choose(seconds * share)?;
    if again != sized {
        sized = again;
        times = sizer.timed(&sized)?;
    }
    let left = seconds - start.elapsed().as_secs_f64() - END_SECONDS;
    let (iterations, eval_iters) = counted(&sized, &times, left, whole_key(settings, "max_iters"));
    let keys = sizing::keys(&sized, iterations, eval_iters);
    let (chosen, run) = with_keys(settings, &keys)?;
    explain(&run, &sized, sizer.rows, seconds, times.iteration)?;
    *settings = chosen;
    Ok(())
}

/// What is needed to choose and time a model.
struct Sizer<'a> {
    settings: &'a Settings,
    device: &'a Device,
    machine: Machine,
    rates: Hardware,
    text: Text,
    given: FixedSettings,
    /// Size of the vocabulary.
    rows: u64,
    seconds: f64,
}

/// Measured seconds per iteration and per evaluation batch.
struct Times {
    iteration: f64,
    evaluation: f64,
}

impl<'a> Sizer<'a> {
    fn new(
        dataset: &Dataset,
        settings: &'a Settings,
        device: &'a Device,
        seconds: f64,
    ) -> Result<Sizer<'a>, TrainError> {
        let [train_tokens, val_tokens] = [Split::Train, Split::Val].map(|s| dataset.split(s).len());
        if train_tokens.min(val_tokens) < FEWEST_TOKENS {
            let what = format!(
                "{}: {train_tokens} training and {val_tokens} validation tokens, but both splits \
                 need at least {FEWEST_TOKENS}: give more text",
                dataset.folder().display()
            );
            return Err(TrainError::Text { what });
        }
        let is_characters = matches!(dataset.tokenizer(), Ok(Tokenizer::Char(_)));
        let (run, _) = resolve(settings, &environment())?;
        Ok(Sizer {
            machine: device.machine(&run)?,
            rates: measure::rates(device, &run),
            text: Text { train_tokens, val_tokens, is_characters },
            given: FixedSettings {
                architecture: run.architecture(),
                n_layer: whole_key(settings, "n_layer"),
                n_head: whole_key(settings, "n_head"),
                n_embd: whole_key(settings, "n_embd"),
                block_size: whole_key(settings, "block_size"),
                batch_size: whole_key(settings, "batch_size"),
                accumulation: whole_key(settings, "gradient_accumulation_steps"),
            },
            rows: dataset.meta().map_or(GPT2_ROWS, |meta| u64::from(meta.vocab_size)),
            settings,
            device,
            seconds,
        })
    }

    fn choose(&self, seconds: f64) -> Result<SizedRun, TrainError> {
        let predicted = |sized: &SizedRun| self.predicted(sized);
        let found = sizing::choose(&self.text, &self.given, seconds, predicted);
        found.ok_or_else(|| self.none_fits())
    }

    /// Predicted seconds per iteration; none if the model does not fit.
    fn predicted(&self, sized: &SizedRun) -> Option<f64> {
        let run = self.trial(sized).ok()?;
        let planned = plan_for(&run, run.dims(self.rows).ok()?, &self.machine).ok()?;
        Some(planned.iteration_seconds(&self.rates))
    }

    fn trial(&self, sized: &SizedRun) -> Result<RunSpec, TrainError> {
        Ok(with_keys(self.settings, &sizing::keys(sized, 1, 1))?.1)
    }

    /// The error if not even the smallest model fits; it says how much memory is missing.
    fn none_fits(&self) -> TrainError {
        let planned = self.trial(&sizing::smallest(&self.given)).and_then(|run| {
            let dims = run.dims(self.rows)?;
            Ok(plan_for(&run, dims, &self.machine)?)
        });
        let what = || format!("no model fits in {}", self.machine.budget);
        planned.err().unwrap_or_else(|| TrainError::Text { what: what() })
    }

    /// Times the model on this device.
    fn timed(&self, sized: &SizedRun) -> Result<Times, TrainError> {
        let (run, rows) = (&self.trial(sized)?, self.rows);
        let dims = run.dims(rows)?;
        let mut machine = self.machine.clone();
        let say = |text: &str| screen::note(&format!("note: {text}"));
        let plan = |machine: &Machine| Ok::<_, TrainError>(plan_for(run, dims, machine)?);
        let (planned, backend) = self.device.load_planned(run, &mut machine, &[], &say, plan)?;
        let mut engine = Engine::new(backend, planned.program, dims);
        engine.initialise(&mut rng::torch::Generator::new(run.seed))?;
        let seconds = (self.seconds * FOR_TIMING).clamp(*TIMED.start(), *TIMED.end());
        let count = Count { least: 5, most: usize::MAX, seconds };
        let training = timing::training(&mut engine, run, rows, count)?;
        let evaluation = timing::evaluation(&mut engine, run, rows, EVALUATION_TIMED)?;
        // The mean, not the median: occasional slow iterations will keep occurring.
        let iteration = training.iter().sum::<f64>() / training.len().max(1) as f64;
        Ok(Times { iteration, evaluation: median(evaluation).unwrap_or(iteration) })
    }
}

/// The number of iterations and of evaluation batches that fill the seconds left, or the number of
/// iterations that the user asked for.
fn counted(sized: &SizedRun, times: &Times, left: f64, asked: Option<u64>) -> (u64, u64) {
    let left = left.max(times.iteration);
    let each = 2.0 * times.evaluation;
    let eval_iters = (left * FOR_EVALUATION / EVALUATIONS as f64 / each) as u64;
    let eval_iters = eval_iters.clamp(*EVAL_ITERS.start(), *EVAL_ITERS.end());
    let evaluations = (EVALUATIONS + 1) as f64 * each * eval_iters as f64;
    let fits = ((left - evaluations) / times.iteration).max(1.0);
    let worth = sized.tokens / sized.tokens_per_iteration() as f64;
    let counted = if sized.is_limited_by_text() { fits.min(worth) } else { fits } as u64;
    // The last evaluation falls on the last iteration.
    let even = if counted < EVALUATIONS { counted } else { counted / EVALUATIONS * EVALUATIONS };
    (asked.unwrap_or(even), eval_iters)
}

/// A whole number that the user gave.
fn whole_key(settings: &Settings, name: &str) -> Option<u64> {
    match settings.get(name).filter(|setting| setting.is_given())?.value {
        Value::Int(number) => u64::try_from(number).ok(),
        _ => None,
    }
}

/// Settings with these keys where the user gave none.
fn with_keys(
    settings: &Settings,
    keys: &[(&'static str, Value)],
) -> Result<(Settings, RunSpec), TrainError> {
    let mut settings = settings.clone();
    for (name, value) in keys {
        if settings.get(name).is_some_and(|setting| !setting.is_given()) {
            settings.set(name, value.clone(), Origin::Sized)?;
        }
    }
    let (run, _) = resolve(&settings, &environment())?;
    Ok((settings, run))
}

/// Prints what was chosen and why, in one line.
fn explain(
    run: &RunSpec,
    sized: &SizedRun,
    rows: u64,
    seconds: f64,
    each: f64,
) -> Result<(), TrainError> {
    let dims = run.dims(rows)?;
    let parameters = run.architecture().reported_parameters(&dims).map_err(SearchError::from)?;
    let tokens = (run.max_iters * run.tokens_per_iteration()) as f64;
    let passes = sized.passes * tokens / sized.tokens.max(1.0);
    let time = each * run.max_iters as f64;
    let is_all = sized.is_limited_by_text() && passes > 0.9 * sized.passes;
    let why = match (is_all, time > 0.5 * seconds) {
        (_, true) => format!("as much as this machine can do in {}", duration(seconds)),
        (true, false) => "more passes would usually overfit".to_string(),
        (false, false) => "as many iterations as you asked for".to_string(),
    };
    let text = format!(
        "sized: {:.2}M parameters ({} layers, {} heads, width {}, context {}), {} iterations of {} \
         tokens at {:.1} ms: {} tokens, {passes:.1} passes over the text, {why}",
        parameters as f64 / 1e6,
        run.n_layer,
        run.n_head,
        run.n_embd,
        run.block_size,
        grouped(run.max_iters),
        grouped(run.tokens_per_iteration()),
        each * 1e3,
        short(tokens),
    );
    screen::line(&screen::wrapped(&text, 7, screen::wrap_width()));
    Ok(())
}
