//! `fitgpt train TEXT`: from a text, a folder of texts or a data set to settings: prepares what is
//! not prepared yet, resumes what was begun, and otherwise sizes a model for this machine and the
//! time there is.

use crate::commands::{environment, program, settings};
use crate::device::Device;
use crate::numbers::{duration, grouped, short};
use crate::preparation::{Preparation, size};
use crate::run_report::further;
use crate::timing::{self, Count, median};
use crate::{measure, screen};
use data::{Dataset, GPT2_IDS, Split};
use model::GPT2_ROWS;
use plan::Backend;
use prepare::{Choice, Client, Hub, Job, Outcome, PrepareError, Request, SEED};
use spec::shell::quoted;
use spec::sizing::{self, EVALUATIONS, FEWEST_TOKENS, SizedRun, Text};
use spec::{Command, Machine, Origin, RunSpec, Settings, SpecError, plan_for, resolve};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use train::TrainError;
use train::engine::Engine;
use train::save;
use train::setup::checkpoint_to_resume;

/// Texts of fewer bytes are learnt character by character: a vocabulary of 50,257 would be larger
/// than what they teach.
const CHARACTERS_BELOW: u64 = 10_000_000;

/// Bytes for validation that are enough, however large the text.
const ENOUGH_FOR_VALIDATION: f64 = 1e6;

/// Shares of the documents of a folder that are tried for validation, if the first leaves none.
const LARGER_SHARES: [f64; 3] = [0.1, 0.25, 0.5];

/// Share of the time in which a sized run is timed before its iterations are counted, and its limits
/// in seconds.
const FOR_TIMING: f64 = 0.02;
const TIMED: std::ops::RangeInclusive<f64> = 0.5..=6.0;
const EVALUATION_TIMED: Count = Count { least: 3, most: 200, seconds: 0.5 };

/// Share of the time for evaluations, and what the end takes: a checkpoint and a sample.
const FOR_EVALUATION: f64 = 0.08;
const END_SECONDS: f64 = 1.0;

/// Batches of an evaluation.
const EVAL_ITERS: std::ops::RangeInclusive<u64> = 10..=200;

/// What `train TEXT` came to.
pub enum OwnText {
    /// A run to start or to resume, with its device where that was opened already.
    Run(Box<Settings>, Option<Device>),
    /// The run is finished, and its user was told how to go on.
    Finished,
    /// Asked to stop while the text was prepared.
    Interrupted,
}

/// The argument that names a text, if there is one: neither a key nor a config file.
pub fn path_among(arguments: &[String]) -> Option<(usize, &str)> {
    let is_path = |argument: &&String| {
        let config = argument.ends_with(".py") || argument.ends_with(".toml");
        !argument.starts_with('-') && !config && Path::new(argument.as_str()).exists()
    };
    let found = arguments.iter().enumerate().find(|(_, argument)| is_path(argument));
    found.map(|(index, argument)| (index, argument.as_str()))
}

/// From the text to settings. `keys` are the other arguments, `seconds` what the whole may take.
pub fn prepared_run(path: &str, keys: &[String], seconds: f64) -> Result<OwnText, TrainError> {
    let start = Instant::now();
    check_keys(path, keys)?;
    let folder = match is_data_set(Path::new(path)) {
        true => PathBuf::from(path),
        false => match prepare(path)? {
            Some(folder) => folder,
            None => return Ok(OwnText::Interrupted),
        },
    };
    let stem = stem_of(path);
    let mut arguments = keys.to_vec();
    arguments.push(format!("--dataset={}", dataset_name(&folder)?));
    let mut settings = settings(Command::Train, &arguments)?;
    if settings.get("out_dir").is_some_and(|out_dir| !out_dir.is_given()) {
        settings.set("out_dir", format!("out-{stem}").into(), Origin::Sized)?;
    }
    let out_dir = settings.get("out_dir").map(|found| found.value.plain()).unwrap_or_default();
    if save::last_path(Path::new(&out_dir)).exists() {
        settings.set("init_from", "resume".to_string().into(), Origin::Sized)?;
        return resumed(path, settings);
    }
    let device = sized(&folder, &mut settings, seconds, start)?;
    Ok(OwnText::Run(Box::new(settings), Some(device)))
}

/// What contradicts a text as an argument.
fn check_keys(path: &str, keys: &[String]) -> Result<(), SpecError> {
    let conflict = |what: String| Err(SpecError::Conflict { what });
    for key in keys {
        if !key.starts_with('-') {
            return conflict(format!(
                "'{path}' and '{key}': one text, one folder or config files; to use a config with \
                 your text, prepare it and give --dataset=NAME"
            ));
        }
        if key.starts_with("--dataset=") || key.starts_with("--init_from=") {
            return conflict(format!("'{path}' is the text to train on: leave out {key}"));
        }
    }
    Ok(())
}

