//! The search for the plan: a checked run and a machine in, the fastest plan that fits out.
//!
//! [`plan_for()`] is the one way from a [`spec::RunSpec`] to a program and its plan. It reads no
//! file and touches no device: the machine is an argument.
#![forbid(unsafe_code)]

pub mod budget;
pub mod error;
pub mod host_bytes;
pub mod machine;
pub mod plan_for;
pub mod planned;
pub mod refusal;
pub mod sizing;
pub mod suggest;

mod levels_search;

pub use budget::Cut;
pub use error::SearchError;
pub use host_bytes::HostBytes;
pub use machine::{Levers, Machine};
pub use plan_for::{plan_again, plan_for, plan_for_sample};
pub use planned::{Planned, Prediction};
pub use refusal::Refusal;
pub use suggest::{Suggestion, first_suggestion, suggestions};
