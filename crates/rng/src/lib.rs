//! All randomness of fitgpt, as pure functions of what the caller passes in.
//!
//! `Stream` and `dropout` are keyed: a value depends on seed, purpose and place, never on how
//! many values were drawn before, by whom, or in which order. `torch` is the opposite by
//! need: one sequential generator that gives the same bits as PyTorch's, so that a run can start
//! from nanoGPT's weights and see nanoGPT's batches.
//!
//! Nothing here reads a clock, the system's entropy or a file.

#![forbid(unsafe_code)]

mod philox;
mod stream;

pub mod dropout;

mod box_muller;
mod fma;

pub mod torch;

pub use philox::philox4x32;
pub use stream::{Purpose, Stream};
