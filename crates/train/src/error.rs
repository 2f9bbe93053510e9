//! What can stop a run, with the exit code that belongs to it.

use std::fmt;
use std::path::PathBuf;

/// Why a run could not start or go on.
#[derive(Debug)]
pub enum TrainError {
    /// The settings make no run.
    Spec(spec::SpecError),
    /// The backend refused or failed.
    Backend(plan::BackendError),
    /// A checkpoint could not be written.
    Save(checkpoint::SaveError),
    /// A checkpoint could not be read.
    Read(checkpoint::ReadError),
    /// A file of the run could not be written or read.
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// The checkpoint does not belong to this run, or is not complete.
    Mismatch {
        /// The file.
        path: PathBuf,
        /// What does not fit, and what to do.
        what: String,
    },
    /// The folder holds another run.
    OutDirInUse {
        /// The folder.
        path: PathBuf,
    },
    /// Nothing to go on from.
    EmptyPrompt,
}

impl TrainError {
    /// 2 usage or config, 3 does not fit, 4 data or checkpoint, 5 device, 1 else.
    pub fn exit_code(&self) -> u8 {
        match self {
            TrainError::Spec(_) | TrainError::EmptyPrompt => 2,
            TrainError::Backend(plan::BackendError::OutOfMemory { .. }) => 3,
            TrainError::Save(_)
            | TrainError::Read(_)
            | TrainError::Mismatch { .. }
            | TrainError::OutDirInUse { .. } => 4,
            TrainError::Backend(_) => 5,
            TrainError::Io { .. } => 1,
        }
    }
}

impl fmt::Display for TrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrainError::Spec(error) => error.fmt(f),
            TrainError::Backend(error) => error.fmt(f),
            TrainError::Save(error) => error.fmt(f),
            TrainError::Read(error) => error.fmt(f),
            TrainError::Io { path, error } => write!(f, "{}: {error}", path.display()),
            TrainError::Mismatch { path, what } => write!(f, "{}: {what}", path.display()),
            TrainError::OutDirInUse { path } => write!(
                f,
                "{} holds a run already: --init_from=resume goes on with it, another --out_dir \
                 starts a new one",
                path.display()
            ),
            TrainError::EmptyPrompt => f.write_str("the prompt is empty: give at least one token"),
        }
    }
}

impl std::error::Error for TrainError {}

macro_rules! from {
    ($($variant:ident: $error:ty),+ $(,)?) => {
        $(impl From<$error> for TrainError {
            fn from(error: $error) -> TrainError {
                TrainError::$variant(error)
            }
        })+
    };
}

from! {
    Spec: spec::SpecError,
    Backend: plan::BackendError,
    Save: checkpoint::SaveError,
    Read: checkpoint::ReadError,
}
