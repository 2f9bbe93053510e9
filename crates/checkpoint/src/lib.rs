//! A checkpoint is one file: safetensors, with the run's JSON document in its metadata and a
//! checksum for each tensor. [`save()`] writes it beside the old one and renames it into place,
//! so that a kill or a full disk never costs what was saved; [`link_best`] keeps a file under a
//! second name; [`Reader`] believes nothing that it has not checked.
//!
//! The layout of a file is told in [`header`], the checksum in [`checksum`].
#![forbid(unsafe_code)]

mod tensor;

pub mod bounded_json;
pub mod checksum;
pub mod header;

mod error;

mod disk;
mod save;

mod read;

#[cfg(test)]
mod faults;

pub use error::{ReadError, ReadProblem, SaveError, SaveProblem};
pub use header::{HEADER_LIMIT, SCHEMA};
pub use read::Reader;
pub use save::{BestLink, file_bytes, link_best, save};
pub use tensor::{Dtype, TensorInfo, largest_bytes};
