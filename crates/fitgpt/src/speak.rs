//! Text from a model to standard output, token by token as it is made.

use crate::screen;
use data::Tokenizer;
use spec::SamplingKeys;
use std::io::ErrorKind;
use train::TrainError;
use train::engine::Engine;
use train::generate::{Request, generate};
use train::sampling::Choice;

/// One text to be written.
pub struct Speech<'a> {
    /// Ids and text.
    pub tokenizer: &'a Tokenizer,
    /// How tokens are chosen, and how many.
    pub keys: &'a SamplingKeys,
    /// Seed of the draws.
    pub seed: u64,
    /// Which of several texts with the same seed.
    pub index: u64,
}

/// Writes the prompt and what the model adds to it, until nobody reads any more or `go_on` says no:
/// then it returns false. `keep` gets each part of the text that was written.
pub fn speak(
    engine: &mut Engine,
    speech: &Speech<'_>,
    prompt: &[i32],
    go_on: &dyn Fn() -> bool,
    keep: &mut dyn FnMut(&str),
) -> Result<bool, TrainError> {
    let Speech { tokenizer, keys, seed, index } = *speech;
    let top_k = keys.top_k.map_or(0, |k| usize::try_from(k).unwrap_or(0));
    let request = Request {
        prompt: prompt.to_vec(),
        max_new_tokens: keys.max_new_tokens,
        choice: Choice { temperature: keys.temperature, top_k },
        seed,
        index,
    };
    let mut decoder = tokenizer.decoder();
    let mut write = |part: &str| screen::out(part).inspect(|()| keep(part));
    let begin: String = prompt.iter().map(|&id| decoder.push(id)).collect();
    let mut written = write(&begin);
    generate(engine, &request, |id| {
        if written.is_ok() {
            written = write(&decoder.push(id));
        }
        written.is_ok() && go_on()
    })?;
    match written.and_then(|()| write(&decoder.finish())) {
        Ok(()) => Ok(go_on()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(TrainError::Output(error)),
    }
}
