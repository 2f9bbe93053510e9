//! The crate as the command uses it: sources in a folder, a request, and the resulting bytes.
#![allow(clippy::unwrap_used, clippy::panic)]

mod bit_flips;
mod bounds;
mod damaged;
mod downloads;
mod fixture;
mod formats;
mod hostile_servers;
mod incomplete;
mod memory;
mod nanogpt;
mod own_files;
mod partial;
#[path = "../../../hub/tests/it/http.rs"]
mod http;
mod server;
mod tables;
mod threads;
mod tokenizers;
