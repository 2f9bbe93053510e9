//! Tests of the search from outside: runs and budgets in, plans and refusals out.
#![allow(clippy::unwrap_used, clippy::panic)]

mod typing;

mod anchors;
mod budgets;
mod measured;
mod plans;
mod random_runs;
