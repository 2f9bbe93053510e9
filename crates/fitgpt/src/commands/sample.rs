//! `fitgpt sample`: generates text with a trained model, printed token by token.

use super::{INTERRUPTED, line};
use crate::device::Device;
use crate::flags::{FlagSet, flags};
use crate::invocation::{environment, settings};
use crate::model_name::Named;
use crate::screen::show;
use crate::stream_sample::{Sample, stream_sample};
use crate::{interrupt, screen};
use ::train::TrainError;
use ::train::engine::Engine;
use ::train::save;
use ::train::setup::SampleSetup;
use plan::Bytes;
use search::{Machine, plan_for_sample};
use spec::{Command, Setting, SpecError, Values, resolve};
use std::path::Path;
use std::sync::atomic::Ordering;

/// nanoGPT's line after each sample.
const LINE: &str = "---------------";

/// The largest prompt file.
const MOST_PROMPT_BYTES: u64 = 64 << 20;

flags! {
    /// The flags of `sample`.
    pub struct Flags {
        /// end a sample before this text (\n is a line's end); may be given several times
        stop: Vec<String> = "--stop", "TEXT" Values::Any;
    }
}

/// The command's row.
pub static COMMAND: super::Command = super::Command {
    name: "sample",
    about: "generate text with a trained model",
    text: &["Generates text with a trained model, as nanoGPT's sample.py does. The text goes to \
         standard output as it is generated, everything else to standard error."],
    usage: &[line(
        "fitgpt sample [CHECKPOINT|OUT_DIR|MODEL] [config.py|config.toml ...] [--key=value ...]",
        "",
    )],
    examples: &[
        line("fitgpt sample", "the newest run in this folder"),
        line("fitgpt sample out --num_samples=1 --start='Once upon a time' --stop .", ""),
        line(
            "fitgpt sample out --start=FILE:prompt.txt --temperature=1.0 --top_k=0 --top_p=0.9",
            "",
        ),
        line("fitgpt sample out/last.safetensors --temperature=0", "one checkpoint"),
        line("fitgpt sample gpt2-xl --num_samples=1", "OpenAI's, or owner/name of the hub"),
    ],
    notes: &[
        "From a folder it loads best.safetensors, or last.safetensors if there is no best, or \
         nanoGPT's ckpt.pt if that is newer.",
    ],
    lists_data_sets: false,
    arguments: &[Values::File],
    flags: Flags::TABLE,
    closing: &[],
    keys: Some(Command::Sample),
    run,
};

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<u8, TrainError> {
    let (Flags { stop: stops }, arguments) = Flags::read(arguments)?;
    let stops = stops_of(stops)?;
    let named = Named::among(&arguments)?;
    let mut settings = settings(Command::Sample, &named.rest)?;
    resolve(&settings, &environment())?; // wrong settings are refused before a download
    let gpu_setting = settings.asks_for_gpu();
    let has_start = settings.get("start").is_some_and(Setting::is_given);
    let model = named.open(&mut settings, COMMAND.name)?;
    let mut setup = SampleSetup::new(settings, &environment(), Some(model))?;
    let SampleSetup { spec, dims, tokenizer, .. } = &setup;
    for notice in &setup.notices {
        screen::note(&format!("note: {notice}"));
    }
    let encoded = tokenizer.encode(&start(&spec.sampling.start)?);
    // A vocabulary without the line end cannot encode the usual prompt: use any of its characters.
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
        let keep_going = || !stop.load(Ordering::Relaxed);
        let sample =
            Sample { tokenizer, keys: &spec.sampling, stops: &stops, seed: spec.seed, index };
        if !stream_sample(&mut engine, &sample, &prompt, &keep_going, &mut |_| {})? {
            return Ok(if keep_going() { 0 } else { INTERRUPTED });
        }
        show(&format!("\n{LINE}\n"))?;
    }
    Ok(0)
}

/// The stop texts; `\n` and `\t` stand for a line's end and a tab, which are hard to type.
fn stops_of(given: Vec<String>) -> Result<Vec<String>, SpecError> {
    if given.iter().any(String::is_empty) {
        let what = "--stop needs a text of at least one character".to_owned();
        return Err(SpecError::Conflict { what });
    }
    Ok(given.iter().map(|stop| stop.replace("\\n", "\n").replace("\\t", "\t")).collect())
}

fn introduce(setup: &SampleSetup, arena: Bytes) -> Result<(), TrainError> {
    let reported = setup.spec.architecture().reported_parameters(&setup.dims);
    let reported = reported.map_err(search::SearchError::from)?;
    // Models of other programs do not count iterations.
    let after = match setup.saved.document.progress.iteration {
        0 => String::new(),
        iteration => format!(", after {iteration} iterations"),
    };
    screen::note(&screen::faint(&format!(
        "{}: {:.2}M parameters{after}, {arena} of memory",
        setup.saved.path.display(),
        reported as f64 / 1e6,
    )));
    Ok(())
}

/// The prompt: the given text, or the content of a file.
fn start(given: &str) -> Result<String, TrainError> {
    let Some(path) = given.strip_prefix("FILE:") else {
        return Ok(given.to_string());
    };
    read_prompt(Path::new(path)).map_err(|error| TrainError::Io {
        path: path.into(),
        doing: "read the prompt",
        error,
        advice: "--start=FILE: needs a UTF-8 text file",
    })
}

fn read_prompt(path: &Path) -> std::io::Result<String> {
    let metadata = path.metadata()?;
    if !metadata.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    if metadata.len() > MOST_PROMPT_BYTES {
        let bytes = metadata.len();
        let what = format!("it has {bytes} bytes; a prompt has at most {MOST_PROMPT_BYTES}");
        return Err(std::io::Error::other(what));
    }
    std::fs::read_to_string(path)
}
