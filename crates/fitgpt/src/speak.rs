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

/// What was written.
pub struct Spoken {
    /// The prompt and what the model added.
    pub text: String,
    /// False when nobody reads any more, or `go_on` said no.
    pub is_whole: bool,
}

/// Writes the prompt and what the model adds to it, until nobody reads any more or `go_on` says no.
pub fn speak(
    engine: &mut Engine,
    speech: &Speech<'_>,
    prompt: &[i32],
    go_on: &dyn Fn() -> bool,
) -> Result<Spoken, TrainError> {
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
    let mut text = String::new();
    let mut write = |part: &str| {
        text += part;
        screen::out(part)
    };
    let begin: String = prompt.iter().map(|&id| decoder.push(id)).collect();
    let mut written = write(&begin);
    generate(engine, &request, |id| {
        if written.is_ok() {
            written = write(&decoder.push(id));
        }
        written.is_ok() && go_on()
    })?;
    match written.and_then(|()| write(&decoder.finish())) {
        Ok(()) => Ok(Spoken { text, is_whole: go_on() }),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Spoken { text, is_whole: false }),
        Err(error) => Err(TrainError::Output(error)),
    }
}
