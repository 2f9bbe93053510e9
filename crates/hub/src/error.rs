//! Errors of downloads. Each message is one line with the address or file and the next move.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a file could not be downloaded.
#[derive(Debug)]
pub enum HubError {
    /// The operating system refused.
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// A server did not deliver the requested data.
    Network {
        /// The address.
        url: String,
        /// What happened, with the next move.
        what: String,
    },
    /// Something is wrong with a file or folder of this machine.
    Local {
        /// The folder or file.
        path: PathBuf,
        /// What is wrong, with the next move.
        what: String,
    },
    /// The name is not that of a repository, or it cannot be had without a network.
    Model {
        /// The name, as it was typed.
        name: String,
        /// What is wrong, with the next move.
        what: String,
    },
    /// The user stopped it.
    Stopped,
}

/// A result with this crate's error.
pub type Result<T> = std::result::Result<T, HubError>;

impl HubError {
    /// For `map_err` on a call of the operating system.
    pub(crate) fn io(path: &Path, doing: &'static str) -> impl Fn(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path: path.clone(), doing, source }
    }

    pub(crate) fn network(url: &str, what: impl Into<String>) -> Self {
        Self::Network { url: url.to_owned(), what: what.into() }
    }
}

/// Most characters of a quoted text.
const QUOTED: usize = 600;

/// A text from a server or a file as a message may quote it: on one line, and not too long.
#[must_use]
pub fn quoted(text: &str) -> String {
    let shown: String = text.chars().take(QUOTED).collect();
    let end = if shown.len() < text.len() { " …" } else { "" };
    shown.replace(char::is_control, " ") + end
}

/// The message about a call of the operating system that failed, with the next move.
#[must_use]
pub fn io_message(path: &Path, doing: &str, source: &io::Error) -> String {
    let advice = match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "the disk is full: make room and run the same command again to resume"
        }
        _ => "check the path and its permissions",
    };
    format!("{}: cannot {doing}: {source}; {advice}", path.display())
}

impl fmt::Display for HubError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, doing, source } => f.write_str(&io_message(path, doing, source)),
            Self::Network { url, what } => write!(f, "{}: {}", quoted(url), quoted(what)),
            Self::Local { path, what } => write!(f, "{}: {}", path.display(), quoted(what)),
            Self::Model { name, what } => write!(f, "{}: {}", quoted(name), quoted(what)),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

impl std::error::Error for HubError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
