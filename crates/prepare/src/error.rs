//! Errors of a preparation. Each message is one line with the file, the number and the next move.

use hub::{HubError, quoted};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why token files could not be made.
#[derive(Debug)]
pub enum PrepareError {
    /// The request is invalid; nothing was changed.
    Usage(String),
    /// The operating system refused.
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// A source is not what its name says, or is damaged.
    Source {
        /// The file, as the user knows it.
        name: String,
        /// What is wrong with it, with the next move.
        what: String,
    },
    /// A server did not deliver the requested data.
    Network {
        /// The address.
        url: String,
        /// What happened, with the next move.
        what: String,
    },
    /// The system is out of a resource such as threads.
    System(String),
    /// The folder holds another data set, which is only replaced with `--overwrite`.
    OtherDataSet {
        /// The folder.
        path: PathBuf,
    },
    /// Something is wrong with the output folder.
    Output {
        /// The folder or file.
        path: PathBuf,
        /// What is wrong, with the next move.
        what: String,
    },
}

/// A result with this crate's error.
pub type Result<T> = std::result::Result<T, PrepareError>;

impl PrepareError {
    /// For `map_err` on a call of the operating system.
    pub(crate) fn io(path: &Path, doing: &'static str) -> impl Fn(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path: path.clone(), doing, source }
    }

    /// A source that is not what it should be.
    pub(crate) fn source(name: &str, what: impl Into<String>) -> Self {
        Self::Source { name: name.to_owned(), what: what.into() }
    }
}

impl From<HubError> for PrepareError {
    fn from(error: HubError) -> PrepareError {
        match error {
            HubError::Io { path, doing, source } => Self::Io { path, doing, source },
            HubError::Network { url, what } => Self::Network { url, what },
            HubError::Local { path, what } => Self::Output { path, what },
            HubError::Model { name, what } => Self::Source { name, what },
            HubError::Stopped => Self::Usage("stopped".to_owned()), // never shown
        }
    }
}

impl fmt::Display for PrepareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::System(text) => f.write_str(text),
            Self::Io { path, doing, source } => f.write_str(&hub::io_message(path, doing, source)),
            Self::Source { name, what: text } => write!(f, "{}: {}", quoted(name), quoted(text)),
            Self::Network { url, what: text } => write!(f, "{}: {}", quoted(url), quoted(text)),
            Self::OtherDataSet { path } => write!(
                f,
                "{}: holds a data set made with other settings; give another --out, or --overwrite",
                path.display()
            ),
            Self::Output { path, what: text } => write!(f, "{}: {}", path.display(), quoted(text)),
        }
    }
}

impl std::error::Error for PrepareError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
