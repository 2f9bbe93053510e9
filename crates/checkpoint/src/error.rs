//! Errors of saving and reading. Each message names the file, the numbers and the next move, on one
//! line even when it quotes a damaged file.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a checkpoint was not written. Unless the problem is [`SaveProblem::NotDurable`], the file
/// that was there before is untouched.
#[derive(Debug, thiserror::Error)]
#[error("cannot save {}: {problem}", path.display())]
pub struct SaveError {
    /// The file that should have been written.
    pub path: PathBuf,
    /// What went wrong.
    #[source]
    pub problem: SaveProblem,
}

/// The causes of a failed save.
#[derive(Debug, thiserror::Error)]
pub enum SaveProblem {
    /// One of the caller's tensors cannot be written.
    #[error("tensor '{}' {why}", shown(name))]
    BadTensor {
        /// Name of the tensor.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The caller's document is not JSON.
    #[error("the run document is not JSON: {why}")]
    BadDocument {
        /// The JSON parser's message.
        why: String,
    },
    /// The document, names and shapes do not fit into a header.
    #[error("the header needs {bytes} bytes, but the limit is {limit}")]
    HeaderTooLarge {
        /// Bytes they need.
        bytes: u64,
        /// Most bytes that a header may have.
        limit: u64,
    },
    /// The buffer is too small for the largest tensor.
    #[error("the largest tensor has {needed} bytes, but the buffer has {given}")]
    BufferTooSmall {
        /// Size of the largest tensor.
        needed: u64,
        /// Size of the buffer.
        given: u64,
    },
    /// The caller failed to supply a tensor's content.
    #[error("cannot get the content of tensor '{}': {source}", shown(tensor))]
    Fill {
        /// Name of the tensor.
        tensor: String,
        /// What the caller returned.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The disk or the user's quota is full.
    #[error("{}", disk_full(*needed, *free))]
    DiskFull {
        /// Bytes the new file needs while the old one still exists.
        needed: u64,
        /// Bytes written before the disk was full; they are free again now. `None` when the disk
        /// reported the error only after accepting every byte.
        free: Option<u64>,
    },
    /// Another save to the same file is under way.
    #[error("another save is under way in {}", temporary.display())]
    Busy {
        /// Its temporary file.
        temporary: PathBuf,
    },
    /// A file operation failed.
    #[error("cannot {doing}: {source}{}", advice(source))]
    Io {
        /// What was tried, as in "cannot …".
        doing: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// The new file is in place and complete, but its directory could not be synced: after a power
    /// failure the old file may be there instead.
    #[error(
        "the file is written and in place, but its directory cannot be synced: {source}; after a \
         power failure the previous checkpoint may reappear"
    )]
    NotDurable {
        /// The operating system's error.
        source: io::Error,
    },
}

impl SaveProblem {
    /// The problem that an I/O error is. The file needs `needed` bytes, of which `taken` are
    /// written.
    #[must_use]
    pub fn of(doing: &'static str, error: io::Error, needed: u64, taken: Option<u64>) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                SaveProblem::DiskFull { needed, free: taken }
            }
            _ => SaveProblem::Io { doing, source: error },
        }
    }
}

/// Why a checkpoint was not read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct ReadError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    #[source]
    pub problem: ReadProblem,
}

/// What is wrong with a file, or with the request to read it.
#[derive(Debug, thiserror::Error)]
pub enum ReadProblem {
    /// A file operation failed.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was tried, as in "cannot …".
        doing: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// The path is a directory, a pipe or a device.
    #[error("this is not a regular file")]
    NotAFile,
    /// The file does not look like safetensors.
    #[error("this is neither a fitgpt checkpoint nor any other safetensors file: {why}")]
    NotSafetensors {
        /// The part that is wrong.
        why: String,
    },
    /// A safetensors file of another program.
    #[error("this safetensors file was not written by fitgpt: its metadata has no schema")]
    Foreign,
    /// A file of this program, but not a checkpoint.
    #[error("this file has schema '{}', but a checkpoint has {}", shown(found), crate::SCHEMA)]
    OtherSchema {
        /// The schema it names.
        found: String,
    },
    /// Written by a newer version of this program.
    #[error(
        "this file has schema {}, but this program reads at most {}; update fitgpt",
        shown(found),
        crate::SCHEMA
    )]
    NewerSchema {
        /// The schema it names.
        found: String,
    },
    /// The end of the file is missing.
    #[error("the file is truncated: it needs at least {expected} bytes but has {found}; {DAMAGED}")]
    Truncated {
        /// Bytes the file must have at least.
        expected: u64,
        /// Bytes it has.
        found: u64,
    },
    /// The header contradicts itself.
    #[error("the file is damaged: {what}; {DAMAGED}")]
    Damaged {
        /// The contradiction.
        what: String,
    },
    /// The file is whole, but is not read: it is another program's and holds something else.
    #[error("{what}")]
    Refused {
        /// Why, and what to do.
        what: String,
    },
    /// A tensor's content is not what was written.
    #[error(
        "tensor '{}' is damaged: expected checksum {expected:016x}, found {found:016x}; {DAMAGED}",
        shown(tensor)
    )]
    Checksum {
        /// Name of the tensor.
        tensor: String,
        /// The checksum in the header.
        expected: u64,
        /// The checksum of the content.
        found: u64,
    },
    /// No tensor has this index.
    #[error("there is no tensor {index}: the file has {count}")]
    NoSuchTensor {
        /// The index that was asked for.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// The buffer does not have exactly the tensor's size.
    #[error("tensor '{}' has {needed} bytes, but the buffer has {given}", shown(tensor))]
    BufferSize {
        /// Name of the tensor.
        tensor: String,
        /// Size of the tensor.
        needed: u64,
        /// Size of the buffer.
        given: u64,
    },
}

