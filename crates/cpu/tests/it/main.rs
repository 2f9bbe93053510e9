//! The CPU backend against its promises: right, the same bits however it is cut, and no memory
//! beyond the plan.
#![allow(clippy::unwrap_used, clippy::panic)]

mod allocation;
mod bits;
mod conformance_suite;
mod fixture;
mod generation;
mod levers;
mod recompute;
mod refusals;
