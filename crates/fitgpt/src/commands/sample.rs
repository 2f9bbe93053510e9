//! `fitgpt sample`: text from a trained model, token by token as it is made.

use super::{INTERRUPTED, environment, settings, show};
use crate::device::Device;
use crate::{interrupt, screen};
use ::train::TrainError;
use ::train::engine::Engine;
use ::train::generate::{Request, generate};
use ::train::sampling::Choice;
use ::train::save;
use ::train::setup::SampleSetup;
use data::Tokenizer;
use plan::Bytes;
use spec::{Command, SamplingKeys, plan_for_sample};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::Ordering;

/// nanoGPT's line after each text.
const LINE: &str = "---------------";

/// Most bytes of a prompt's file.
const MOST_PROMPT_BYTES: u64 = 64 << 20;

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<u8, TrainError> {
    let settings = settings(Command::Sample, arguments)?;
    let setup = SampleSetup::new(settings, &environment())?;
    let SampleSetup { spec, dims, tokenizer, saved, .. } = &setup;
    for notice in &setup.notices {
        screen::note(&format!("note: {notice}"));
    }
    let prompt = tokenizer.encode(&start(&spec.sampling.start)?)?;
    if prompt.is_empty() {
        return Err(TrainError::EmptyPrompt);
    }
    let device = Device::find(spec.device)?;
    let (program, plan) = plan_for_sample(spec, *dims, device.scratch())?;
    let arena = plan.arena_bytes;
    let mut engine = Engine::new(device.load(plan)?, program, *dims);
    save::load(&mut engine, &saved.reader, &saved.path)?;
    introduce(&setup, arena)?;
    let stop = interrupt::catch("");
    for index in 0..spec.sampling.num_samples {
        let go_on = || !stop.load(Ordering::Relaxed);
        let draw = Draw { seed: spec.seed, index };
        if !write(&mut engine, tokenizer, &spec.sampling, &draw, &prompt, &go_on)? {
            return Ok(if go_on() { 0 } else { INTERRUPTED });
        }
        show(&format!("\n{LINE}\n"))?;
    }
    Ok(0)
}

fn introduce(setup: &SampleSetup, arena: Bytes) -> Result<(), TrainError> {
    let reported =
        model::params::reported_parameters(&setup.dims).map_err(spec::SpecError::from)?;
    let progress = &setup.saved.document.progress;
    screen::note(&screen::faint(&format!(
        "{}: {:.2}M parameters, before iteration {}, {arena} of memory",
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

/// Which of several texts with the same seed.
pub struct Draw {
    /// Seed of the draws.
    pub seed: u64,
    /// Number of the text.
    pub index: u64,
}

/// Writes the prompt and what the model adds to it. False when nobody reads any more, or `go_on`
/// says no.
pub fn write(
    engine: &mut Engine,
    tokenizer: &Tokenizer,
    keys: &SamplingKeys,
    draw: &Draw,
    prompt: &[i32],
    go_on: &dyn Fn() -> bool,
) -> Result<bool, TrainError> {
    let top_k = keys.top_k.map_or(0, |k| usize::try_from(k).unwrap_or(0));
    let request = Request {
        prompt: prompt.to_vec(),
        max_new_tokens: keys.max_new_tokens,
        choice: Choice { temperature: keys.temperature, top_k },
        seed: draw.seed,
        index: draw.index,
    };
    let mut decoder = tokenizer.decoder();
    let begin: String = prompt.iter().map(|&id| decoder.push(id)).collect();
    let mut written = screen::out(&begin);
    generate(engine, &request, |id| {
        if written.is_ok() {
            written = screen::out(&decoder.push(id));
        }
        written.is_ok() && go_on()
    })?;
    match written.and_then(|()| screen::out(&decoder.finish())) {
        Ok(()) => Ok(go_on()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(TrainError::Output(error)),
    }
}
