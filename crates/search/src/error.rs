//! Why a run has no plan: one line each, with the numbers that decide it and what to do next.

use crate::refusal::Refusal;
use plan::{Bytes, PlanError};
use std::fmt;

/// Why a run could not be planned.
#[derive(Clone, Debug, PartialEq)]
pub enum SearchError {
    /// The context is longer than the model's table of positions.
    TooManyPositions {
        /// Positions that the run asks for.
        asked: u64,
        /// Positions that the model has.
        most: u64,
    },
    /// The host cannot hold the batch of an iteration.
    TooManySequences {
        /// Sequences that the run asks for.
        sequences: u64,
        /// The largest number allowed.
        most: u64,
        /// Bytes of their tokens and targets.
        needed: Bytes,
    },
    /// The program cannot be built or placed.
    Plan(PlanError),
    /// Even the smallest plan is larger than the budget.
    DoesNotFit(Box<Refusal>),
}

impl fmt::Display for SearchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SearchError::TooManyPositions { asked, most } => {
                write!(f, "block_size={asked}: the model has {most} positions; use at most {most}")
            }
            SearchError::TooManySequences { sequences, most, needed } => write!(
                f,
                "{sequences} sequences at a time ({needed} of tokens and targets) cannot be \
                 allocated; lower batch_size or gradient_accumulation_steps: at most {most}"
            ),
            SearchError::Plan(error) => {
                write!(f, "no plan: {error}; make the model or batch smaller")
            }
            SearchError::DoesNotFit(refusal) => {
                let named = refusal.largest.iter().map(|(name, bytes)| format!("{name} {bytes}"));
                let named = named.collect::<Vec<_>>().join(", ");
                write!(f, "{}; largest: {named}; ", refusal.headline())?;
                f.write_str("make the model smaller, or free memory")
            }
        }
    }
}

impl std::error::Error for SearchError {}

impl From<PlanError> for SearchError {
    fn from(error: PlanError) -> SearchError {
        SearchError::Plan(error)
    }
}
