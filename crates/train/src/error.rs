//! What can stop a run, with the exit code that belongs to it.

use std::fmt;
use std::path::PathBuf;

/// Why a run could not start or go on.
#[derive(Debug)]
pub enum TrainError {
    /// The settings make no run.
    Spec(spec::SpecError),
    /// The run has no plan.
    Search(search::SearchError),
    /// The backend refused or failed.
    Backend(plan::BackendError),
    /// The data set is missing or unusable.
    Data(data::DataError),
    /// A checkpoint could not be written.
    Save(checkpoint::SaveError),
    /// A checkpoint could not be read.
    Read(checkpoint::ReadError),
    /// The disk has no room for the run's checkpoints.
    NoRoom {
        /// The folder.
        path: PathBuf,
        /// Size of a checkpoint.
        bytes: u64,
        /// What all of them need, beyond what is there.
        needed: u64,
        /// What is free.
        free: u64,
    },
    /// A checkpoint would be larger than the system lets this process write.
    FileLimit {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A file of the run could not be written or read.
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What the system says.
        error: std::io::Error,
        /// What to do.
        advice: &'static str,
    },
    /// The text that was asked for cannot be written.
    Output(std::io::Error),
    /// Host memory beside the arena.
    HostMemory {
        /// What it is for.
        what: &'static str,
        /// Its size.
        bytes: u128,
    },
    /// Less memory is free than the program itself takes.
    NoMemory {
        /// What is free.
        free: plan::Bytes,
        /// What it takes.
        wanted: plan::Bytes,
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
    /// Another process writes to the folder.
    OutDirBusy {
        /// The folder.
        path: PathBuf,
    },
    /// There is nothing to resume or to sample from.
    NoCheckpoint {
        /// The folder.
        path: PathBuf,
    },
    /// The loss is no number any more.
    Diverged {
        /// When it happened.
        iteration: u64,
        /// Learning rate at that time.
        lr: f64,
    },
    /// Weights or moments are no numbers any more, or so large that nothing can be computed with
    /// them.
    Spoilt {
        /// Where it was found.
        tensor: String,
    },
    /// The text that was given cannot be trained on.
    Text {
        /// Why, and what to do.
        what: String,
    },
    /// Asked for, and not in this version.
    NotYet {
        /// What it is and what to do instead.
        what: String,
    },
    /// A character of the prompt that the model does not know.
    Prompt(data::UnknownCharacter),
    /// Nothing to go on from.
    EmptyPrompt,
}

impl TrainError {
    /// 2 usage or config, 3 does not fit, 4 data or checkpoint, 5 device, 1 else.
    pub fn exit_code(&self) -> u8 {
        match self {
            TrainError::Search(
                search::SearchError::DoesNotFit { .. }
                | search::SearchError::TooManySequences { .. },
            ) => 3,
            TrainError::Spec(_)
            | TrainError::Search(_)
            | TrainError::EmptyPrompt
            | TrainError::Prompt(_)
            | TrainError::NotYet { .. } => 2,
            TrainError::HostMemory { .. }
            | TrainError::NoMemory { .. }
            | TrainError::Backend(plan::BackendError::OutOfMemory { .. }) => 3,
            TrainError::Data(_)
            | TrainError::Text { .. }
            | TrainError::Save(_)
            | TrainError::Read(_)
            | TrainError::NoRoom { .. }
            | TrainError::FileLimit { .. }
            | TrainError::Mismatch { .. }
            | TrainError::NoCheckpoint { .. }
            | TrainError::OutDirInUse { .. }
            | TrainError::OutDirBusy { .. }
            | TrainError::Io { .. } => 4,
            TrainError::Backend(_) => 5,
            TrainError::Diverged { .. } | TrainError::Spoilt { .. } | TrainError::Output(_) => 1,
        }
    }
}

impl fmt::Display for TrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrainError::Spec(error) => error.fmt(f),
            TrainError::Search(error) => error.fmt(f),
            TrainError::Backend(error) => error.fmt(f),
            TrainError::Data(error) => error.fmt(f),
            TrainError::Save(error) => error.fmt(f),
            TrainError::Read(error) => error.fmt(f),
            TrainError::NoRoom { path, bytes, needed, free } => write!(
                f,
                "{}: {} needed on its disk, {} free: up to three checkpoints of {} each exist at \
                 once (last, its replacement, best); free some space or set another --out_dir",
                path.display(),
                size(*needed),
                size(*free),
                size(*bytes)
            ),
            TrainError::FileLimit { path, bytes, limit } => write!(
                f,
                "{} needs {}, but `ulimit -f` allows {} per file: raise it",
                path.display(),
                size(*bytes),
                size(*limit)
            ),
            TrainError::Io { path, doing, error, advice } => {
                write!(f, "{}: cannot {doing}: {error}; {advice}", path.display())
            }
            TrainError::Output(error) => {
                write!(f, "standard output: {error}; make room or write somewhere else")
            }
            TrainError::HostMemory { what, bytes } => write!(
                f,
                "{bytes} bytes of memory for {what} cannot be had; lower batch_size, \
                 gradient_accumulation_steps or block_size"
            ),
            TrainError::NoMemory { free, wanted } => write!(
                f,
                "only {free} of memory is free, but fitgpt itself needs {wanted}; raise the limit \
                 (container or `ulimit -v`) or close other programs"
            ),
            TrainError::Mismatch { path, what } => write!(f, "{}: {what}", path.display()),
            TrainError::OutDirInUse { path } => write!(
                f,
                "{} holds a run already: add --init_from=resume --out_dir={} to resume it, or give \
                 another --out_dir to start a new one",
                path.display(),
                path.display()
            ),
            TrainError::OutDirBusy { path } => write!(
                f,
                "another process trains in {} right now: wait for it, or give another --out_dir",
                path.display()
            ),
            TrainError::NoCheckpoint { path } => write!(
                f,
                "{} holds no checkpoint (last.safetensors, best.safetensors): `fitgpt train` \
                 makes one, --out_dir=FOLDER names another folder",
                path.display()
            ),
            TrainError::Diverged { iteration, lr } => write!(
                f,
                "iteration {iteration}: the loss is no number any more (learning rate {lr:.1e}); \
                 what was saved is kept: lower learning_rate or lengthen warmup_iters"
            ),
            TrainError::Spoilt { tensor } => write!(
                f,
                "{tensor} has NaN, infinite or overflowing values (for a weight, above 4.6e18); \
                 this state was not saved and earlier checkpoints are kept: lower learning_rate or \
                 lengthen warmup_iters"
            ),
            TrainError::Text { what } | TrainError::NotYet { what } => f.write_str(what),
            TrainError::Prompt(error) => error.fmt(f),
            TrainError::EmptyPrompt => f.write_str("the prompt is empty: give at least one token"),
        }
    }
}

/// A size for people.
fn size(bytes: u64) -> plan::Bytes {
    plan::Bytes::new(bytes.min(i64::MAX as u64)).unwrap_or(plan::Bytes::ZERO)
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
    Search: search::SearchError,
    Backend: plan::BackendError,
    Data: data::DataError,
    Prompt: data::UnknownCharacter,
    Save: checkpoint::SaveError,
    Read: checkpoint::ReadError,
}
