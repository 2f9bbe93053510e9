//! Where batches come from. A feed fills the sequences of an iteration or of an evaluation batch,
//! and can say where it stands so that a run goes on with the very batches it would have had.

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
    /// All sequences of an iteration.
    fn train(&mut self, iteration: u64, rows: &mut Rows) -> Result<(), TrainError>;

    /// Batch number `batch` of the evaluation before an iteration.
    fn eval(
        &mut self,
        split: Split,
        iteration: u64,
        batch: u64,
        rows: &mut Rows,
    ) -> Result<(), TrainError>;

    /// Remembers where it stands, in memory that it has already.
    fn mark(&mut self);

    /// Goes back to where it was last marked.
    fn rewind(&mut self);

    /// Where it stands, for a checkpoint.
    fn state(&self) -> Value;

    /// Goes where a state says.
    fn restore(&mut self, state: &Value) -> Result<(), TrainError>;
}

/// The feed that a run asks for. `generator` is the one that has just made the weights.
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