fn is_data_set(path: &Path) -> bool {
    path.join("train.bin").exists()
}

/// The name of a text without folders and endings: `books/emma.txt.gz` is `emma`.
fn stem_of(path: &str) -> String {
    let name = Path::new(path).canonicalize().ok();
    let name = name.as_deref().unwrap_or(Path::new(path)).file_name();
    let name = name.map_or("text".into(), |name| name.to_string_lossy().into_owned());
    let stem =
        if Path::new(path).is_dir() { &name } else { name.split('.').next().unwrap_or(&name) };
    match stem.is_empty() {
        true => name.trim_start_matches('.').to_string(),
        false => stem.to_string(),
    }
}

/// How `--dataset` names a folder: without `data/`, or by its whole path if it lies elsewhere.
fn dataset_name(folder: &Path) -> Result<String, TrainError> {
    let mut parts = folder.components().filter(|part| *part != std::path::Component::CurDir);
    if let (Some(first), Some(second), None) = (parts.next(), parts.next(), parts.next())
        && first.as_os_str() == "data"
    {
        return Ok(second.as_os_str().to_string_lossy().into_owned());
    }
    let whole = folder.canonicalize().map_err(|error| TrainError::Io {
        path: folder.to_path_buf(),
        doing: "find the folder",
        error,
        advice: "name a folder that exists",
    })?;
    Ok(whole.to_string_lossy().into_owned())
}

/// Makes `data/<stem>`, or finds it there. None when it was asked to stop.
fn prepare(path: &str) -> Result<Option<PathBuf>, TrainError> {
    let out = Path::new("data").join(stem_of(path));
    let stop = Arc::new(AtomicBool::new(false));
    let client = Client::new(Hub::from_environment(), stop);
    let job = |val: Option<f64>, tokenizer: Option<Choice>| {
        let request = Request {
            sources: vec![path.to_string()],
            out: out.clone(),
            tokenizer,
            val,
            field: "text".to_string(),
            column: None,
            format: None,
            seed: SEED,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            max_tokens: None,
            keep_downloads: false,
            overwrite: false,
            ignore_space: false,
        };
        Job::new(request, &client).map_err(|error| failed(&error, path, &out))
    };
    let looked = job(None, None)?;
    let (tokenizer, words) = match looked.bytes < CHARACTERS_BELOW {
        true => (Choice::Char, "characters"),
        false => (Choice::Gpt2, "GPT-2's tokens"),
    };
    let shares: Vec<Option<f64>> = match looked.by_position {
        true => vec![None],
        false => shares(looked.bytes).into_iter().map(Some).collect(),
    };
    let mut last = None;
    for share in shares {
        let job = job(share, Some(tokenizer.clone()))?;
        let mut watching = Preparation::new(&job);
        let outcome = prepare::run(job, &client, &mut watching);
        watching.finish();
        match outcome {
            Ok(Outcome::Interrupted(_)) => return Ok(None),
            Ok(Outcome::Done(totals)) => {
                let tokens = grouped(totals.train_tokens + totals.val_tokens);
                screen::line(&format!(
                    "{path}: {} of text as {tokens} {words} in {} (characters below {}, GPT-2's \
                     tokens above)",
                    size(totals.text_bytes),
                    out.display(),
                    size(CHARACTERS_BELOW)
                ));
                return Ok(Some(out));
            }
            Ok(Outcome::Already(_)) => {
                screen::line(&format!("{path}: prepared before, in {}", out.display()));
                return Ok(Some(out));
            }
            // Nothing was left for one half: with so few documents a larger share may do.
            Err(PrepareError::Usage(what)) => last = Some(PrepareError::Usage(what)),
            Err(error) => return Err(failed(&error, path, &out)),
        }
    }
    let error = last.unwrap_or(PrepareError::Usage("there is no text".to_string()));
    Err(failed(&error, path, &out))
}

/// Shares for validation of a folder's documents, the first that is enough first.
fn shares(bytes: u64) -> Vec<f64> {
    let enough = (ENOUGH_FOR_VALIDATION / bytes.max(1) as f64).clamp(0.0005, LARGER_SHARES[0]);
    let rounded = (enough * 1e4).round() / 1e4;
    let larger = LARGER_SHARES.into_iter().filter(|share| *share > rounded);
    std::iter::once(rounded).chain(larger).collect()
}

