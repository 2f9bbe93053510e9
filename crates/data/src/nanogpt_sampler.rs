//! Replays nanoGPT's own batches from PyTorch's generator (`sampler='nanogpt'`).
//!
//! nanoGPT uses one generator to initialise the model and then to draw every batch, in this order:
//! the first training batch before the loop; in each iteration, if an evaluation is due,
//! `eval_iters` batches of the training half and as many of the validation half; then, in every
//! micro-step, the *next* training batch. So the batch of an iteration is drawn before that
//! iteration's evaluation, and the last batch is never used. Callers must use the same order of
//! calls, because it decides the result.

use crate::dataset::Split;
use crate::error::DataError;
use rng::torch::{Generator, State};

/// The sizes that determine nanoGPT's draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NanogptSpec {
    /// Rows of a batch; evaluation uses the same number.
    pub batch_size: usize,
    /// Tokens of a row.
    pub block_size: u64,
    /// Tokens of the training half.
    pub train_tokens: u64,
    /// Tokens of the validation half.
    pub val_tokens: u64,
}

impl NanogptSpec {
    /// `len(data) - block_size`, the number of possible row starts.
    fn places(&self, split: Split) -> u64 {
        let tokens = match split {
            Split::Train => self.train_tokens,
            Split::Val => self.val_tokens,
        };
        tokens.saturating_sub(self.block_size)
    }

    fn check(&self) -> Result<(), DataError> {
        if self.batch_size == 0 {
            let what = "batch_size=0: a batch needs at least 1 row".to_owned();
            return Err(DataError::Shape { what });
        }
        for split in [Split::Train, Split::Val] {
            if self.places(split) == 0 {
                let half = split.name();
                let (train, val, block) = (self.train_tokens, self.val_tokens, self.block_size);
                let what = format!(
                    "the {half} half is too short for block_size={block} ({train} training and \
                     {val} validation tokens); lower block_size"
                );
                return Err(DataError::Shape { what });
            }
        }
        Ok(())
    }
}

/// Batches as nanoGPT draws them.
#[derive(Clone, Debug, PartialEq)]
pub struct NanogptSampler {
    spec: NanogptSpec,
    generator: Generator,
    /// Starts of the training batch that was drawn ahead.
    ahead: Vec<u64>,
}

/// Everything that determines the next batches, for checkpoints.
#[derive(Clone, Debug, PartialEq)]
pub struct NanogptState {
    /// The state of PyTorch's generator.
    pub generator: State,
    /// Starts of the training batch that was drawn ahead.
    pub ahead: Vec<u64>,
}

impl NanogptSampler {
    /// Takes over the generator that has just initialised the model, and draws the first batch.
    ///
    /// # Errors
    ///
    /// When a half is too short for one row.
    pub fn new(spec: NanogptSpec, generator: Generator) -> Result<Self, DataError> {
        spec.check()?;
        let ahead = vec![0; spec.batch_size];
        let mut sampler = Self { spec, generator, ahead };
        sampler.draw_ahead();
        Ok(sampler)
    }

    /// The starts of the next training batch; once per micro-step.
    ///
    /// # Errors
    ///
    /// When `starts` is not one batch long.
    pub fn train_batch(&mut self, starts: &mut [u64]) -> Result<(), DataError> {
        self.check_length(starts)?;
        starts.copy_from_slice(&self.ahead);
        self.draw_ahead();
        Ok(())
    }

    /// The starts of the next evaluation batch. nanoGPT draws all batches of the training half,
    /// then all of the validation half, before the iteration's first micro-step.
    ///
    /// # Errors
    ///
    /// When `starts` is not one batch long.
    pub fn eval_batch(&mut self, split: Split, starts: &mut [u64]) -> Result<(), DataError> {
        self.check_length(starts)?;
        let places = self.spec.places(split);
        starts.iter_mut().for_each(|start| *start = self.generator.randint(places));
        Ok(())
    }

    /// The state to keep in a checkpoint.
    #[must_use]
    pub fn state(&self) -> NanogptState {
        NanogptState { generator: self.generator.state(), ahead: self.ahead.clone() }
    }

    /// Becomes a copy of another sampler of the same sizes. Allocates nothing.
    pub fn copy_from(&mut self, other: &Self) {
        self.spec = other.spec;
        self.generator.clone_from(&other.generator);
        self.ahead.clone_from(&other.ahead);
    }

    /// The sampler that returned `state`.
    ///
    /// # Errors
    ///
    /// When a half is too short, or the state cannot come from a run with these sizes.
    pub fn from_state(spec: NanogptSpec, state: NanogptState) -> Result<Self, DataError> {
        spec.check()?;
        let NanogptState { generator, ahead } = state;
        let wrong = |what: String| Err(DataError::State { what });
        if ahead.len() != spec.batch_size {
            let (rows, batch_size) = (ahead.len(), spec.batch_size);
            return wrong(format!("it has {rows} rows drawn ahead, but batch_size={batch_size}"));
        }
        let places = spec.places(Split::Train);
        if let Some(start) = ahead.iter().find(|&&start| start >= places) {
            return wrong(format!("row start {start} is not below {places}: did the data change?"));
        }
        match Generator::from_state(generator) {
            Ok(generator) => Ok(Self { spec, generator, ahead }),
            Err(error) => wrong(error.to_string()),
        }
    }

    fn draw_ahead(&mut self) {
        let places = self.spec.places(Split::Train);
        for start in &mut self.ahead {
            *start = self.generator.randint(places);
        }
    }

    fn check_length(&self, starts: &[u64]) -> Result<(), DataError> {
        if starts.len() == self.spec.batch_size {
            return Ok(());
        }
        let (rows, batch_size) = (starts.len(), self.spec.batch_size);
        let what = format!(
            "the batch should have {rows} rows, but batch_size={batch_size} (nanoGPT's \
            evaluation has no batch size of its own)"
        );
        Err(DataError::Shape { what })
    }
}
