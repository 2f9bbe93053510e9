//! The record of a run's file system calls, as `crates/faults` writes it.

use std::path::PathBuf;

/// A call.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// It failed and changed nothing.
    Failed,
    /// A read.
    Read,
    /// A file or folder was opened; later calls name it by number.
    Open { path: PathBuf, number: u64, creates: bool, empties: bool },
    /// Bytes were written; without an offset they were appended.
    Write { number: u64, at: Option<u64>, bytes: Vec<u8> },
    /// A file was truncated or extended.
    Truncate { number: u64, length: u64 },
    /// A file or folder was synced.
    Sync { number: u64 },
    /// A name changed.
    Rename { from: PathBuf, to: PathBuf },
    /// A file got a second name.
    Link { from: PathBuf, to: PathBuf },
    /// A file or folder was removed.
    Remove { path: PathBuf },
    /// A folder was created.
    Folder { path: PathBuf },
}

const O_CREAT: u64 = 0o100;
const O_TRUNC: u64 = 0o1000;

/// Parses a record; ignores an entry that a kill truncated at the end.
pub fn parse(mut bytes: &[u8]) -> Vec<Call> {
    let mut calls = Vec::new();
    while let Some(call) = entry(&mut bytes) {
        calls.push(call);
    }
    calls
}

fn entry(bytes: &mut &[u8]) -> Option<Call> {
    let kind = take(bytes, 1)?[0];
    let [first, second] = [text(bytes)?, text(bytes)?];
    let [number, at] = [word(bytes)?, word(bytes)?];
    let length = word(bytes)?;
    let content = take(bytes, usize::try_from(length).ok()?)?.to_vec();
    Some(match kind {
        b'o' => {
            let (creates, empties) = (at & O_CREAT != 0, at & O_TRUNC != 0);
            Call::Open { path: first, number, creates, empties }
        }
        b'w' => Call::Write { number, at: (at != u64::MAX).then_some(at), bytes: content },
        b't' => Call::Truncate { number, length: at },
        b's' => Call::Sync { number },
        b'r' => Call::Rename { from: first, to: second },
        b'l' => Call::Link { from: first, to: second },
        b'u' => Call::Remove { path: first },
        b'm' => Call::Folder { path: first },
        b'R' => Call::Read,
        _ => Call::Failed,
    })
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

fn word(bytes: &mut &[u8]) -> Option<u64> {
    take(bytes, 8)?.try_into().ok().map(u64::from_le_bytes)
}

fn text(bytes: &mut &[u8]) -> Option<PathBuf> {
    let length = usize::try_from(word(bytes)?).ok()?;
    Some(PathBuf::from(String::from_utf8_lossy(take(bytes, length)?).into_owned()))
}
