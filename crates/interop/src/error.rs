//! Why another program's file was not read. Each message names the file and the next move, on one
//! line even when it quotes a damaged file.

use checkpoint::ReadProblem;
use std::io;
use std::path::PathBuf;

/// Why a file was not read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct ForeignError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    #[source]
    pub problem: ForeignProblem,
}

/// What is wrong with another program's file.
#[derive(Debug, thiserror::Error)]
pub enum ForeignProblem {
    /// A file operation failed.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was tried, as in "cannot …".
        doing: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// The file is broken.
    #[error("the file is damaged: {what}; use another copy of it")]
    Damaged {
        /// The contradiction.
        what: String,
    },
    /// The file is whole, but is not read: it holds another model, or asks for more than values.
    #[error("{what}")]
    Refused {
        /// Why, and what to do.
        what: String,
    },
}

impl From<ForeignProblem> for ReadProblem {
    fn from(problem: ForeignProblem) -> ReadProblem {
        match problem {
            ForeignProblem::Io { doing, source } => ReadProblem::Io { doing, source },
            ForeignProblem::Damaged { what } => ReadProblem::Damaged { what },
            ForeignProblem::Refused { what } => ReadProblem::Refused { what },
        }
    }
}
