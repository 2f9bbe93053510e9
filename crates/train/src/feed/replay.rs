//! nanoGPT's own batches, replayed with PyTorch's generator. As in nanoGPT, training and evaluation
//! draw from the same stream. The state is the generator's.

use super::Feed;
use crate::engine::Rows;
use crate::error::TrainError;
use crate::host::room;
use data::{DataError, Dataset, NanogptSampler, NanogptSpec, NanogptState, Split, fill_rows};
use rng::torch::{Generator, State};
use serde_json::{Value, json};
use spec::RunSpec;

/// Draws batches of a data set as nanoGPT does.
pub struct ReplayFeed<'a> {
    dataset: &'a Dataset,
    spec: NanogptSpec,
    sampler: NanogptSampler,
    marked: NanogptSampler,
    starts: Vec<u64>,
}

impl<'a> ReplayFeed<'a> {
    /// Takes over the generator that has just drawn the weights.
    pub fn new(
        spec: &RunSpec,
        dataset: &'a Dataset,
        generator: Generator,
    ) -> Result<ReplayFeed<'a>, TrainError> {
        let spec = NanogptSpec {
            batch_size: spec.batch_size as usize,
            block_size: spec.block_size,
            train_tokens: dataset.split(Split::Train).len(),
            val_tokens: dataset.split(Split::Val).len(),
        };
        let sampler = NanogptSampler::new(spec, generator)?;
        let starts = room(spec.batch_size as u64, "batches")?;
        let marked = sampler.clone();
        Ok(ReplayFeed { dataset, spec, sampler, marked, starts })
    }
}

impl Feed for ReplayFeed<'_> {
    fn train(&mut self, _: u64, rows: &mut Rows) -> Result<(), TrainError> {
        let stream = self.dataset.split(Split::Train);
        let ids = self.spec.batch_size * rows.positions;
        let micro_steps = rows.tokens.chunks_mut(ids).zip(rows.targets.chunks_mut(ids));
        for (tokens, targets) in micro_steps {
            self.sampler.train_batch(&mut self.starts)?;
            fill_rows(stream, &self.starts, tokens, targets)?;
        }
        Ok(())
    }

    fn eval(&mut self, split: Split, _: u64, _: u64, rows: &mut Rows) -> Result<(), TrainError> {
        self.sampler.eval_batch(split, &mut self.starts)?;
        let Rows { tokens, targets, .. } = rows;
        Ok(fill_rows(self.dataset.split(split), &self.starts, tokens, targets)?)
    }

    /// nanoGPT draws the batches of an evaluation on its first rank.
    fn is_shared(&self) -> bool {
        false
    }

    fn mark(&mut self) {
        self.marked.copy_from(&self.sampler);
    }

    fn rewind(&mut self) {
        self.sampler.copy_from(&self.marked);
    }

    fn state(&self) -> Value {
        let NanogptState { generator, ahead } = self.sampler.state();
        json!({
            "words": generator.words.to_vec(),
            "index": generator.index,
            "cached_normal_bits": generator.cached_normal.map(|value| value.to_bits().to_string()),
            "ahead": ahead,
        })
    }

    fn restore(&mut self, state: &Value) -> Result<(), TrainError> {
        let what = "the checkpoint has no state of nanoGPT's stream: was it trained with \
                    --sampler=fitgpt?";
        let state = parse(state).ok_or_else(|| DataError::State { what: what.to_string() })?;
        self.sampler = NanogptSampler::from_state(self.spec, state)?;
        Ok(())
    }
}

fn parse(state: &Value) -> Option<NanogptState> {
    let words: Option<Vec<u32>> = state
        .get("words")?
        .as_array()?
        .iter()
        .map(|word| word.as_u64().and_then(|word| u32::try_from(word).ok()))
        .collect();
    let ahead: Option<Vec<u64>> =
        state.get("ahead")?.as_array()?.iter().map(Value::as_u64).collect();
    let cached_normal = match state.get("cached_normal_bits")? {
        Value::String(bits) => Some(f64::from_bits(bits.parse().ok()?)),
        _ => None,
    };
    let index = u32::try_from(state.get("index")?.as_u64()?).ok()?;
    let generator = State { words: words?.try_into().ok()?, index, cached_normal };
    Some(NanogptState { generator, ahead: ahead? })
}
