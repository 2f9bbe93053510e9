//! What only some systems have: the number that tells a file from its successor, and priorities.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// A number of the file, which another file of the same name does not have.
pub fn number_of(file: &Metadata) -> u64 {
    file.ino()
}

/// Gives the calling thread, and what it starts, the lowest priority.
pub fn lowest_priority() {
    // If it is not allowed, the work is only less polite.
    let _ = rustix::process::setpriority_process(None, 19);
}
