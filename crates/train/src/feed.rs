//! Where batches come from. A feed fills the sequences of an iteration or of an evaluation batch,
//! and can say where it stands so that a run goes on with the very batches it would have had.

use crate::engine::Rows;
use crate::error::TrainError;
use serde_json::Value;

/// Which text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// The training text.
    Train,
    /// The validation text.
    Val,
}

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

    /// Where it stands.
    fn state(&self) -> Value;

    /// Goes where a state says.
    fn restore(&mut self, state: &Value) -> Result<(), TrainError>;
}
