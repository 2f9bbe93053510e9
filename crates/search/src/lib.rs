//! The search for the plan. It takes a checked run and a machine and returns the fastest plan that
//! fits.
//!
//! [`plan_for()`] is the only way from a [`spec::RunSpec`] to a program and its plan; its file
//! describes the algorithm. The search reads no files and touches no device: the machine is an
//! argument.
#![forbid(unsafe_code)]

// In reading order.
pub mod plan_for;

mod candidates;
mod levels;
mod probe;
mod task;
mod without_training;

pub mod communication;
pub mod cut;
pub mod error;
pub mod host_bytes;
pub mod machine;
pub mod planned;
pub mod refusal;
pub mod sizing;
pub mod suggest;

pub use communication::Communication;
pub use cut::Cut;
pub use error::SearchError;
pub use host_bytes::HostBytes;
pub use machine::{Machine, StateOptions};
pub use plan_for::{best_plans, plan_again, plan_for, schedule_without_host};
pub use planned::{Planned, Prediction};
pub use refusal::Refusal;
pub use suggest::{Suggestion, first_suggestion, suggestions};
pub use without_training::{plan_for_evaluation, plan_for_sample};
