//! The sinks' files, as a run, a resumption and a kill leave them.
#![allow(clippy::unwrap_used, clippy::panic)]

mod fixture;
mod sinks;
mod table;
