//! Model files of other programs, as sources of tensors. Nothing here knows a setting or a device.
#![forbid(unsafe_code)]

pub mod hf;
pub mod gguf;

mod export;
mod weights;
mod new_folder;
mod parents;
mod byte_level;
mod bounded_file;
mod number;
mod foreign;
mod crop;
mod rounded;
pub mod torch;
mod platform;
mod error;

pub use crop::Cropped;
pub use error::{ForeignError, ForeignProblem};
pub use export::{ExportError, ExportModel, Precision, check_file};
pub use foreign::ForeignModel;
pub use new_folder::Existing;
pub use parents::Parents;

/// Text from a file, escaped onto one line and shortened so that a message can quote it.
pub(crate) fn shown(text: &str) -> String {
    const MOST: usize = 80;
    let mut quoted: String = text.chars().take(MOST).flat_map(char::escape_debug).collect();
    if text.chars().nth(MOST).is_some() {
        quoted.push('…');
    }
    quoted
}
