//! A checkpoint is one file: safetensors, with the run's JSON document in its metadata and a
//! checksum for each tensor. [`save()`] writes the new file next to the old one and renames it into
//! place, so a kill or a full disk never loses the old checkpoint. [`link_best`] keeps a file under
//! a second name. [`Reader`] uses nothing from a file before it has checked it.
//!
//! [`header`] documents the layout of a file, [`checksum`] the checksum.
#![forbid(unsafe_code)]

mod tensor;
pub mod safetensors;
pub mod header;
pub mod checksum;

mod save;
mod new_file;
mod disk;

mod read;
mod source;
pub mod bounded_json;

mod error;

#[cfg(test)]
mod faults;

pub use error::{ReadError, ReadProblem, SaveError, SaveProblem};
pub use header::SCHEMA;
pub use new_file::NewFile;
pub use read::Reader;
pub use safetensors::{HEADER_LIMIT, SafetensorsFile};
pub use save::{BestLink, Written, file_bytes, link_best, save, write};
pub use source::TensorSource;
pub use tensor::{Dtype, TensorInfo, largest_bytes};
