//! PyTorch's CPU generator, bit for bit: what nanoGPT draws its weights and batches from.
//!
//! It follows PyTorch 2.7 and later on a CPU with AVX2, whatever CPU this runs on. One generator is
//! one sequence: every call moves it, and the order of calls is part of the result.

mod mt19937;
mod normal;

mod generator;

pub use generator::{Generator, State, StateError};
pub use mt19937::WORDS as STATE_WORDS;
