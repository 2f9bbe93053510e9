//! Where batches come from. A feed fills the sequences of an iteration or of an evaluation batch.
//! Its state is saved, so that a resumed run gets the same batches as an uninterrupted one.

mod own;
mod replay;

pub use own::OwnFeed;
pub use replay::ReplayFeed;

use crate::engine::Rows;
use crate::error::TrainError;
use data::{Dataset, Split};
use rng::torch::Generator;
use serde_json::Value;
use spec::{RunSpec, Sampler};

/// A stream of batches.
pub trait Feed {
    /// Fills in all sequences of an iteration.
    fn train(&mut self, iteration: u64, rows: &mut Rows) -> Result<(), TrainError>;

    /// Fills in batch number `batch` of the evaluation before an iteration.
    fn eval(
        &mut self,
        split: Split,
        iteration: u64,
        batch: u64,
        rows: &mut Rows,
    ) -> Result<(), TrainError>;

    /// Whether any rank can fill in any batch of an evaluation. If not, the first rank evaluates
    /// alone.
    fn is_shared(&self) -> bool {
        true
    }

    /// Remembers its position, without allocating.
    fn mark(&mut self);

    /// Returns to the position of the last `mark`.
    fn rewind(&mut self);

    /// Its position, for a checkpoint.
    fn state(&self) -> Value;

    /// Moves to the position in a checkpoint.
    fn restore(&mut self, state: &Value) -> Result<(), TrainError>;
}

/// The feed for a run's `sampler`. `generator` is the one that has just drawn the weights.
pub fn open<'a>(
    spec: &RunSpec,
    dataset: &'a Dataset,
    generator: Generator,
) -> Result<Box<dyn Feed + 'a>, TrainError> {
    Ok(match spec.sampler {
        Sampler::Fitgpt => Box::new(OwnFeed::new(spec, dataset)?),
        Sampler::Nanogpt => Box::new(ReplayFeed::new(spec, dataset, generator)?),
    })
}
