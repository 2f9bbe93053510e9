//! Tests of the server over real connections: what it serves, and what it survives.
#![allow(clippy::unwrap_used, clippy::panic)]

mod attacks;
mod fixture;
mod serving;
