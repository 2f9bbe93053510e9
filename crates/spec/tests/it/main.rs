//! The spec crate from outside: what users type, what it means, and what it leads to.
#![allow(clippy::unwrap_used, clippy::panic)]

mod typing;

mod anchors;
mod arguments;
mod budgets;
mod config_folder;
mod documents;
mod nanogpt_files;
mod plans;
mod preset;
mod random;
mod random_runs;
mod refusals;
mod resolving;
