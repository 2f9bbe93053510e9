//! `fitgpt sample`: text from a trained model, token by token as it is made.

use super::{INTERRUPTED, line};
use crate::device::Device;
use crate::invocation::{environment, settings};
use crate::screen::show;
use crate::speak::{Speech, speak};
use crate::{interrupt, screen};
use ::train::TrainError;
use ::train::engine::Engine;
use ::train::save;
use ::train::setup::SampleSetup;
use plan::Bytes;
use search::{Machine, plan_for_sample};
use spec::{Command, Origin, Setting, Values};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// nanoGPT's line after each text.
const LINE: &str = "---------------";

/// Most bytes of a prompt's file.
const MOST_PROMPT_BYTES: u64 = 64 << 20;

/// The command's row.
pub static COMMAND: super::Command = super::Command {
    name: "sample",
    about: "generate text with a trained model",
    text: &["Generates text with a trained model, as nanoGPT's sample.py does. The text goes to \
         standard output as it is generated, everything else to standard error."],
    usage: &[line("fitgpt sample [config.py|config.toml ...] [--key=value ...]", "")],
    examples: &[
        line("fitgpt sample", "the newest run in this folder"),
        line("fitgpt sample --out_dir=out --num_samples=1 --start='Once upon a time'", ""),
        line("fitgpt sample --out_dir=out --start=FILE:prompt.txt --temperature=1.0 --top_k=0", ""),
        line("fitgpt sample --out_dir=out/last.safetensors", "this very checkpoint"),
    ],
    notes: &[
        "Of a folder, best.safetensors is taken, or last.safetensors where there is no best one.",
    ],
    lists_data_sets: false,
    arguments: &[Values::File],
    flags: &[],
    closing: &[],
    keys: Some(Command::Sample),
    run,
};

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<u8, TrainError> {
    let mut settings = settings(Command::Sample, arguments)?;
    if settings.get("out_dir").is_some_and(|out_dir| !out_dir.is_given())
        && let Some(newest) = newest_run(Path::new("."))
    {
        screen::note(&format!(
            "note: {newest} is the newest run in this folder (--out_dir names another)"
        ));
        settings.set("out_dir", newest.into(), Origin::Newest)?;
    }
    let gpu_setting = settings.asks_for_gpu();
    let has_start = settings.get("start").is_some_and(Setting::is_given);
    let mut setup = SampleSetup::new(settings, &environment())?;
    let SampleSetup { spec, dims, tokenizer, .. } = &setup;
    for notice in &setup.notices {
        screen::note(&format!("note: {notice}"));
    }
    let encoded = tokenizer.encode(&start(&spec.sampling.start)?);
    // A text without line ends does not know the usual start; any of its characters will do.
    let prompt = if has_start { encoded? } else { encoded.unwrap_or_else(|_| vec![0]) };
    if prompt.is_empty() {
        return Err(TrainError::EmptyPrompt);
    }
    let device = Device::find(spec.device, gpu_setting)?;
    let plan = |machine: &Machine| Ok::<_, TrainError>(plan_for_sample(spec, *dims, machine)?);
    let mut machine = device.machine(spec)?;
    let say = |text: &str| screen::note(&format!("note: {text}"));
    let (planned, backend) = device.load_planned(spec, &mut machine, &[], &say, plan)?;
    let arena = planned.plan.arena_bytes;
    let mut engine = Engine::new(backend, planned.program, *dims);
    let mut buffer = save::buffer(&planned.host)?;
    setup.saved.load(&mut engine, &mut buffer)?;
    drop(buffer);
    introduce(&setup, arena)?;
    let SampleSetup { spec, tokenizer, .. } = &setup;
    let stop = interrupt::catch("");
    for index in 0..spec.sampling.num_samples {
        let go_on = || !stop.load(Ordering::Relaxed);
        let speech = Speech { tokenizer, keys: &spec.sampling, seed: spec.seed, index };
        if !speak(&mut engine, &speech, &prompt, &go_on, &mut |_| {})? {
            return Ok(if go_on() { 0 } else { INTERRUPTED });
        }
        show(&format!("\n{LINE}\n"))?;
    }
    Ok(0)
}

/// The folder with the newest checkpoint, of those that lie in `folder`.
fn newest_run(folder: &Path) -> Option<String> {
    let changed = |path: &Path| path.metadata().and_then(|file| file.modified()).ok();
    let saved = |run: PathBuf| {
        let newest =
            [save::last_path(&run), save::best_path(&run)].iter().filter_map(|p| changed(p)).max();
        Some((newest?, run.file_name()?.to_str()?.to_string()))
    };
    let entries = std::fs::read_dir(folder).ok()?;
    entries.filter_map(|entry| saved(entry.ok()?.path())).max().map(|(_, name)| name)
}

fn introduce(setup: &SampleSetup, arena: Bytes) -> Result<(), TrainError> {
    let reported =
        model::gpt2::reported_parameters(&setup.dims).map_err(search::SearchError::from)?;
    let progress = &setup.saved.document.progress;
    screen::note(&screen::faint(&format!(
        "{}: {:.2}M parameters, after {} iterations, {arena} of memory",
        setup.saved.path.display(),
        reported as f64 / 1e6,
        progress.iteration
    )));
    Ok(())
}

/// The beginning of the text: as it is, or a file's content.
fn start(given: &str) -> Result<String, TrainError> {
    let Some(path) = given.strip_prefix("FILE:") else {
        return Ok(given.to_string());
    };
    read_prompt(Path::new(path)).map_err(|error| TrainError::Io {
        path: path.into(),
        doing: "read the prompt",
        error,
        advice: "--start=FILE: takes a text file in UTF-8",
    })
}

fn read_prompt(path: &Path) -> std::io::Result<String> {
    let metadata = path.metadata()?;
    if !metadata.is_file() {
        return Err(std::io::Error::other("it is no regular file"));
    }
    if metadata.len() > MOST_PROMPT_BYTES {
        let bytes = metadata.len();
        let what = format!("it has {bytes} bytes, a prompt at most {MOST_PROMPT_BYTES}");
        return Err(std::io::Error::other(what));
    }
    std::fs::read_to_string(path)
}
