//! The record of calls: one entry for each, including failed ones.
//!
//! An entry is a kind, two paths under the root (each a length and its bytes), the number of the
//! open file, an offset or length, and the bytes written with their length. Numbers are 8
//! little-endian bytes.

use crate::{real, state};

/// Records a failed call, which changed nothing.
pub fn failed() {
    call(b'-', [&[], &[]], 0, 0, &[]);
}

/// Records a successful call.
pub fn call(kind: u8, paths: [&[u8]; 2], number: u64, at: u64, bytes: &[u8]) {
    let Some(fd) = state::record_fd() else { return };
    let mut entry = vec![kind];
    let mut text = |text: &[u8]| {
        entry.extend((text.len() as u64).to_le_bytes());
        entry.extend(text);
    };
    text(paths[0]);
    text(paths[1]);
    entry.extend(number.to_le_bytes());
    entry.extend(at.to_le_bytes());
    entry.extend((bytes.len() as u64).to_le_bytes());
    entry.extend(bytes);
    real::write_all(fd, &entry);
}
