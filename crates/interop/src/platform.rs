//! What only some systems have: reads at an offset, and the exchange of two names.

use rustix::fs::{CWD, RenameFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Fills the buffer from this offset of a file.
///
/// # Errors
/// The operating system's; `UnexpectedEof` if the file ends before the buffer is full.
pub fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    file.read_exact_at(buffer, offset)
}

/// Gives each of two paths the other's name, at once.
///
/// # Errors
/// The file system cannot, or one of them does not exist.
pub fn exchange_names(one: &Path, other: &Path) -> io::Result<()> {
    Ok(rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
}
