//! `fitgpt train`: what is about to happen, the bill, the run, and what came of it.

use super::sample::{self, Draw};
use super::{INTERRUPTED, environment, program, quoted, settings};
use crate::bill::{self, Beside};
use crate::device::Device;
use crate::numbers::{duration, grouped};
use crate::progress::{Progress, Shown};
use crate::{interrupt, screen};
use ::train::TrainError;
use ::train::engine::Engine;
use ::train::eval::Evaluation;
use ::train::feed;
use ::train::run::{Outcome, Room, Run};
use ::train::runlog::RunLog;
use ::train::save::{self, Document};
use ::train::setup::Setup;
use data::{Dataset, Ngram, Split, Tokenizer};
use model::Program;
use plan::report::Bill;
use plan::{Bytes, Plan};
use spec::{Command, Origin, RunSpec, Settings, plan_for};
use std::path::Path;
use std::time::Instant;

const STOPPING: &str = "stopping after this step, saving it (Ctrl-C again: leave at once)";

/// Tokens of the text at the end.
const SAMPLE_TOKENS: u64 = 350;

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<u8, TrainError> {
    let setup = Setup::new(settings(Command::Train, arguments)?, &environment())?;
    let device = Device::find(setup.spec.device)?;
    introduce(&setup, &device)?;
    let (program, plan) = plan_for(&setup.spec, setup.dims, device.scratch())?;
    let plan_hash = show_bill(&setup, &device, &program, &plan);
    let mut engine = Engine::new(device.load(plan)?, program, setup.dims);
    let mut room = Room::new(&setup.spec, &engine)?;
    let log = &mut setup.claim()?;
    let document = setup.document(plan_hash, device.kind());
    let mut progress = Progress::new(shown(&setup, &device)?);
    let start = Instant::now();
    let ended = go(&setup, &mut engine, log, document, &mut room, &mut progress);
    progress.finish();
    let outcome = ended?;
    let Setup { spec, dataset, .. } = &setup;
    conclude(spec, &outcome, start.elapsed().as_secs_f64());
    if outcome.interrupted {
        return Ok(INTERRUPTED);
    }
    if let (Some(evaluation), Some(floor)) = (&outcome.evaluation, dataset.floor()) {
        compare(evaluation, dataset, floor)?;
        show_sample(&mut engine, spec, dataset.tokenizer().as_ref())?;
    }
    next_commands(spec, &outcome);
    Ok(0)
}

/// Weights and batches from where the run stands, then the run.
fn go(
    setup: &Setup,
    engine: &mut Engine,
    log: &mut RunLog,
    document: Document,
    room: &mut Room,
    progress: &mut Progress,
) -> Result<Outcome, TrainError> {
    let Setup { spec, dataset, saved, .. } = setup;
    let stop = &interrupt::catch(STOPPING);
    let evaluate_at_end = dataset.floor().is_some();
    let mut generator = rng::torch::Generator::new(spec.seed);
    engine.initialise(&mut generator)?;
    let mut feed = feed::open(spec, dataset, generator)?;
    if let Some(saved) = saved {
        save::load(engine, &saved.reader, &saved.path)?;
        feed.restore(&document.feed)?;
    }
    Run { spec, engine, feed: &mut *feed, log, document, evaluate_at_end, stop }.go(room, progress)
}

/// Prints what the plan costs; gives its hash.
fn show_bill(setup: &Setup, device: &Device, program: &Program, plan: &Plan) -> String {
    let bill = Bill::new(plan);
    let hash = format!("{:016x}", bill.hash);
    screen::line("");
    screen::line(&bill::text(&bill, &beside(setup, program), screen::width()));
    let saved = setup.saved.as_ref();
    if let Some(text) = saved.and_then(|saved| saved.other_bits(&hash, &device.kind())) {
        screen::notice(&text);
    }
    hash
}

