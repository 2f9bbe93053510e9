//! Errors in data files. Each message is one line with the file, the number and the next move.

use pickle::PickleError;
use std::io;
use std::path::{Path, PathBuf};

/// Why data cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The operating system refused.
    #[error("{path}: cannot {action}: {source}; check the path and its permissions")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// A data set, or one half of it, is missing.
    #[error("{dir}{}", missing(dir, *dir_exists, looked_for, maker))]
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
    #[error("{path} is empty (0 bytes); copy or prepare it again")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A headerless file that ends inside a token.
    #[error(
        "{path} has {bytes} bytes, but tokens are 2 bytes each: it is truncated or not a token \
         file; copy or prepare it again"
    )]
    OddSize {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// A file of another kind.
    #[error("{path} is not a token file: it looks like {kind}; {advice}")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it looks like.
        kind: &'static str,
        /// What to do instead.
        advice: &'static str,
    },
    /// A shard of an unknown version.
    #[error(
        "{path} is a shard of version {version}, but only version 1 can be read; prepare it \
         again"
    )]
    ShardVersion {
        /// The file.
        path: PathBuf,
        /// The version in its header.
        version: i32,
    },
    /// A shard whose size contradicts its header.
    #[error(
        "{path} has {bytes} bytes, but its header promises {promised} tokens, which take {}; \
         copy or prepare it again",
        i128::from(*promised) * 2 + 1024
    )]
    ShardLength {
        /// The file.
        path: PathBuf,
        /// Tokens that the header announces.
        promised: i64,
        /// Bytes that the file has.
        bytes: u64,
    },
    /// A file that became shorter since it was opened.
    #[error(
        "{path} became shorter while it was in use: token {token} is gone; prepare it again and \
         resume"
    )]
    Shrunk {
        /// The file.
        path: PathBuf,
        /// The token that could not be read, counted from the start of the file.
        token: u64,
    },
    /// An id that has no row in the model's embedding.
    #[error(
        "{path}: token {token} is {id}, but vocab_size is {vocab_size} (ids 0 to {}); use the \
         vocabulary it was made with, or prepare it again",
        vocab_size.saturating_sub(1)
    )]
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
    #[error(
        "{path} has {tokens} tokens, but block_size={block_size} needs at least {}",
        enough_tokens(*tokens, *block_size)
    )]
    TooShort {
        /// The file, or the name of a stream in memory.
        path: PathBuf,
        /// Tokens there are.
        tokens: u64,
        /// Tokens of a sequence.
        block_size: u64,
    },
    /// A read beyond the last token.
    #[error(
        "{path}: cannot read {count} tokens from token {start}, because it has {tokens}; check \
         the batch's settings"
    )]
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
    #[error("{path}: {source}")]
    MetaPickle {
        /// The file.
        path: PathBuf,
        /// Why.
        source: PickleError,
    },
    /// A `meta.pkl` that does not describe a vocabulary.
    #[error("{path}: {what}; prepare the data set again")]
    Meta {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Buffers or settings that do not fit each other.
    #[error("{what}")]
    Shape {
        /// What is wrong, with its numbers.
        what: String,
    },
    /// A sampler's state that no run can have.
    #[error(
        "cannot resume nanoGPT's stream: {what}; leave that key out, or resume with \
         --sampler=fitgpt"
    )]
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

/// The message for a folder without data.
fn missing(dir: &Path, dir_exists: bool, looked_for: &str, maker: &str) -> String {
    if dir.is_file() {
        return format!(" is a file: name its folder, which holds {looked_for} ({maker})");
    }
    let place = if dir_exists { "holds no" } else { "does not exist: no" };
    format!(" {place} {looked_for}; {maker}; `fitgpt train TEXT` trains on a text of your own")
}

/// How many tokens would do, and what would do with those there are.
fn enough_tokens(tokens: u64, block_size: u64) -> String {
    let needed = u128::from(block_size) + 1;
    match tokens.saturating_sub(1) {
        0 => format!("{needed}; use more text"),
        most => format!("{needed}; lower block_size to {most} or use more text"),
    }
}