impl ReadError {
    /// Whether the file itself is broken, as opposed to a file that merely cannot be read here or
    /// now.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(
            self.problem,
            ReadProblem::NotSafetensors { .. }
                | ReadProblem::Truncated { .. }
                | ReadProblem::Damaged { .. }
                | ReadProblem::Checksum { .. }
        )
    }
}

/// What to do about a damaged file.
const DAMAGED: &str = "resume from another checkpoint";

fn disk_full(needed: u64, free: Option<u64>) -> String {
    let beside = match free {
        Some(free) => format!("in addition to the old one, {} are free", Size(free)),
        None => "beside the old file".to_owned(),
    };
    let needed = Size(needed);
    format!(
        "the disk is full: the new file needs {needed} {beside}; free some space or choose another \
         disk"
    )
}

/// What the user can do after a file operation failed.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; does the directory exist?",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; choose a directory that can be written to"
        }
        _ => "",
    }
}

/// Text from a file, escaped onto one line and shortened so that a message can quote it.
pub(crate) fn shown(text: &str) -> String {
    const MOST: usize = 80;
    let mut quoted: String = text.chars().take(MOST).flat_map(char::escape_debug).collect();
    if text.chars().nth(MOST).is_some() {
        quoted.push('…');
    }
    quoted
}

/// Shows a size both rounded and to the byte.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Size(bytes) = *self;
        match bytes {
            0..0x10_0000 => write!(f, "{bytes} bytes"),
            _ => write!(f, "{:.1} MiB ({bytes} bytes)", bytes as f64 / f64::from(1 << 20)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_numbers_and_the_next_move() {
        let save = |problem| SaveError { path: "out/last".into(), problem }.to_string();
        let full = SaveProblem::DiskFull { needed: 3 << 20, free: Some(77) };
        assert_eq!(
            save(full),
            "cannot save out/last: the disk is full: the new file needs 3.0 MiB (3145728 bytes) in \
             addition to the old one, 77 bytes are free; free some space or choose another disk"
        );
        let source = io::Error::from(io::ErrorKind::PermissionDenied);
        assert_eq!(
            save(SaveProblem::Io { doing: "create its temporary file", source }),
            "cannot save out/last: cannot create its temporary file: permission denied; choose a \
             directory that can be written to"
        );
        let read = |problem| ReadError { path: "out/last".into(), problem }.to_string();
        assert_eq!(
            read(ReadProblem::NewerSchema { found: "fitgpt.checkpoint/2".to_owned() }),
            "out/last: this file has schema fitgpt.checkpoint/2, but this program reads at most \
             fitgpt.checkpoint/1; update fitgpt"
        );
        assert_eq!(
            read(ReadProblem::Checksum { tensor: "m/x".to_owned(), expected: 1, found: 2 }),
            "out/last: tensor 'm/x' is damaged: expected checksum 0000000000000001, found \
             0000000000000002; resume from another checkpoint"
        );
    }

    #[test]
    fn quotes_stay_on_one_line() {
        assert_eq!(shown("a\nb\u{1b}[31m"), "a\\nb\\u{1b}[31m");
        assert_eq!(shown(&"x".repeat(80)), "x".repeat(80));
        assert_eq!(shown(&"x".repeat(1000)), "x".repeat(80) + "…");
    }
}