/// What went wrong, with the command that has more to say about it.
fn failed(error: &PrepareError, path: &str, out: &Path) -> TrainError {
    let (path, out) = (quoted(path), quoted(&out.to_string_lossy()));
    let more = format!("`{} prepare {path} --out {out}` has more choices", program());
    TrainError::Text { what: format!("{error}; {more}") }
}

/// A run that was begun: resumed, or finished.
fn resumed(path: &str, settings: Settings) -> Result<OwnText, TrainError> {
    let mut filled = settings.clone();
    let Some((document, _)) = checkpoint_to_resume(&mut filled, &environment())? else {
        return Ok(OwnText::Run(Box::new(settings), None));
    };
    let (run, _) = resolve(&filled, &environment())?;
    let (stored, now) = (&document.config["dataset"], &run.dataset);
    if stored.as_str().is_some_and(|stored| stored != now) {
        let what = format!(
            "{} holds a run on the data set {stored}, not on '{now}': give another --out_dir",
            run.out_dir
        );
        return Err(SpecError::Conflict { what }.into());
    }
    if document.progress.iteration <= run.max_iters {
        return Ok(OwnText::Run(Box::new(settings), None));
    }
    let (program, quoted_path) = (program(), quoted(path));
    let out_dir = quoted(&format!("--out_dir={}", run.out_dir));
    screen::line(&format!(
        "{}: this run is finished ({} iterations, best validation loss {:.4}).",
        run.out_dir,
        grouped(document.progress.iteration),
        document.progress.best_val_loss
    ));
    screen::line(&format!("Generate text with:\n  {program} sample {out_dir}"));
    screen::line(&format!("Go further with:\n  {program} train {quoted_path} {}", further(&run)));
    let again = quoted(&format!("--out_dir={}-2", run.out_dir));
    screen::line(&format!("Start over with:\n  {program} train {quoted_path} {again}"));
    Ok(OwnText::Finished)
}

/// Chooses model and batch by the cost model, times them here, and counts the iterations.
fn sized(
    folder: &Path,
    settings: &mut Settings,
    seconds: f64,
    start: Instant,
) -> Result<Device, TrainError> {
    let dataset = Dataset::open(folder)?;
    let rows = dataset.meta().map_or(GPT2_ROWS, |meta| u64::from(meta.vocab_size));
    let [train_tokens, val_tokens] = [Split::Train, Split::Val].map(|s| dataset.split(s).len());
    if train_tokens.min(val_tokens) < FEWEST_TOKENS {
        let what = format!(
            "{}: {train_tokens} training and {val_tokens} validation tokens; both need at least \
             {FEWEST_TOKENS}: give more text",
            folder.display()
        );
        return Err(TrainError::Text { what });
    }
    let is_characters = rows < u64::from(GPT2_IDS);
    let text = Text { train_tokens, val_tokens, is_characters };
    let (run, _) = resolve(settings, &environment())?;
    let device = Device::find(run.device, settings.asks_for_gpu())?;
    let (machine, rates) = (device.machine(&run)?, measure::rates(&device, run.dtype));
    let predicted = |sized: &SizedRun| {
        let run = with_keys(settings, &sizing::keys(sized, 1, 1)).ok()?.1;
        let dims = run.dims(rows).ok()?;
        Some(plan_for(&run, dims, &machine).ok()?.iteration_seconds(&rates))
    };
    let choose = |seconds: f64| {
        sizing::choose(&text, seconds, predicted).ok_or_else(|| none_fits(settings, rows, &machine))
    };
    let time = |sized: &SizedRun| {
        let (_, trial) = with_keys(settings, &sizing::keys(sized, 1, 1))?;
        let seconds = (seconds * FOR_TIMING).clamp(*TIMED.start(), *TIMED.end());
        timed(&trial, rows, &machine, &device, seconds)
    };
    let mut sized = choose(seconds)?;
    let (mut each, mut each_eval) = time(&sized)?;
    // A machine that is busier than the cost model assumes has less time to give.
    let share = predicted(&sized).map_or(1.0, |predicted| predicted / each);
    let again = choose(seconds * share)?;
    if again != sized {
        sized = again;
        (each, each_eval) = time(&sized)?;
    }
    let left = (seconds - start.elapsed().as_secs_f64() - END_SECONDS).max(each);
    let eval_iters = (left * FOR_EVALUATION / (2.0 * EVALUATIONS as f64) / each_eval) as u64;
    let eval_iters = eval_iters.clamp(*EVAL_ITERS.start(), *EVAL_ITERS.end());
    let evaluations = (EVALUATIONS + 2) as f64 * 2.0 * eval_iters as f64 * each_eval;
    let (_, run) = with_keys(settings, &sizing::keys(&sized, 1, 1))?;
    let worth = sized.tokens / run.tokens_per_iteration() as f64;
    let fits = ((left - evaluations) / each).max(1.0);
    let iterations = if sized.is_limited_by_text() { fits.min(worth) } else { fits } as u64;
    let (chosen, run) = with_keys(settings, &sizing::keys(&sized, iterations, eval_iters))?;
    *settings = chosen;
    explain(&run, &sized, rows, seconds, each)?;
    Ok(device)
}

