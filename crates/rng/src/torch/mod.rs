//! PyTorch's CPU generator, bit for bit. nanoGPT draws its weights and batches from it.
//!
//! It gives the results of PyTorch 2.7 and later on a CPU with AVX2, on any CPU. A generator is one
//! sequence: every call advances it, and the order of calls is part of the result.

mod generator;
mod normal;

mod mt19937;

pub use generator::{Generator, State, StateError};
pub use mt19937::WORDS as STATE_WORDS;
