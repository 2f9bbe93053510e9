//! Errors of saving and reading. Each message names the file, the numbers and the next move, on one
//! line even when it quotes a damaged file.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a checkpoint was not written. Unless the problem is [`SaveProblem::NotDurable`], the file
/// that was there before is untouched.
#[derive(Debug)]
pub struct SaveError {
    /// The file that should have been written.
    pub path: PathBuf,
    /// What went wrong.
    pub problem: SaveProblem,
}

/// The causes of a failed save.
#[derive(Debug)]
pub enum SaveProblem {
    /// One of the caller's tensors cannot be written.
    BadTensor {
        /// Name of the tensor.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The caller's document is not JSON.
    BadDocument {
        /// The JSON parser's message.
        why: String,
    },
    /// The document, names and shapes do not fit into a header.
    HeaderTooLarge {
        /// Bytes they need.
        bytes: u64,
        /// Most bytes that a header may have.
        limit: u64,
    },
    /// The buffer is too small for the largest tensor.
    BufferTooSmall {
        /// Size of the largest tensor.
        needed: u64,
        /// Size of the buffer.
        given: u64,
    },
    /// The caller failed to supply a tensor's content.
    Fill {
        /// Name of the tensor.
        tensor: String,
        /// What the caller returned.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The disk or the user's quota is full.
    DiskFull {
        /// Bytes the new file needs while the old one still exists.
        needed: u64,
        /// Bytes written before the disk was full; they are free again now. `None` when the disk
        /// reported the error only after accepting every byte.
        free: Option<u64>,
    },
    /// Another save to the same file is under way.
    Busy {
        /// Its temporary file.
        temporary: PathBuf,
    },
    /// A file operation failed.
    Io {
        /// What was tried, as in "cannot …".
        doing: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// The new file is in place and complete, but its directory could not be synced: after a power
    /// failure the old file may be there instead.
    NotDurable {
        /// The operating system's error.
        source: io::Error,
    },
}

/// Why a checkpoint was not read.
#[derive(Debug)]
pub struct ReadError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub problem: ReadProblem,
}

/// What is wrong with a file, or with the request to read it.
#[derive(Debug)]
pub enum ReadProblem {
    /// A file operation failed.
    Io {
        /// What was tried, as in "cannot …".
        doing: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// The path is a directory, a pipe or a device.
    NotAFile,
    /// The file does not look like safetensors.
    NotSafetensors {
        /// The part that is wrong.
        why: String,
    },
    /// A safetensors file of another program.
    Foreign,
    /// A file of this program, but not a checkpoint.
    OtherSchema {
        /// The schema it names.
        found: String,
    },
    /// Written by a newer version of this program.
    NewerSchema {
        /// The schema it names.
        found: String,
    },
    /// The end of the file is missing.
    Truncated {
        /// Bytes the file must have at least.
        expected: u64,
        /// Bytes it has.
        found: u64,
    },
    /// The header contradicts itself.
    Damaged {
        /// The contradiction.
        what: String,
    },
    /// A tensor's content is not what was written.
    Checksum {
        /// Name of the tensor.
        tensor: String,
        /// The checksum in the header.
        expected: u64,
        /// The checksum of the content.
        found: u64,
    },
    /// No tensor has this index.
    NoSuchTensor {
        /// The index that was asked for.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// The buffer does not have exactly the tensor's size.
    BufferSize {
        /// Name of the tensor.
        tensor: String,
        /// Size of the tensor.
        needed: u64,
        /// Size of the buffer.
        given: u64,
    },
}

impl fmt::Display for SaveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot save {}: {}", self.path.display(), self.problem)
    }
}

impl fmt::Display for SaveProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SaveProblem::BadTensor { name, why } => write!(f, "tensor '{}' {why}", shown(name)),
            SaveProblem::BadDocument { why } => write!(f, "the run document is not JSON: {why}"),
            SaveProblem::HeaderTooLarge { bytes, limit } => {
                write!(f, "the header needs {bytes} bytes, but the limit is {limit}")
            }
            SaveProblem::BufferTooSmall { needed, given } => {
                write!(f, "the largest tensor has {needed} bytes, but the buffer has {given}")
            }
            SaveProblem::Fill { tensor, source } => {
                write!(f, "cannot get the content of tensor '{}': {source}", shown(tensor))
            }
            SaveProblem::DiskFull { needed, free } => {
                write!(f, "the disk is full: the new file needs {}", Size(*needed))?;
                match free {
                    Some(free) => {
                        write!(f, " in addition to the old one, {} are free", Size(*free))?
                    }
                    None => write!(f, " beside the old file")?,
                }
                write!(f, "; free some space or choose another out_dir")
            }
            SaveProblem::Busy { temporary } => {
                write!(f, "another save is under way in {}", temporary.display())
            }
            SaveProblem::Io { doing, source } => {
                write!(f, "cannot {doing}: {source}{}", advice(source))
            }
            SaveProblem::NotDurable { source } => write!(
                f,
                "the file is written and in place, but its directory cannot be synced: {source}; \
                 after a power failure the previous checkpoint may be back"
            ),
        }
    }
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

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.problem)
    }
}

