//! What `train` prints before the first step and after the last: nanoGPT's lines and more, how
//! good the result is, and which command comes next.

use crate::device::Device;
use crate::invocation::program;
use crate::metric_sinks::Written;
use crate::numbers::{duration, grouped};
use crate::{model_name, screen};
use data::Split;
use data::corpus::FIVE_GRAM_LOSS;
use model::Dims;
use plan::Bytes;
use plan::ops::GeluKind;
use spec::shell::quoted;
use spec::{CheckpointFormat, Gelu, Origin, RunSpec, Setting, Settings};
use std::path::Path;
use tokenizer::GPT2_IDS;
use train::TrainError;
use train::run::Outcome;
use train::save;
use train::setup::Setup;

/// nanoGPT's lines before the first step, and some of our own.
pub fn introduce(setup: &Setup, device: &Device) -> Result<(), TrainError> {
    let Setup { settings, spec, dataset, dims, saved, .. } = setup;
    overrides(settings);
    for notice in &setup.notices {
        screen::notice(&notice.to_string());
    }
    if let Err(why) = dataset.tokenizer() {
        screen::notice(&format!("{why}; training works, but `sample` will not"));
    }
    screen::line(&format!("device: {}", device.name()));
    let [train, val] = [Split::Train, Split::Val].map(|split| grouped(dataset.split(split).len()));
    screen::line(&format!("data: {}, {train} training and {val} validation tokens", spec.dataset));
    let tokens = grouped(spec.tokens_per_iteration());
    screen::line(&format!("tokens per iteration will be: {tokens}"));
    match (saved, dataset.meta()) {
        (None, _) if setup.pretrained.is_some() => initialized(setup),
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
                "defaulting to vocab_size of GPT-2 to {rows} ({GPT2_IDS} rounded up for efficiency)"
            ));
        }
    }
    parameters(spec, dims)
}

/// The line about a trained model, one about the GELU of OpenAI's, and one about a run whose
/// optimizer is not used.
fn initialized(Setup { spec, pretrained, .. }: &Setup) {
    let (Some(model), Some(opened)) = (spec.init_from.pretrained(), pretrained) else {
        return;
    };
    let name = &model.name;
    if model.openai().is_none() {
        screen::line(&format!("Initializing from {}", opened.path.display()));
        if opened.has_moments {
            let resume = quoted(&format!("--out_dir={name}"));
            screen::notice(&format!(
                "only its weights are used: a new optimizer, from iteration 0; to go on with that \
                 run instead: --init_from=resume {resume}"
            ));
        }
        return;
    }
    screen::line(&format!("Initializing from OpenAI GPT-2 weights: {name}"));
    if spec.gelu == Gelu::Auto && spec.gelu_kind() == GeluKind::Tanh {
        screen::notice(
            "these weights were trained with the tanh form of GELU, which is computed here; \
             nanoGPT computes the exact form (--gelu=erf)",
        );
    }
}

/// Prints what the process holds on the device according to the driver, next to the plan.
pub fn held(device: &Device, arena: Bytes, budget: Bytes) {
    let Some(held) = device.held_bytes() else {
        return;
    };
    let shown = |bytes: u64| Bytes::new(bytes).unwrap_or(Bytes::ZERO);
    let rest = shown(held.saturating_sub(arena.get()));
    screen::line(&format!(
        "device memory according to the driver: {} of {budget} (arena {arena}, driver and code \
         {rest})\n",
        shown(held)
    ));
}

