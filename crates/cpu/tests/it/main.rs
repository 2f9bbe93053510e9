//! Tests that the CPU backend keeps its promises: correct results, the same bits however work is
//! divided, and no memory beyond the plan.
#![allow(clippy::unwrap_used, clippy::panic)]

mod fixture;
mod bits;
mod recompute;
mod padding;
mod generation;
mod joined;
mod state_options;
mod ranks;
mod refusals;
mod allocation;
mod conformance_suite;
