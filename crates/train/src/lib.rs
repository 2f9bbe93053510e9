//! A training run: set-up, the loop, evaluation, saving and resuming, and generating text. This
//! crate knows settings, data and checkpoints. It gets a loaded backend and never asks which one.
#![forbid(unsafe_code)]

pub mod error;
mod host;

pub mod data_fingerprint;
mod disk_room;
mod settings_json;
pub mod setup;
mod set_aside;
pub mod found;
pub mod nearby;
pub mod saved_run;
mod foreign_document;

pub mod engine;
pub mod eval;
pub mod eval_setup;
pub mod eval_data;
pub mod scoring;
pub mod windows;
pub mod hellaswag;
pub mod feed;
pub mod lr;
mod progress;
mod document;
pub mod plan_json;
pub mod run;
pub mod runlog;
pub mod save;
pub mod shards;
mod weights;
pub mod outer;
mod save_ckpt;
mod saving;

pub mod export;
pub mod generate;
pub mod sampling;

pub use error::TrainError;
