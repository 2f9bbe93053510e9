//! The soak: what the check only samples, for as long as one likes.
//!
//! [`section::SECTIONS`] is the one table of what is done. A section is a sequence of cases; case
//! `i` is a function of (seed, section, `i`), so the same seed gives the same cases and any of them
//! can be run again alone. Cases run in worker processes (`worker`): one that dies, hangs or takes
//! all memory is a finding, not the end. `supervise` starts them, prints findings as they come, and
//! `document` is what is kept.

#![forbid(unsafe_code)]

mod clock;
pub mod document;
pub mod draws;
pub mod options;
mod panics;
pub mod scratch;
pub mod section;
pub mod supervise;
pub mod tally;
pub mod worker;

mod mutate;

pub mod jobs;

pub mod bytes;
pub mod files;
pub mod kills;
pub mod plans;

pub use section::{Cases, Context, SECTIONS, Section};