fn overrides(settings: &Settings) {
    if settings.uses_preset() {
        screen::line(
            "no config and no dataset: the built-in demo, a small GPT on the built-in corpus",
        );
        let is_changed = settings.iter().any(Setting::is_given);
        if is_changed {
            screen::line("  (nanoGPT's bare train.py is `train config/train_gpt2.py`)");
        }
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

fn parameters(run: &RunSpec, dims: &Dims) -> Result<(), TrainError> {
    let architecture = run.architecture();
    let reported = architecture.reported_parameters(dims).map_err(search::SearchError::from)?;
    screen::line(&format!("number of parameters: {:.2}M", reported as f64 / 1e6));
    let table = architecture.parameters(dims).map_err(search::SearchError::from)?;
    for (word, decays) in [("decayed", true), ("non-decayed", false)] {
        let of_kind = || table.iter().filter(|param| param.decays() == decays);
        let (count, sum) = (of_kind().count(), of_kind().map(|param| param.shape.elements()).sum());
        let sum = grouped(sum);
        screen::line(&format!("num {word} parameter tensors: {count}, with {sum} parameters"));
    }
    Ok(())
}

/// Prints how the run ended; `resume` is the command that resumes it.
pub fn conclude(setup: &Setup, outcome: &Outcome, seconds: f64, resume: &str) {
    let spec = &setup.spec;
    let done = outcome.iteration - outcome.started_at;
    let tokens = grouped(done * spec.tokens_per_iteration());
    let time = duration(seconds);
    screen::line("");
    if outcome.interrupted {
        screen::line(&format!("interrupted before iteration {}, after {time}", outcome.iteration));
        screen::line(&match &outcome.checkpoint {
            Some(path) if done > 0 => {
                let best = save::best_ckpt_path(Path::new(&spec.out_dir));
                let best = best.exists().then(|| format!(", best: {}", best.display()));
                format!("saved: {}{}", path.display(), best.unwrap_or_default())
            }
            Some(path) => format!("nothing new to save; the run is in {}", path.display()),
            None => "nothing was saved: no iteration is done yet".to_string(),
        });
    } else if done > 0 {
        screen::line(&format!("{} iterations, {tokens} tokens in {time}", grouped(done)));
        if let (Some(found), None) = (&outcome.evaluation, setup.dataset.floor()) {
            let (val, train) = (found.val.loss, found.train.loss);
            screen::line(&format!("validation loss {val:.4}, training loss {train:.4}"));
        }
    } else if !spec.eval_only {
        let last = spec.max_iters;
        screen::line(&format!("nothing left to do: the run has reached max_iters={last}"));
        screen::line("Train further with:");
        screen::line(&format!("  {resume} {}", further(spec)));
    }
    if outcome.interrupted && outcome.checkpoint.is_some() {
        screen::line("Resume with:");
        screen::line(&format!("  {resume}"));
    }
}

/// The command that resumes a run: for the user's own text the one that started it.
pub fn resume_command(setup: &Setup, own_text: Option<&str>) -> String {
    let spec = &setup.spec;
    let (program, out_dir) = (program(), quoted(&format!("--out_dir={}", spec.out_dir)));
    match own_text {
        Some(path) => format!("{program} train {} {out_dir}", quoted(path)),
        None => format!("{program} train{} --init_from=resume {out_dir}", given_again(setup)),
    }
}

/// The config files and keys that must be given again to resume, except where the run starts
/// from: our own checkpoints have all settings, a `ckpt.pt` supplies the model alone.
fn given_again(Setup { spec, settings, .. }: &Setup) -> String {
    if spec.checkpoint_format == CheckpointFormat::Native {
        return String::new();
    }
    let is_given = |setting: &&Setting| {
        let of_start = ["init_from", "out_dir"].contains(&setting.key.name);
        matches!(setting.origin, Origin::Argument { .. }) && !of_start
    };
    let key = |setting: &Setting| format!("--{}={}", setting.key.name, setting.value.plain());
    let keys = settings.iter().filter(is_given).map(key);
    let all = settings.files().iter().cloned().chain(keys);
    all.map(|argument| format!(" {}", quoted(&argument))).collect()
}

/// Keys that double the length of a finished run. The learning rate then decays over the whole
/// length: otherwise all further iterations would run at min_lr.
pub fn further(spec: &RunSpec) -> String {
    let twice = spec.max_iters.saturating_mul(2).clamp(1, u64::from(u32::MAX));
    match spec.decay_lr && spec.lr_decay_iters < twice {
        true => format!("--max_iters={twice} --lr_decay_iters={twice}"),
        false => format!("--max_iters={twice}"),
    }
}

/// After a device failure or broken weights: prints which checkpoint is safe, and how to resume
/// from it.
pub fn rescue(setup: &Setup, error: &TrainError) {
    let spec = &setup.spec;
    let (last, best) = (save::newest_path(spec), save::best_path(Path::new(&spec.out_dir)));
    let resumed =
        setup.saved.as_ref().map(|saved| (saved.document.progress.iteration, &saved.path));
    let (last_is_good, how, keys) = match error {
        TrainError::Backend(_) => (true, "", String::new()),
        // A run that diverges in its first iteration was resumed from a broken checkpoint.
        TrainError::Diverged { iteration, .. } => {
            let is_good = resumed.is_none_or(|(at, path)| at != *iteration || *path == best);
            (is_good, " a lower learning rate", format!(" {}", lower_rate(spec)))
        }
        TrainError::BrokenWeights { .. } => {
            (true, " a lower learning rate", format!(" {}", lower_rate(spec)))
        }
        _ => return,
    };
    let (kept, out_dir) = match last_is_good {
        true => (&last, spec.out_dir.clone()),
        false => (&best, best.to_string_lossy().into_owned()),
    };
    if kept.exists() {
        let (program, out_dir) = (program(), quoted(&format!("--out_dir={out_dir}")));
        let again = given_again(setup);
        screen::line(&format!("\nsaved: {}. Resume with{how}:", kept.display()));
        screen::line(&format!("  {program} train{again} --init_from=resume {out_dir}{keys}"));
    }
}

/// A tenth of the learning rate, as keys.
fn lower_rate(spec: &RunSpec) -> String {
    let tenth = |rate: f64| format!("{:.2e}", rate / 10.0);
    let shown =
        |rate: f64| tenth(rate).parse::<f64>().map_or(tenth(rate), |rate| format!("{rate:e}"));
    let (rate, least) = (shown(spec.learning_rate), shown(spec.min_lr));
    match spec.decay_lr {
        true => format!("--learning_rate={rate} --min_lr={least}"),
        false => format!("--learning_rate={rate}"),
    }
}

/// Compares the loss with the lowest possible one and with a simple model's. Both are known for the
/// built-in corpus, for contexts as long as those in training.
pub fn compare(setup: &Setup, outcome: &Outcome) {
    let same_context = setup.spec.eval_block_size == setup.spec.block_size;
    let (Some(evaluation), Some(floor), true) =
        (&outcome.evaluation, setup.dataset.floor(), same_context)
    else {
        return;
    };
    let loss = evaluation.val.loss;
    let percent = |of: f64, to: f64| 100.0 * (of / to - 1.0);
    screen::line("");
    screen::line(&screen::strong(&format!("validation loss {loss:.4} nats per character")));
    let above = percent(loss, floor);
    screen::line(&format!(
        "  {floor:.4}  entropy of the corpus, the floor: this run is {above:.1}% above"
    ));
    let by = percent(FIVE_GRAM_LOSS, loss);
    let word = if by < 0.0 { "lower" } else { "higher" };
    let (five_gram, by) = (FIVE_GRAM_LOSS, by.abs());
    screen::line(&format!(
        "  {five_gram:.4}  a 5-gram model of the same text: {by:.1}% {word} than this run"
    ));
}

/// Prints where the results are, and the command that generates text.
pub fn next_commands(spec: &RunSpec, outcome: &Outcome, metrics: &Written) {
    let Some(checkpoint) = &outcome.checkpoint else {
        return;
    };
    let (program, out_dir) = (program(), &spec.out_dir);
    let best = save::best_path(Path::new(out_dir));
    let best = if best.exists() { format!(", best: {}", best.display()) } else { String::new() };
    screen::line(&format!("\nCheckpoint: {}{best}", checkpoint.display()));
    for line in metrics.shown(spec) {
        screen::line(&line);
    }
    screen::line("Generate text with:");
    screen::line(&format!("  {program} sample {}", model_name::typed(out_dir)));
}
