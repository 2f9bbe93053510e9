//! What the user asked for, and the plan it leads to.
//!
//! [`keys::KEYS`] is the one table of keys. [`Settings`] is what was typed: config files (nanoGPT's
//! `.py`, evaluated without running Python, or `.toml`) and `--key=value`, left to right, later
//! wins. [`resolve()`] checks it once and gives a [`RunSpec`]; [`plan_for()`] turns that into a
//! program and a plan. Files, the clock and the environment enter as arguments, so all is pure.
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

pub mod budget;
pub mod documents;
pub mod error;
pub mod heads;
pub mod keys;
pub mod machine;
pub mod memory;
pub mod plan_for;
pub mod planned;
pub mod preset;
pub mod refusal;
pub mod resolve;
pub mod run_spec;
pub mod settings;
pub mod shell;
pub mod sizing;
pub mod suggest;
pub mod value;

mod levels_search;
mod nearest;
mod overrides;
mod py_file;
mod py_format;
mod py_tokens;
mod toml_file;

pub use budget::Choice;
pub use error::SpecError;
pub use heads::Pair;
pub use keys::{Command, Group, KEYS, Key, Kind, Literal};
pub use machine::{Levers, Machine};
pub use memory::Memory;
pub use plan_for::{plan_again, plan_for, plan_for_sample};
pub use planned::{Planned, Prediction};
pub use refusal::Refusal;
pub use resolve::{Environment, Notice, resolve};
pub use run_spec::{
    Device, DtypeChoice, Gelu, Gpt2, GradCheckpoint, InitFrom, Offload, OptimizerState, Residual,
    RunSpec, Sampler, SamplingKeys,
};
pub use settings::{Origin, Setting, Settings, World};
pub use suggest::{Suggestion, first_suggestion, suggestions};
pub use value::Value;