/// What to do about a damaged file.
const DAMAGED: &str = "resume from another checkpoint";

impl fmt::Display for ReadProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadProblem::Io { doing, source } => write!(f, "cannot {doing}: {source}"),
            ReadProblem::NotAFile => write!(f, "this is not a regular file"),
            ReadProblem::NotSafetensors { why } => {
                write!(
                    f,
                    "this is neither a fitgpt checkpoint nor any other safetensors file: {why}"
                )
            }
            ReadProblem::Foreign => write!(
                f,
                "this safetensors file was not written by fitgpt: its metadata has no schema"
            ),
            ReadProblem::OtherSchema { found } => write!(
                f,
                "this file has schema '{}', but a checkpoint has {}",
                shown(found),
                crate::SCHEMA
            ),
            ReadProblem::NewerSchema { found } => write!(
                f,
                "this file has schema {}, but this program reads at most {}; update fitgpt",
                shown(found),
                crate::SCHEMA
            ),
            ReadProblem::Truncated { expected, found } => write!(
                f,
                "the file is truncated: it needs at least {expected} bytes but has {found}; \
                 {DAMAGED}"
            ),
            ReadProblem::Damaged { what } => write!(f, "the file is damaged: {what}; {DAMAGED}"),
            ReadProblem::Checksum { tensor, expected, found } => write!(
                f,
                "tensor '{}' is damaged: expected checksum {expected:016x}, found {found:016x}; \
                 {DAMAGED}",
                shown(tensor)
            ),
            ReadProblem::NoSuchTensor { index, count } => {
                write!(f, "there is no tensor {index}: the file has {count}")
            }
            ReadProblem::BufferSize { tensor, needed, given } => {
                write!(
                    f,
                    "tensor '{}' has {needed} bytes, but the buffer has {given}",
                    shown(tensor)
                )
            }
        }
    }
}

impl Error for SaveError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.problem {
            SaveProblem::Fill { source, .. } => Some(source.as_ref()),
            SaveProblem::Io { source, .. } | SaveProblem::NotDurable { source } => Some(source),
            SaveProblem::BadTensor { .. }
            | SaveProblem::BadDocument { .. }
            | SaveProblem::HeaderTooLarge { .. }
            | SaveProblem::BufferTooSmall { .. }
            | SaveProblem::DiskFull { .. }
            | SaveProblem::Busy { .. } => None,
        }
    }
}

impl Error for ReadError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.problem {
            ReadProblem::Io { source, .. } => Some(source),
            ReadProblem::NotAFile
            | ReadProblem::NotSafetensors { .. }
            | ReadProblem::Foreign
            | ReadProblem::OtherSchema { .. }
            | ReadProblem::NewerSchema { .. }
            | ReadProblem::Truncated { .. }
            | ReadProblem::Damaged { .. }
            | ReadProblem::Checksum { .. }
            | ReadProblem::NoSuchTensor { .. }
            | ReadProblem::BufferSize { .. } => None,
        }
    }
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
             addition to the old one, 77 bytes are free; free some space or choose another out_dir"
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
