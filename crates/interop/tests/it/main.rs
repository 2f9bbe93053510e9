//! Whole files: written, read back, compared, and damaged.
#![allow(clippy::unwrap_used, clippy::panic)]

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

mod fixture;

mod damage;
mod gguf;
mod hf;
mod torch;
mod torch_damage;
