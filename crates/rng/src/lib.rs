//! All randomness in fitgpt, as pure functions of their arguments.
//!
//! `Stream` and `dropout` are keyed: a value depends on seed, purpose and index, never on how many
//! values were drawn before or in which order. `torch` has to be the opposite: one sequential
//! generator with the same bits as PyTorch's, so that a run can start from nanoGPT's weights and
//! see nanoGPT's batches.
//!
//! Nothing here reads a clock, the system's entropy or a file.

#![forbid(unsafe_code)]

mod stream;
mod philox;

pub mod dropout;

mod box_muller;
mod fma;

pub mod torch;

pub use philox::philox4x32;
pub use stream::{Purpose, Stream};
