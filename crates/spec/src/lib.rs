//! The settings of a run: what the user typed, read and checked.
//!
//! [`keys::KEYS`] is the one table of keys. [`Settings`] is what was typed: config files (nanoGPT's
//! `.py`, evaluated without running Python, or `.toml`) and `--key=value`, left to right, later
//! wins. [`resolve()`] checks it once and returns a [`RunSpec`]. Files, the clock and the
//! environment are passed in, so every function here is pure.
//!
//! ```
//! use fitgpt_spec::{Command, Environment, Settings, World, resolve};
//!
//! let read = |_: &str| Ok(b"batch_size = 4 * 4 # from a file".to_vec());
//! let world = World { read: &read, unix_time: 0.0 };
//! let arguments = ["config/mine.py", "--dropout=0"].map(String::from);
//! let settings = Settings::read(Command::Train, &arguments, &world)?;
//! let (run, _notices) = resolve(&settings, &Environment::default())?;
//! assert_eq!((run.batch_size, run.dropout), (16, 0.0));
//! # Ok::<(), fitgpt_spec::SpecError>(())
//! ```
#![forbid(unsafe_code)]

pub mod keys;
pub mod value;
pub mod words;

pub mod settings;
mod overrides;
mod py_tokens;
mod py_format;
mod py_file;
mod toml_file;
pub mod preset;

pub mod run_spec;
pub mod resolve;
pub mod heads;
pub mod memory;

pub mod error;
pub mod nearest;
pub mod documents;
pub mod shell;

pub use error::SpecError;
pub use heads::Pair;
pub use keys::{Command, Group, KEYS, Key, Kind, Literal};
pub use memory::Memory;
pub use resolve::{Environment, SettingNotice, resolve};
pub use run_spec::{
    CheckpointFormat, Connection, Gelu, Gpt2, GradCheckpoint, InitFrom, MetricsKeys, Offload,
    OptimizerState, Pretrained, PretrainedModel, RanksKeys, ReduceDtype, RequestedDevice,
    RequestedDtype, Residual, RunSpec, Sampler, SamplingKeys, Sync,
};
pub use settings::{Origin, Setting, Settings, World};
pub use value::Value;
pub use words::Values;
