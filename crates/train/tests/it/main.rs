//! Whole runs of a tiny model: resuming, evaluation that changes nothing, generation.
#![allow(clippy::unwrap_used, clippy::panic)]

mod allocations;
mod documents;
mod fixture;
mod on_cpu;
mod generation;
mod host_memory;
mod hugging_face;
mod memory;
mod records;
mod resume;
