//! Tests of the search from outside: runs and budgets in, plans and refusals out.
#![allow(clippy::unwrap_used, clippy::panic)]

mod machines;
mod typing;

mod anchors;
mod budgets;
mod links;
mod measured;
mod on_host;
mod plans;
mod random_runs;
