//! What only some operating systems have.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// Gives the calling thread, and what it starts, the lowest priority.
pub fn lowest_priority() {
    // If it is not allowed, the work is only less polite.
    let _ = rustix::process::setpriority_process(None, 19);
}

/// A number that a file keeps, and another file of the same name does not have.
pub(crate) fn identity(metadata: &Metadata) -> u64 {
    metadata.ino()
}