/// nanoGPT's lines before the first step, and what its users miss there.
fn introduce(setup: &Setup, device: &Device) -> Result<(), TrainError> {
    let Setup { settings, spec, dataset, dims, saved, .. } = setup;
    overrides(settings);
    for notice in &setup.notices {
        screen::notice(&notice.to_string());
    }
    if let Some(why) = dataset.meta().and_then(|meta| meta.unusable.as_ref()) {
        screen::notice(&format!("meta.pkl: {why}; it trains, but no text can be made of its ids"));
    }
    screen::line(&format!("device: {}", device.name()));
    let [train, val] = [Split::Train, Split::Val].map(|split| grouped(dataset.split(split).len()));
    screen::line(&format!("data: {}, {train} training and {val} validation tokens", spec.dataset));
    let tokens = grouped(spec.tokens_per_iteration());
    screen::line(&format!("tokens per iteration will be: {tokens}"));
    match (saved, dataset.meta()) {
        (Some(saved), _) => {
            let iteration = saved.document.progress.iteration;
            screen::line(&format!("Resuming training from {} at {iteration}", spec.out_dir));
        }
        (None, Some(meta)) => {
            let from = match dataset.floor() {
                Some(_) => "the built-in corpus".to_string(),
                None => format!("inside {}", dataset.folder().join("meta.pkl").display()),
            };
            screen::line(&format!("found vocab_size = {} ({from})", meta.vocab_size));
            screen::line("Initializing a new model from scratch");
        }
        (None, None) => {
            screen::line("Initializing a new model from scratch");
            let rows = dims.vocab_size;
            screen::line(&format!(
                "defaulting to vocab_size of GPT-2 to {rows} (50257 rounded up for efficiency)"
            ));
        }
    }
    parameters(dims)
}

fn overrides(settings: &Settings) {
    if settings.uses_preset() {
        screen::line(
            "no config, no dataset: the built-in preset, a small GPT on the built-in corpus",
        );
    }
    for path in settings.files() {
        screen::line(&format!("Overriding config with {path}:"));
        let of_file = settings.iter().filter(
            |setting| matches!(&setting.origin, Origin::File { path: from, .. } if from == path),
        );
        for setting in of_file {
            screen::line(&screen::faint(&format!("  {} = {}", setting.key.name, setting.value)));
        }
    }
    for setting in settings.iter() {
        if let Origin::Argument { .. } = setting.origin {
            screen::line(&format!("Overriding: {} = {}", setting.key.name, setting.value));
        }
    }
}

fn parameters(dims: &model::Dims) -> Result<(), TrainError> {
    let reported = model::params::reported_parameters(dims).map_err(spec::SpecError::from)?;
    screen::line(&format!("number of parameters: {:.2}M", reported as f64 / 1e6));
    let table = model::params::parameters(dims).map_err(spec::SpecError::from)?;
    for (word, decays) in [("decayed", true), ("non-decayed", false)] {
        let of_kind = || table.iter().filter(|param| param.decays() == decays);
        let (count, sum) = (of_kind().count(), of_kind().map(|param| param.shape.elements()).sum());
        let sum = grouped(sum);
        screen::line(&format!("num {word} parameter tensors: {count}, with {sum} parameters"));
    }
    Ok(())
}

/// What the host keeps outside the arena.
fn beside(setup: &Setup, program: &Program) -> [Beside; 3] {
    let Setup { spec, dataset, .. } = setup;
    let eval_tokens = spec.eval_batch_size * spec.eval_block_size;
    let in_memory = [Split::Train, Split::Val].map(|split| dataset.split(split).memory_bytes());
    let sizes = [
        ("data set", in_memory.iter().sum()),
        ("batches", 8 * (spec.tokens_per_iteration() + eval_tokens)),
        ("buffer for saving", save::buffer_bytes(program)),
    ];
    sizes.map(|(name, bytes)| Beside { name, bytes: Bytes::new(bytes).unwrap_or(Bytes::ZERO) })
}