/// Not even the smallest fits: its refusal says by how much.
fn none_fits(settings: &Settings, rows: u64, machine: &Machine) -> TrainError {
    let smallest = sizing::smallest();
    let planned = with_keys(settings, &sizing::keys(&smallest, 1, 1))
        .and_then(|(_, run)| Ok(plan_for(&run, run.dims(rows)?, machine)?));
    match planned {
        Err(error) => error,
        Ok(_) => TrainError::Text { what: format!("no model fits in {}", machine.budget) },
    }
}

/// Settings with these keys where the user gave none.
fn with_keys(
    settings: &Settings,
    keys: &[(&'static str, spec::Value)],
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

/// Seconds of an iteration and of an evaluation batch, measured here.
fn timed(
    run: &RunSpec,
    rows: u64,
    machine: &Machine,
    device: &Device,
    seconds: f64,
) -> Result<(f64, f64), TrainError> {
    let dims = run.dims(rows)?;
    let mut machine = machine.clone();
    let say = |text: &str| screen::note(&format!("note: {text}"));
    let plan = |machine: &Machine| Ok::<_, TrainError>(plan_for(run, dims, machine)?);
    let loaded: (_, Box<dyn Backend>) = device.load_planned(run, &mut machine, &[], &say, plan)?;
    let (planned, backend) = loaded;
    let mut engine = Engine::new(backend, planned.program, dims);
    engine.initialise(&mut rng::torch::Generator::new(run.seed))?;
    let count = Count { least: 5, most: usize::MAX, seconds };
    let training = timing::training(&mut engine, run, rows, count)?;
    let evaluation = timing::evaluation(&mut engine, run, rows, EVALUATION_TIMED)?;
    // The mean, not the median: what disturbs an iteration now and then will go on doing so.
    let mean = training.iter().sum::<f64>() / training.len().max(1) as f64;
    Ok((mean, median(evaluation).unwrap_or(mean)))
}

/// What was chosen and why, in one line.
fn explain(
    run: &RunSpec,
    sized: &SizedRun,
    rows: u64,
    seconds: f64,
    each: f64,
) -> Result<(), TrainError> {
    let parameters =
        model::params::reported_parameters(&run.dims(rows)?).map_err(SpecError::from)?;
    let tokens = (run.max_iters * run.tokens_per_iteration()) as f64;
    let passes = sized.passes * tokens / sized.tokens.max(1.0);
    let why = match sized.is_limited_by_text() {
        true => "more would only learn the text by heart".to_string(),
        false => format!("what this machine manages in {}", duration(seconds)),
    };
    screen::line(&screen::wrapped(
        &format!(
            "sized: {:.2}M parameters ({} layers, {} heads, width {}, context {}), {} iterations of \
             {} tokens at {:.1} ms: {} tokens, {passes:.1} passes over the text, {why}",
            parameters as f64 / 1e6,
            run.n_layer,
            run.n_head,
            run.n_embd,
            run.block_size,
            grouped(run.max_iters),
            grouped(run.tokens_per_iteration()),
            each * 1e3,
            short(tokens),
        ),
        7,
        screen::wrap_width(),
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stems_are_names_without_endings() {
        for (path, want) in
            [("book.txt", "book"), ("a/b/corpus.jsonl.zst", "corpus"), (".hidden", "hidden")]
        {
            assert_eq!(stem_of(path), want);
        }
    }

    #[test]
    fn a_data_set_in_data_goes_by_its_name() {
        for path in ["data/book", "./data/book", "data/book/"] {
            assert_eq!(dataset_name(Path::new(path)).unwrap(), "book");
        }
        assert!(Path::new(&dataset_name(Path::new("/tmp")).unwrap()).is_absolute());
    }

    #[test]
    fn small_folders_keep_enough_for_validation() {
        assert_eq!(shares(1000), [0.1, 0.25, 0.5]);
        assert_eq!(shares(100_000_000)[0], 0.01);
        assert_eq!(shares(1 << 50)[0], 0.0005);
    }
}
