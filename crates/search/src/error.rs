//! Why a run has no plan: one line each, with the numbers that decide it and what to do next.

use crate::refusal::Refusal;
use plan::{Bytes, PlanError};

/// Why a run could not be planned.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SearchError {
    /// The context is longer than the model's table of positions.
    #[error("block_size={asked}: the model has {most} positions; use at most {most}")]
    TooManyPositions {
        /// Positions that the run asks for.
        asked: u64,
        /// Positions that the model has.
        most: u64,
    },
    /// The host cannot hold the batch of an iteration.
    #[error(
        "cannot allocate {sequences} sequences at once ({needed} of tokens and targets); lower \
         batch_size or gradient_accumulation_steps: at most {most} sequences are possible"
    )]
    TooManySequences {
        /// Sequences that the run asks for.
        sequences: u64,
        /// The largest number allowed.
        most: u64,
        /// Bytes of their tokens and targets.
        needed: Bytes,
    },
    /// The program cannot be built or placed.
    #[error("no plan: {0}; make the model or batch smaller")]
    Plan(#[from] PlanError),
    /// Even the smallest plan is larger than the budget.
    #[error("{}", does_not_fit(.0))]
    DoesNotFit(Box<Refusal>),
}

fn does_not_fit(refusal: &Refusal) -> String {
    let named = refusal.largest.iter().map(|(name, bytes)| format!("{name} {bytes}"));
    let named = named.collect::<Vec<_>>().join(", ");
    let headline = refusal.headline();
    format!("{headline}; largest: {named}; make the model smaller, or free memory")
}
