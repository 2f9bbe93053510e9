//! Models from a server that speaks the hub's paths, and from the cache.

#![allow(clippy::unwrap_used)]

mod http;
mod server;

mod faults;
mod models;
mod python;
