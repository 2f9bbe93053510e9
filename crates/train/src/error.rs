//! What can stop a run, with the exit code that belongs to it.

use std::path::PathBuf;

/// Why a run could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The settings make no run.
    #[error(transparent)]
    Spec(#[from] spec::SpecError),
    /// The run has no plan.
    #[error(transparent)]
    Search(#[from] search::SearchError),
    /// The backend refused or failed.
    #[error(transparent)]
    Backend(#[from] plan::BackendError),
    /// The data set is missing or unusable.
    #[error(transparent)]
    Data(#[from] data::DataError),
    /// A checkpoint could not be written.
    #[error(transparent)]
    Save(#[from] checkpoint::SaveError),
    /// A checkpoint could not be read.
    #[error(transparent)]
    Read(#[from] checkpoint::ReadError),
    /// The disk has no room for the run's checkpoints.
    #[error(
        "{path}: {} needed on its disk, {} free: up to three checkpoints of {} each exist at \
         once (last, its replacement, best); free some space or set another --out_dir",
        size(*needed),
        size(*free),
        size(*bytes)
    )]
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
    #[error(
        "{path} needs {}, but `ulimit -f` allows {} per file: raise it",
        size(*bytes),
        size(*limit)
    )]
    FileLimit {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A file of the run could not be written or read.
    #[error("{path}: cannot {doing}: {error}; {advice}")]
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
    #[error("standard output: {0}; make room or write somewhere else")]
    Output(std::io::Error),
    /// Host memory beside the arena.
    #[error(
        "{bytes} bytes of memory for {what} cannot be allocated; lower batch_size, \
         gradient_accumulation_steps or block_size"
    )]
    HostMemory {
        /// What it is for.
        what: &'static str,
        /// Its size.
        bytes: u128,
    },
    /// The system gives no thread to show and log the run.
    #[error(
        "no thread can be started to show and log the run: {error}; raise the limit \
         (container or `ulimit -u`) or close other programs"
    )]
    Threads {
        /// What the system says.
        error: std::io::Error,
    },
    /// Less memory is free than the program itself takes.
    #[error(
        "only {free} of memory is free, but fitgpt itself needs {wanted}; raise the limit \
         (container or `ulimit -v`) or close other programs"
    )]
    NoMemory {
        /// What is free.
        free: plan::Bytes,
        /// What it takes.
        wanted: plan::Bytes,
    },
    /// The checkpoint does not belong to this run, or is not complete.
    #[error("{path}: {what}")]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// What does not fit, and what to do.
        what: String,
    },
    /// What a checkpoint says besides its tensors cannot be written as JSON.
    #[error("the checkpoint's document: {error}; report this as a bug")]
    Document {
        /// What serde says.
        error: serde_json::Error,
    },
    /// The folder holds another run.
    #[error(
        "{path} holds a run already: add --init_from=resume --out_dir={path} to resume it, or \
         give another --out_dir to start a new one"
    )]
    OutDirInUse {
        /// The folder.
        path: PathBuf,
    },
    /// Another process writes to the folder.
    #[error("another process trains in {path} right now: wait for it, or give another --out_dir")]
    OutDirBusy {
        /// The folder.
        path: PathBuf,
    },
    /// There is nothing to resume or to sample from.
    #[error(
        "{path} holds no checkpoint (last.safetensors, best.safetensors): `fitgpt train` \
         makes one, --out_dir=FOLDER names another folder"
    )]
    NoCheckpoint {
        /// The folder.
        path: PathBuf,
    },
    /// The loss is no number any more.
    #[error(
        "iteration {iteration}: the loss is no number any more (learning rate {lr:.1e}); what \
         was saved is kept: lower learning_rate or lengthen warmup_iters"
    )]
    Diverged {
        /// When it happened.
        iteration: u64,
        /// Learning rate at that time.
        lr: f64,
    },
    /// Weights or moments are no numbers any more, or so large that nothing can be computed with
    /// them.
    #[error(
        "{tensor} has NaN, infinite or overflowing values (for a weight, above 4.6e18); this \
         state was not saved and earlier checkpoints are kept: lower learning_rate or lengthen \
         warmup_iters"
    )]
    Spoilt {
        /// Where it was found.
        tensor: String,
    },
    /// The text that was given cannot be trained on.
    #[error("{what}")]
    Text {
        /// Why, and what to do.
        what: String,
    },
    /// Asked for, and not in this version.
    #[error("{what}")]
    NotYet {
        /// What it is and what to do instead.
        what: String,
    },
    /// A character of the prompt that the model does not know.
    #[error(transparent)]
    Prompt(#[from] data::UnknownCharacter),
    /// Nothing to go on from.
    #[error("the prompt is empty: give at least one token")]
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
            | TrainError::Threads { .. }
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
            TrainError::Document { .. }
            | TrainError::Diverged { .. }
            | TrainError::Spoilt { .. }
            | TrainError::Output(_) => 1,
        }
    }
}

/// A size for people.
fn size(bytes: u64) -> plan::Bytes {
    plan::Bytes::new(bytes.min(i64::MAX as u64)).unwrap_or(plan::Bytes::ZERO)
}
