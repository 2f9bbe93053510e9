//! Errors in data files. Each message is one line with the file, the number and the next move.

use pickle::PickleError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why data cannot be used.
#[derive(Debug)]
pub enum DataError {
    /// The operating system refused.
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// A data set, or one half of it, is missing.
    Missing {
        /// The data set's folder.
        dir: PathBuf,
        /// Whether the folder exists.
        dir_exists: bool,
        /// The names that were looked for.
        looked_for: &'static str,
        /// The command that makes it.
        maker: String,
    },
    /// An empty file.
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A headerless file that ends inside a token.
    OddSize {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// A file of another kind.
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it looks like.
        kind: &'static str,
        /// What to do instead.
        advice: &'static str,
    },
    /// A shard of an unknown version.
    ShardVersion {
        /// The file.
        path: PathBuf,
        /// The version in its header.
        version: i32,
    },
    /// A shard whose size contradicts its header.
    ShardLength {
        /// The file.
        path: PathBuf,
        /// Tokens that the header announces.
        promised: i64,
        /// Bytes that the file has.
        bytes: u64,
    },
    /// A file that became shorter since it was opened.
    Shrunk {
        /// The file.
        path: PathBuf,
        /// The token that could not be read, counted from the start of the file.
        token: u64,
    },
    /// An id that has no row in the model's embedding.
    BeyondVocabulary {
        /// The file, or the name of a stream in memory.
        path: PathBuf,
        /// Its position, counted from the start of the file.
        token: u64,
        /// The id.
        id: u16,
        /// The vocabulary's size.
        vocab_size: u32,
    },
    /// Fewer tokens than one sequence needs.
    TooShort {
        /// The file, or the name of a stream in memory.
        path: PathBuf,
        /// Tokens there are.
        tokens: u64,
        /// Tokens of a sequence.
        block_size: u64,
    },
    /// A read beyond the last token.
    OutOfRange {
        /// The file, or the name of a stream in memory.
        path: PathBuf,
        /// First token asked for.
        start: u64,
        /// Tokens asked for.
        count: u64,
        /// Tokens there are.
        tokens: u64,
    },
    /// A `meta.pkl` that cannot be read.
    MetaPickle {
        /// The file.
        path: PathBuf,
        /// Why.
        source: PickleError,
    },
    /// A `meta.pkl` that does not describe a vocabulary.
    Meta {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Buffers or settings that do not fit each other.
    Shape {
        /// What is wrong, with its numbers.
        what: String,
    },
    /// A sampler's state that no run can have.
    State {
        /// What is wrong, with its numbers.
        what: String,
    },
}

impl DataError {
    /// The file or folder that it is about.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Missing { dir: path, .. }
            | Self::Io { path, .. }
            | Self::Empty { path }
            | Self::OddSize { path, .. }
            | Self::Foreign { path, .. }
            | Self::ShardVersion { path, .. }
            | Self::ShardLength { path, .. }
            | Self::Shrunk { path, .. }
            | Self::BeyondVocabulary { path, .. }
            | Self::TooShort { path, .. }
            | Self::OutOfRange { path, .. }
            | Self::MetaPickle { path, .. }
            | Self::Meta { path, .. } => Some(path),
            Self::Shape { .. } | Self::State { .. } => None,
        }
    }

    /// For `map_err` on a call of the operating system.
    pub(crate) fn io(path: &Path, action: &'static str) -> impl Fn(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path: path.clone(), action, source }
    }
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = self.path() {
            write!(f, "{}", path.display())?;
        }
        match self {
            Self::Io { action, source, .. } => {
                write!(f, ": cannot {action}: {source}; check the path and its permissions")
            }
            Self::Missing { dir, looked_for, maker, .. } if dir.is_file() => {
                write!(f, " is a file: name its folder, which holds {looked_for} ({maker})")
            }
            Self::Missing { dir_exists, looked_for, maker, .. } => {
                let place = if *dir_exists { "holds no" } else { "does not exist: no" };
                write!(
                    f,
                    " {place} {looked_for}; {maker}; `fitgpt train TEXT` trains on a text of your \
                     own"
                )
            }
            Self::Empty { .. } => write!(f, " is empty (0 bytes); copy or prepare it again"),
            Self::OddSize { bytes, .. } => {
                let about = "but tokens are 2 bytes each: it is truncated or not a token file";
                write!(f, " has {bytes} bytes, {about}; copy or prepare it again")
            }
            Self::Foreign { kind, advice, .. } => {
                write!(f, " is not a token file: it looks like {kind}; {advice}")
            }
            Self::ShardVersion { version, .. } => {
                write!(f, " is a shard of version {version}, but only version 1 can be read; ")?;
                write!(f, "prepare it again")
            }
            Self::ShardLength { promised, bytes, .. } => {
                let needed = i128::from(*promised) * 2 + 1024;
                write!(f, " has {bytes} bytes, but its header promises {promised} tokens, ")?;
                write!(f, "which take {needed}; copy or prepare it again")
            }
            Self::Shrunk { token, .. } => {
                write!(f, " became shorter while it was in use: token {token} is gone; ")?;
                write!(f, "prepare it again and resume")
            }
            Self::BeyondVocabulary { token, id, vocab_size, .. } => {
                let last = vocab_size.saturating_sub(1);
                write!(f, ": token {token} is {id}, but vocab_size is {vocab_size} ")?;
                write!(
                    f,
                    "(ids 0 to {last}); use the vocabulary it was made with, or prepare it "
                )?;
                write!(f, "again")
            }
            Self::TooShort { tokens, block_size, .. } => {
                let (needed, most) = (u128::from(*block_size) + 1, tokens.saturating_sub(1));
                write!(f, " has {tokens} tokens, but block_size={block_size} needs at least ")?;
                match most {
                    0 => write!(f, "{needed}; use more text"),
                    _ => write!(f, "{needed}; lower block_size to {most} or use more text"),
                }
            }
            Self::OutOfRange { start, count, tokens, .. } => {
                write!(
                    f,
                    ": cannot read {count} tokens from {start} on, because it has {tokens}; "
                )?;
                write!(f, "check the batch's settings")
            }
            Self::MetaPickle { source, .. } => write!(f, ": {source}"),
            Self::Meta { what, .. } => write!(f, ": {what}; prepare the data set again"),
            Self::Shape { what } => write!(f, "{what}"),
            Self::State { what } => write!(
                f,
                "cannot resume nanoGPT's stream: {what}; leave that key out, or resume with \
                 --sampler=fitgpt"
            ),
        }
    }
}

impl std::error::Error for DataError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::MetaPickle { source, .. } => Some(source),
            _ => None,
        }
    }
}
