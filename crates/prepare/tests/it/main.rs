//! The crate as the command uses it: sources in a folder, a request, the bytes that come of it.
#![allow(clippy::unwrap_used, clippy::panic)]

mod bounds;
mod damaged;
mod downloads;
mod fixture;
mod formats;
mod nanogpt;
mod own_files;
mod server;
mod tables;
mod tokenizers;