fn shown(setup: &Setup, device: &Device) -> Result<Shown, TrainError> {
    let Setup { spec, dims, saved, .. } = setup;
    let parameters = model::params::reported_parameters(dims).map_err(spec::SpecError::from)?;
    let attention = 12 * dims.n_layer * dims.n_embd * spec.block_size;
    Ok(Shown {
        started_at: saved.as_ref().map_or(0, |saved| saved.document.progress.iteration),
        max_iters: spec.max_iters,
        log_interval: spec.log_interval,
        flops_per_token: (6 * parameters + attention) as f64,
        peak_flops: device.peak_flops(),
    })
}

fn conclude(spec: &RunSpec, outcome: &Outcome, seconds: f64) {
    let done = outcome.iteration - outcome.started_at;
    let tokens = grouped(done * spec.tokens_per_iteration());
    let time = duration(seconds);
    screen::line("");
    if outcome.interrupted {
        screen::line(&format!("interrupted before iteration {}, after {time}", outcome.iteration));
    } else if done > 0 {
        screen::line(&format!("{} iterations, {tokens} tokens in {time}", grouped(done)));
    } else if !spec.eval_only {
        let last = spec.max_iters;
        screen::line(&format!("nothing left to do: the run is past max_iters={last}"));
    }
    if outcome.interrupted && outcome.checkpoint.is_some() {
        let (program, out_dir) = (program(), quoted(&format!("--out_dir={}", spec.out_dir)));
        screen::line("go on with:");
        screen::line(&format!("  {program} train --init_from=resume {out_dir}"));
    }
}

/// The loss beside what is possible and what is easy.
fn compare(evaluation: &Evaluation, dataset: &Dataset, floor: f64) -> Result<(), TrainError> {
    let loss = evaluation.val.loss;
    let tokens = |split| dataset.split(split).to_vec();
    let (train, val) = (tokens(Split::Train)?, tokens(Split::Val)?);
    let vocabulary = dataset.meta().map_or(u32::MAX, |meta| meta.vocab_size);
    let five_gram = Ngram::train(&train, vocabulary).loss(&val);
    let percent = |of: f64, to: f64| 100.0 * (of / to - 1.0);
    screen::line("");
    screen::line(&screen::strong(&format!("validation loss {loss:.4} nats per character")));
    let above = percent(loss, floor);
    screen::line(&format!(
        "  {floor:.4}  entropy of the corpus, the floor: we are {above:.1}% above"
    ));
    let by = percent(five_gram, loss);
    let word = if by < 0.0 { "better" } else { "worse" };
    let by = by.abs();
    screen::line(&format!("  {five_gram:.4}  a 5-gram model of the same text: {by:.1}% {word}"));
    Ok(())
}

fn show_sample(
    engine: &mut Engine,
    spec: &RunSpec,
    tokenizer: Option<&Tokenizer>,
) -> Result<(), TrainError> {
    let Some(tokenizer) = tokenizer else {
        return Ok(());
    };
    screen::line(&screen::strong("\nwhat it writes"));
    let sampling = spec::SamplingKeys { max_new_tokens: SAMPLE_TOKENS, ..spec.sampling.clone() };
    let prompt = tokenizer.encode(&sampling.start)?;
    let draw = Draw { seed: spec.seed, index: 0 };
    sample::write(engine, tokenizer, &sampling, &draw, &prompt, &|| true)?;
    screen::line("");
    Ok(())
}

fn next_commands(spec: &RunSpec, outcome: &Outcome) {
    let Some(checkpoint) = &outcome.checkpoint else {
        return;
    };
    let (program, out_dir) = (program(), &spec.out_dir);
    let best = save::best_path(Path::new(out_dir));
    let best = if best.exists() { format!(", best: {}", best.display()) } else { String::new() };
    screen::line(&format!("\ncheckpoint: {}{best}", checkpoint.display()));
    screen::line(&format!("figures:    {out_dir}/log.jsonl"));
    screen::line("write more with:");
    screen::line(&format!("  {program} sample {}", quoted(&format!("--out_dir={out_dir}"))));
}
