//! A training run: set-up, the loop, evaluation, saving and going on, and text from the result.
//! Knows settings, data and checkpoints; gets a loaded backend and does not know which one it is.
#![forbid(unsafe_code)]

pub mod error;
mod host;

pub mod data_marks;
mod disk_room;
mod settings_json;
pub mod setup;

pub mod engine;
pub mod eval;
pub mod feed;
pub mod lr;
mod document;
mod plan_json;
pub mod run;
pub mod runlog;
pub mod save;

pub mod generate;
pub mod sampling;

pub use error::TrainError;
