//! Tests of the promises of checkpoints: what was saved can be read, is never lost, and a damaged
//! file is never accepted.
#![allow(clippy::unwrap_used, clippy::panic)]

mod fixture;

mod damage;
mod disk_full;
mod files;
mod kill;
mod python;
mod refusals;
mod round_trip;
