//! Everything that can stop a run, and the exit code for it.

use interop::ExportError;
use std::path::PathBuf;

/// Why a run could not start or continue.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The settings are invalid.
    #[error(transparent)]
    Spec(#[from] spec::SpecError),
    /// No plan was found for the run.
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
    /// Another program's file could not be read.
    #[error(transparent)]
    Foreign(#[from] interop::ForeignError),
    /// A model could not be written for another program.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// The disk has no room for the run's checkpoints.
    #[error(
        "{path}: {} needed on its disk, {} free: up to {} checkpoints of {} each exist at \
         once (last, its replacement{}); free some space or set another --out_dir",
        size(*needed),
        size(*free),
        if *files == 3 { "three" } else { "two" },
        size(*bytes),
        if *files == 3 { ", best" } else { "" }
    )]
    NoRoom {
        /// The folder.
        path: PathBuf,
        /// How many checkpoints there may be.
        files: u64,
        /// Size of a checkpoint.
        bytes: u64,
        /// Bytes that all checkpoints need in addition to the files that exist already.
        needed: u64,
        /// Bytes free on the disk.
        free: u64,
    },
    /// A checkpoint would be larger than the system lets this process write.
    #[error(
        "{path} needs {}, but `ulimit -f` limits a file to {}: raise the limit",
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
        /// The operation that failed.
        doing: &'static str,
        /// What the system says.
        error: std::io::Error,
        /// What to do next.
        advice: &'static str,
    },
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}; free some space or write somewhere else")]
    Output(std::io::Error),
    /// Host memory outside the arena could not be allocated.
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
    /// The threads of the console and the log could not be started.
    #[error(
        "cannot start the threads that print and log the run: {error}; raise the limit \
         (container or `ulimit -u`) or close other programs"
    )]
    Threads {
        /// What the system says.
        error: std::io::Error,
    },
    /// Less memory is free than the program itself needs.
    #[error(
        "only {free} of memory is free, but fitgpt itself needs {wanted}; raise the limit \
         (container or `ulimit -v`) or close other programs"
    )]
    NoMemory {
        /// Free memory.
        free: plan::Bytes,
        /// Memory that the program needs.
        wanted: plan::Bytes,
    },
    /// The checkpoint does not match this run, or is incomplete.
    #[error("{path}: {what}")]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// What does not match, and what to do.
        what: String,
    },
    /// The checkpoint's document cannot be written as JSON.
    #[error("cannot write the checkpoint's document: {error}; please report this bug")]
    Document {
        /// What serde says.
        error: serde_json::Error,
    },
    /// The folder holds another run.
    #[error(
        "{path} already holds a run: add --init_from=resume --out_dir={path} to resume it, or \
         give another --out_dir to start a new one"
    )]
    OutDirInUse {
        /// The folder.
        path: PathBuf,
    },
    /// Another process is training in the folder.
    #[error("another process is training in {path}: wait for it, or give another --out_dir")]
    OutDirBusy {
        /// The folder.
        path: PathBuf,
    },
    /// A name means no checkpoint.
    #[error("{name} {what}")]
    NoCheckpoint {
        /// The name, as it was given.
        name: String,
        /// Whether it exists, which runs are near it, and what to do.
        what: String,
    },
    /// The loss is NaN or infinite.
    #[error(
        "iteration {iteration}: the loss is NaN or infinite (learning rate {lr:.1e}); earlier \
         checkpoints are kept: lower learning_rate or lengthen warmup_iters"
    )]
    Diverged {
        /// The iteration.
        iteration: u64,
        /// Its learning rate.
        lr: f64,
    },
    /// Weights or moments are NaN or infinite, or so large that computing with them overflows.
    #[error(
        "{tensor} has NaN, infinite or overflowing values (for a weight, above 4.6e18); this \
         state was not saved, and earlier checkpoints are kept: lower learning_rate or lengthen \
         warmup_iters"
    )]
    BrokenWeights {
        /// The first tensor with such values.
        tensor: String,
    },
    /// The given text cannot be trained on.
    #[error("{what}")]
    Text {
        /// Why, and what to do.
        what: String,
    },
    /// A feature that this version lacks.
    #[error("{what}")]
    NotYet {
        /// The feature, and what to do instead.
        what: String,
    },
    /// A character of the prompt is not in the model's vocabulary.
    #[error(transparent)]
    Prompt(#[from] tokenizer::UnknownCharacter),
    /// There is no prompt to continue.
    #[error("the prompt is empty: give at least one token")]
    EmptyPrompt,
}

impl TrainError {
    /// 2 usage or config, 3 does not fit, 4 data or checkpoint, 5 device, 1 anything else.
    pub fn exit_code(&self) -> u8 {
        match self {
            TrainError::Search(
                search::SearchError::DoesNotFit { .. }
                | search::SearchError::TooManySequences { .. },
            ) => 3,
            TrainError::Spec(_)
            | TrainError::Export(
                ExportError::Exists { .. }
                | ExportError::Refused { .. }
                | ExportError::Overflow { .. },
            )
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
            | TrainError::Foreign(_)
            | TrainError::Export(_)
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
            | TrainError::BrokenWeights { .. }
            | TrainError::Output(_) => 1,
        }
    }
}

/// A byte count that prints with a unit.
fn size(bytes: u64) -> plan::Bytes {
    plan::Bytes::new(bytes.min(i64::MAX as u64)).unwrap_or(plan::Bytes::ZERO)
}
