//! Whole files: written, read back, compared, and damaged.
#![allow(clippy::unwrap_used, clippy::panic)]

mod fixture;

mod damage;
mod gguf;
mod hf;
mod torch;
mod torch_damage;
