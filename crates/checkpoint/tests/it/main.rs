//! Checkpoints against their promises: what was saved comes back, is never lost, and nothing that
//! was not saved is believed.
#![allow(clippy::unwrap_used, clippy::panic)]

mod fixture;

mod damage;
mod disk_full;
mod files;
mod kill;
mod python;
mod refusals;
mod round_trip;
