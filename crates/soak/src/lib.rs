//! The soak: random tests that run for as long as you let them.
//!
//! [`section::SECTIONS`] is the table of all sections. A section is a sequence of cases. Case `i`
//! is a function of (seed, section, `i`), so the same seed gives the same cases, and any case can
//! be run again alone. Cases run in worker processes (`worker`); a worker that dies, hangs or
//! exhausts the memory is a finding and does not end the soak. `supervise` starts the workers and
//! prints findings as they come; `document` writes the results.

#![forbid(unsafe_code)]

pub mod options;
pub mod section;
pub mod supervise;
pub mod worker;
pub mod tally;
pub mod document;

pub mod bytes;
mod mutate;

pub mod plans;

pub mod jobs;
pub mod kills;
pub mod files;
pub mod ranks;

pub mod draws;
pub mod scratch;
mod panics;
mod clock;

pub use section::{Cases, Environment, SECTIONS, Section};
