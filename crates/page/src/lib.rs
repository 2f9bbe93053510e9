//! A page in the browser: runs as they train, their memory, plans for any card, diagnoses of
//! out-of-memory logs, and samples.
//!
//! This crate is the server and the files of the page. It reads logs and gets the events of a run;
//! what needs the other crates (plans, diagnoses, samples) it asks of [`Answers`]. It changes
//! nothing but through [`Control`], which only `train` gives.
#![forbid(unsafe_code)]

mod points;
mod run;
mod summary;
mod follow;
mod registry;

mod answers;
mod assets;
mod query;
mod guard;
mod reply;
mod socket;
mod routes;
mod live;
mod sampler;
mod server;
mod platform;

pub use answers::{Answers, Control, Hardware, Query, Refused, SampleWish};
pub use guard::{Access, loopback};
pub use platform::lowest_priority;
pub use query::get;
pub use registry::{Registry, RunSink};
pub use server::{Page, PageError, Settings, start};
