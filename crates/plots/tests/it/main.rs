//! The sinks' files, and logs to compare, as a run, a resumption and a kill leave them.
#![allow(clippy::unwrap_used, clippy::panic)]

mod compare;
mod fixture;
mod memory;
mod sinks;
mod table;
