//! Generates text: the prompt is prefilled once, then each token is one decode step with the
//! key/value cache. Once the context is full, every further token prefills the last `block_size`
//! tokens again, as nanoGPT does.

use crate::engine::Engine;
use crate::error::TrainError;
use crate::host::ids_to_bytes;
use crate::sampling::{DrawOptions, draw};
use model::LogitsSegment;
use plan::{Backend, StepInputs, half};
use rng::{Purpose, Stream};

/// What to generate.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleRequest {
    /// Ids of the prompt; at least one.
    pub prompt: Vec<i32>,
    /// Tokens to generate.
    pub max_new_tokens: u64,
    /// How each token is drawn.
    pub options: DrawOptions,
    /// Seed of the random stream.
    pub seed: u64,
    /// Number of the sample among those with the same seed.
    pub index: u64,
}

/// Generates one sample; `emit` gets each new token and returns false to stop early.
pub fn generate(
    engine: &mut Engine,
    request: &SampleRequest,
    mut emit: impl FnMut(i32) -> bool,
) -> Result<(), TrainError> {
    generate_explained(engine, request, |token, _| emit(token))
}

/// The same; `emit` also gets the logits that each token was drawn from.
pub fn generate_explained(
    engine: &mut Engine,
    request: &SampleRequest,
    mut emit: impl FnMut(i32, &[f32]) -> bool,
) -> Result<(), TrainError> {
    let Some(segments) = engine.program().generate.clone() else {
        let what = "the plan has no segments that generate text".to_string();
        return Err(plan::BackendError::Unsupported { what }.into());
    };
    let backend = engine.backend();
    let mut generator = Generator { backend, content: Vec::new(), logits: Vec::new() };
    let mut stream = Stream::new(request.seed, Purpose::Sample, request.index);
    let mut tokens = request.prompt.clone();
    let mut scratch = Vec::new();
    let mut cached = 0;
    for _ in 0..request.max_new_tokens {
        let next = segments.next_logits(tokens.len(), cached).ok_or(TrainError::EmptyPrompt)?;
        generator.run(next.segment, &tokens[next.from..], next.position)?;
        cached = next.cached;
        let token = draw(&generator.logits, request.options, &mut stream, &mut scratch) as i32;
        tokens.push(token);
        if !emit(token, &generator.logits) {
            break;
        }
    }
    Ok(())
}

/// The logits of the token that follows these.
pub fn next_logits(engine: &mut Engine, tokens: &[i32]) -> Result<Vec<f32>, TrainError> {
    let Some(segments) = engine.program().generate.clone() else {
        let what = "the plan has no segments that generate text".to_string();
        return Err(plan::BackendError::Unsupported { what }.into());
    };
    let backend = engine.backend();
    let mut generator = Generator { backend, content: Vec::new(), logits: Vec::new() };
    let next = segments.next_logits(tokens.len(), 0).ok_or(TrainError::EmptyPrompt)?;
    generator.run(next.segment, &tokens[next.from..], next.position)?;
    Ok(generator.logits)
}

/// A backend with the buffers that generation needs.
struct Generator<'a> {
    backend: &'a mut dyn Backend,
    content: Vec<u8>,
    /// Logits of the first sequence.
    logits: Vec<f32>,
}

impl Generator<'_> {
    fn run(
        &mut self,
        segment: &LogitsSegment,
        tokens: &[i32],
        position: u64,
    ) -> Result<(), TrainError> {
        let tensors = &self.backend.plan().schedule.tensors;
        let input = tensors.bytes(segment.tokens).get() as usize;
        let output = tensors.bytes(segment.logits).get() as usize;
        let rows = tensors.get(segment.logits).shape.dims()[0] as usize;
        let dtype = tensors.get(segment.logits).dtype;
        self.content.clear();
        ids_to_bytes(tokens, &mut self.content);
        self.content.resize(input, 0); // padding after the tokens is masked
        self.backend.write(segment.tokens, &self.content)?;
        let inputs = StepInputs { position, ..StepInputs::default() };
        self.backend.run(segment.segment, &inputs)?;
        self.content.resize(output, 0);
        self.backend.read(segment.logits, &mut self.content)?;
        half::decode(dtype, &self.content[..output / rows], &mut self.logits);
        Ok(())
    }
}
