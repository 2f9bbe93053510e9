//! Generates a sample and writes it to standard output token by token.

use crate::screen;
use crate::stop_text::StopText;
use spec::SamplingKeys;
use std::io::ErrorKind;
use tokenizer::Tokenizer;
use train::TrainError;
use train::engine::Engine;
use train::generate::{SampleRequest, generate};
use train::sampling::DrawOptions;

/// A sample to generate.
pub struct Sample<'a> {
    /// Converts between ids and text.
    pub tokenizer: &'a Tokenizer,
    /// How tokens are drawn, and how many.
    pub keys: &'a SamplingKeys,
    /// Texts that end the sample; they are not written.
    pub stops: &'a [String],
    /// Seed of the random stream.
    pub seed: u64,
    /// Number of the sample among those with the same seed.
    pub index: u64,
}

/// Writes the prompt and the tokens that the model generates. Stops early, and returns false, if
/// the reader closes the pipe or `keep_going` returns false. `keep` gets each part of the text.
pub fn stream_sample(
    engine: &mut Engine,
    sample: &Sample<'_>,
    prompt: &[i32],
    keep_going: &dyn Fn() -> bool,
    keep: &mut dyn FnMut(&str),
) -> Result<bool, TrainError> {
    let Sample { tokenizer, keys, stops, seed, index } = *sample;
    let top_k = keys.top_k.map_or(0, |k| usize::try_from(k).unwrap_or(0));
    let request = SampleRequest {
        prompt: prompt.to_vec(),
        max_new_tokens: keys.max_new_tokens,
        options: DrawOptions { temperature: keys.temperature, top_k, top_p: keys.top_p },
        seed,
        index,
    };
    let mut decoder = tokenizer.decoder();
    let mut write = |part: &str| screen::out(part).inspect(|()| keep(part));
    let begin: String = prompt.iter().map(|&id| decoder.push(id)).collect();
    let mut written = write(&begin);
    let mut stop = StopText::new(stops);
    generate(engine, &request, |id| {
        if written.is_ok() {
            written = write(&stop.push(&decoder.push(id)));
        }
        written.is_ok() && !stop.is_found() && keep_going()
    })?;
    let end = stop.push(&decoder.finish()) + &stop.finish();
    match written.and_then(|()| write(&end)) {
        Ok(()) => Ok(keep_going()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(TrainError::Output(error)),
    }
}
