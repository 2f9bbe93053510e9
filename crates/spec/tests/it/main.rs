//! The spec crate from outside: what users type, and what it means.
#![allow(clippy::unwrap_used, clippy::panic)]

mod typing;

mod arguments;
mod config_folder;
mod documents;
mod nanogpt_files;
mod preset;
mod random;
mod refusals;
mod resolving;
