//! What can go wrong, with the file, the numbers and the next move. Every message is one line, also
//! where it quotes a damaged file.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a checkpoint was not written. Unless the problem is [`SaveProblem::NotDurable`], the file
/// that was there before is untouched.
#[derive(Debug)]
pub struct SaveError {
    /// The file that was to be written.
    pub path: PathBuf,
    /// What went wrong.
    pub problem: SaveProblem,
}

/// What went wrong while writing.
#[derive(Debug)]
pub enum SaveProblem {
    /// The caller's list of tensors cannot be written.
    BadTensor {
        /// The tensor.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The caller's document is not JSON.
    BadDocument {
        /// The parser's words.
        why: String,
    },
    /// Document, names and shapes need more room than a header may have.
    HeaderTooLarge {
        /// What they need.
        bytes: u64,
        /// The most there may be.
        limit: u64,
    },
    /// The buffer does not hold the largest tensor.
    BufferTooSmall {
        /// Size of the largest tensor.
        needed: u64,
        /// Size of the buffer.
        given: u64,
    },
    /// The caller could not give a tensor's content.
    Fill {
        /// The tensor.
        tensor: String,
        /// What the caller returned.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The disk, or the user's share of it, is full.
    DiskFull {
        /// What the new file needs, beside the old one.
        needed: u64,
        /// What was taken before the disk was full, so what is free now. `None` when the disk said
        /// so only after it had taken everything.
        free: Option<u64>,
    },
    /// Another save to the same file is under way.
    Busy {
        /// Its temporary file.
        temporary: PathBuf,
    },
    /// A file operation failed.
    Io {
        /// What was to be done.
        doing: &'static str,
        /// The system's words.
        source: io::Error,
    },
    /// The new file is in place and complete, but its directory could not be synced: after a power
    /// failure the old file may be there instead.
    NotDurable {
        /// The system's words.
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

/// What is wrong with a file, or with what was asked of it.
#[derive(Debug)]
pub enum ReadProblem {
    /// A file operation failed.
    Io {
        /// What was to be done.
        doing: &'static str,
        /// The system's words.
        source: io::Error,
    },
    /// It is a directory, a pipe or a device.
    NotAFile,
    /// Nothing of it looks like safetensors.
    NotSafetensors {
        /// What gave it away.
        why: String,
    },
    /// A safetensors file of another program.
    Foreign,
    /// A file of this program, but no checkpoint.
    OtherSchema {
        /// The schema it names.
        found: String,
    },
    /// Written by a newer version of this program.
    NewerSchema {
        /// The schema it names.
        found: String,
    },
    /// Its end is missing.
    Truncated {
        /// What it must have at least.
        expected: u64,
        /// What it has.
        found: u64,
    },
    /// Its header contradicts itself.
    Damaged {
        /// How.
        what: String,
    },
    /// A tensor's content is not what was written.
    Checksum {
        /// The tensor.
        tensor: String,
        /// The checksum in the header.
        expected: u64,
        /// The checksum of the content.
        found: u64,
    },
    /// No tensor has this index.
    NoSuchTensor {
        /// What was asked for.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// The buffer has not exactly the tensor's size.
    BufferSize {
        /// The tensor.
        tensor: String,
        /// Its size.
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
                write!(f, "its header needs {bytes} bytes, the limit is {limit}")
            }
            SaveProblem::BufferTooSmall { needed, given } => {
                write!(f, "the largest tensor has {needed} bytes, the buffer {given}")
            }
            SaveProblem::Fill { tensor, source } => {
                write!(f, "tensor '{}' cannot be had: {source}", shown(tensor))
            }
            SaveProblem::DiskFull { needed, free } => {
                write!(f, "the disk is full: {} needed", Size(*needed))?;
                match free {
                    Some(free) => write!(f, " beside the old file, {} free", Size(*free))?,
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
                "it is written and in place, but its directory cannot be synced: {source}; after \
                 a power failure the checkpoint before it may be there instead"
            ),
        }
    }
}

impl ReadError {
    /// Whether the file is broken for good, as opposed to one that cannot be read here or now.
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
            ReadProblem::NotAFile => write!(f, "this is not a file"),
            ReadProblem::NotSafetensors { why } => {
                write!(f, "this is not a fitgpt checkpoint, nor any safetensors file: {why}")
            }
            ReadProblem::Foreign => write!(
                f,
                "this safetensors file was not written by fitgpt: its metadata has no schema"
            ),
            ReadProblem::OtherSchema { found } => write!(
                f,
                "this file has schema '{}', a checkpoint has {}",
                shown(found),
                crate::SCHEMA
            ),
            ReadProblem::NewerSchema { found } => write!(
                f,
                "this file has {}, this program reads up to {}; update fitgpt",
                shown(found),
                crate::SCHEMA
            ),
            ReadProblem::Truncated { expected, found } => write!(
                f,
                "the file is cut short: at least {expected} bytes expected, {found} found; \
                 {DAMAGED}"
            ),
            ReadProblem::Damaged { what } => write!(f, "the file is damaged: {what}; {DAMAGED}"),
            ReadProblem::Checksum { tensor, expected, found } => write!(
                f,
                "tensor '{}' is damaged: checksum {expected:016x} expected, {found:016x} found; \
                 {DAMAGED}",
                shown(tensor)
            ),
            ReadProblem::NoSuchTensor { index, count } => {
                write!(f, "tensor {index} was asked for, there are {count}")
            }
            ReadProblem::BufferSize { tensor, needed, given } => {
                write!(f, "tensor '{}' has {needed} bytes, the buffer {given}", shown(tensor))
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

/// The next move after a file operation failed.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; does the directory exist?",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; choose a directory that can be written to"
        }
        _ => "",
    }
}

/// A text of a file as a message may quote it: on one line, and not the whole of it.
pub(crate) fn shown(text: &str) -> String {
    const MOST: usize = 80;
    let mut quoted: String = text.chars().take(MOST).flat_map(char::escape_debug).collect();
    if text.chars().nth(MOST).is_some() {
        quoted.push('…');
    }
    quoted
}

/// A size for people and to the byte.
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
            "cannot save out/last: the disk is full: 3.0 MiB (3145728 bytes) needed beside the old \
             file, 77 bytes free; free some space or choose another out_dir"
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
            "out/last: this file has fitgpt.checkpoint/2, this program reads up to \
             fitgpt.checkpoint/1; update fitgpt"
        );
        assert_eq!(
            read(ReadProblem::Checksum { tensor: "m/x".to_owned(), expected: 1, found: 2 }),
            "out/last: tensor 'm/x' is damaged: checksum 0000000000000001 expected, \
             0000000000000002 found; resume from another checkpoint"
        );
    }

    #[test]
    fn quotes_stay_on_one_line() {
        assert_eq!(shown("a\nb\u{1b}[31m"), "a\\nb\\u{1b}[31m");
        assert_eq!(shown(&"x".repeat(80)), "x".repeat(80));
        assert_eq!(shown(&"x".repeat(1000)), "x".repeat(80) + "…");
    }
}
