//! Which sequences a batch holds: a pure function of seed, use, rank, iteration and micro-step.
//!
//! There is no "next" batch: any rank can ask for any batch at any time and in any order, and
//! evaluation does not affect training. A batch is given by the starts of its rows, so a caller can
//! split the rows of an iteration into slices as its plan requires.

use crate::dataset::Split;
use crate::error::DataError;
use crate::token_stream::TokenStream;
use rng::{Purpose, Stream};

const MICRO_STEP_SHIFT: u32 = 32;
const SPLIT_SHIFT: u32 = 48;
const RANK_SHIFT: u32 = 49;

/// What a batch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Use {
    /// Training, from the training half.
    Train,
    /// Evaluation, from either half.
    Eval(Split),
}

impl Use {
    /// The half that its rows come from.
    #[must_use]
    pub fn split(self) -> Split {
        match self {
            Self::Train => Split::Train,
            Self::Eval(split) => split,
        }
    }
}

/// What identifies a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Batch {
    /// What it is for.
    pub purpose: Use,
    /// The rank that uses it. Ranks must be below 2^15 to get distinct batches.
    pub rank: u16,
    /// The iteration. An evaluation uses the current iteration, or 0 to get the same batches each
    /// time.
    pub iteration: u32,
    /// The micro-step within the iteration; for an evaluation, the number of the batch.
    pub micro_step: u16,
}

impl Batch {
    /// The random stream of its starts:
    ///
    /// ```text
    /// purpose = TrainBatch or EvalBatch
    /// index   = rank << 49 | (1 for the validation half) << 48 | micro_step << 32 | iteration
    /// ```
    fn stream(self, seed: u64) -> Stream {
        let (purpose, half) = match self.purpose {
            Use::Train => (Purpose::TrainBatch, 0),
            Use::Eval(Split::Train) => (Purpose::EvalBatch, 0),
            Use::Eval(Split::Val) => (Purpose::EvalBatch, 1),
        };
        let index = u64::from(self.rank) << RANK_SHIFT
            | half << SPLIT_SHIFT
            | u64::from(self.micro_step) << MICRO_STEP_SHIFT
            | u64::from(self.iteration);
        Stream::new(seed, purpose, index)
    }
}

/// Chooses the rows of batches, uniformly and with replacement, as nanoGPT does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSampler {
    /// The run's seed.
    pub seed: u64,
}

impl BatchSampler {
    /// Where the rows of a batch start, each in `0 .. tokens - block_size`, so that a row's tokens
    /// and its last target are inside the stream.
    ///
    /// # Errors
    ///
    /// When the stream is too short for one row.
    pub fn starts(
        &self,
        batch: Batch,
        stream: &TokenStream,
        block_size: u64,
        starts: &mut [u64],
    ) -> Result<(), DataError> {
        stream.check_block_size(block_size)?;
        let places = stream.len() - block_size;
        let mut draws = batch.stream(self.seed);
        starts.iter_mut().for_each(|start| *start = draws.below(places));
        Ok(())
    }
}

/// Reads the rows that begin at `starts`, one after the other: `tokens` as they are, `targets`
/// shifted by one. Allocates nothing.
///
/// # Errors
///
/// When the buffers are not `starts.len()` rows of one length, a read fails, or an id is beyond
/// the vocabulary.
pub fn fill_rows(
    stream: &TokenStream,
    starts: &[u64],
    tokens: &mut [i32],
    targets: &mut [i32],
) -> Result<(), DataError> {
    let rows = starts.len();
    let is_whole = rows > 0 && !tokens.is_empty() && tokens.len().is_multiple_of(rows);
    if !is_whole || tokens.len() != targets.len() {
        let (tokens, targets) = (tokens.len(), targets.len());
        let what = format!("{rows} rows do not fit buffers of {tokens} tokens, {targets} targets");
        return Err(DataError::Shape { what });
    }
    let block_size = tokens.len() / rows;
    let rows = tokens.chunks_exact_mut(block_size).zip(targets.chunks_exact_mut(block_size));
    for (&start, (tokens, targets)) in starts.iter().zip(rows) {
        stream.read(start, &mut tokens[..1])?;
        stream.read(start.saturating_add(1), targets)?;
        tokens[1..].copy_from_slice(&targets[..block_size - 1]);
    }
    Ok(())
}
