//! The contract between a plan and the backend that executes it. A backend knows the plan and
//! nothing else. What changes from step to step is in [`StepInputs`] (on the host) and
//! [`crate::StepState`] (on the device).

use crate::arena::Plan;
use crate::bytes::Bytes;
use crate::defect::Defect;
use crate::ops::Op;
use crate::schedule::SegmentId;
use crate::tensor::{TensorId, Tensors};
use std::fmt;

/// What a schedule must know of a backend. First, the memory that it needs in addition to an op's
/// operands: packed panels, a BLAS workspace, tiles. The builder asks for it, so that scratch is a
/// tensor like any other and its size has one formula.
pub trait Scratch: fmt::Debug {
    /// Bytes for this op, 0 for none, `None` when they do not fit 63 bits. The op's `workspace`
    /// operand does not have its size yet.
    fn bytes(&self, op: &Op, tensors: &Tensors) -> Option<Bytes>;

    /// Rows of the head's weight for a vocabulary: at least that many, more where matmuls of such
    /// a size are faster.
    fn head_rows(&self, vocabulary: u64) -> u64 {
        vocabulary
    }

    /// Whether this op, a linear layer or its gradient joined with what stands next to it (`fuse`),
    /// is faster than the two one after the other. Every backend computes the joined form.
    fn computes_joined(&self, _: &Op, _: &Tensors) -> bool {
        false
    }
}

/// For a backend that needs no scratch.
#[derive(Clone, Copy, Debug)]
pub struct NoScratch;

impl Scratch for NoScratch {
    fn bytes(&self, _: &Op, _: &Tensors) -> Option<Bytes> {
        Some(Bytes::ZERO)
    }
}

/// What the host passes to each run of a segment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepInputs {
    /// Learning rate of this update.
    pub lr: f64,
    /// Largest gradient norm; 0 disables clipping.
    pub grad_clip: f64,
    /// Iteration, for the dropout stream.
    pub iteration: u64,
    /// Seed, for the dropout stream.
    pub seed: u64,
    /// Index of the slice's first sequence within the iteration.
    pub first_row: u64,
    /// 1 / number of valid targets in the whole iteration.
    pub inverse_tokens: f32,
    /// Decode: position of the new token. Prefill: position whose logits are returned.
    pub position: u64,
}

impl Default for StepInputs {
    fn default() -> StepInputs {
        StepInputs {
            lr: 0.0,
            grad_clip: 0.0,
            iteration: 0,
            seed: 0,
            first_row: 0,
            inverse_tokens: 1.0,
            position: 0,
        }
    }
}

/// Why a backend could not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendError {
    /// The plan has defects and was not loaded.
    BadPlan {
        /// The first defects found.
        defects: String,
    },
    /// The arena could not be allocated.
    OutOfMemory {
        /// Bytes that were asked for.
        wanted: Bytes,
    },
    /// The plan contains something that this backend does not execute.
    Unsupported {
        /// What it is.
        what: String,
    },
    /// A host buffer has the wrong size, or the tensor's bytes are not valid outside a segment's
    /// run.
    HostAccess {
        /// The tensor and the sizes.
        what: String,
    },
    /// A value passed to this run is outside the range that the plan allows.
    BadInput {
        /// The value and its limit.
        what: &'static str,
        /// What was given.
        given: i64,
        /// The first value that is not allowed.
        limit: i64,
    },
    /// It cannot be done now, although the device works: other programs hold the memory, or a
    /// library is missing.
    Refused {
        /// What was refused, and what the user can do.
        what: String,
    },
    /// The backend's own parts contradict each other.
    Internal {
        /// Where, and how.
        what: String,
    },
    /// The device failed.
    Device {
        /// The device's error message.
        what: String,
    },
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackendError::BadPlan { defects } => write!(f, "the plan is not sound: {defects}"),
            BackendError::OutOfMemory { wanted } => {
                let bytes = wanted.get();
                write!(f, "an arena of {wanted} ({bytes} bytes) cannot be allocated; ")?;
                f.write_str("lower batch_size, block_size or the model, or free memory")
            }
            BackendError::Unsupported { what } => write!(f, "not supported here: {what}"),
            BackendError::HostAccess { what } => f.write_str(what),
            BackendError::BadInput { what, given, limit } => {
                write!(f, "{what} is {given}, it must be 0 or more and below {limit}")
            }
            BackendError::Refused { what } => f.write_str(what),
            BackendError::Internal { what } => write!(f, "a bug in fitGPT: {what}"),
            BackendError::Device { what } => write!(f, "the device failed: {what}"),
        }
    }
}

impl std::error::Error for BackendError {}

impl From<Vec<Defect>> for BackendError {
    fn from(defects: Vec<Defect>) -> BackendError {
        let first: Vec<String> = defects.iter().take(3).map(ToString::to_string).collect();
        BackendError::BadPlan { defects: first.join("; ") }
    }
}

/// A part of a tensor on its way to the host, from [`Backend::read_later`] to [`Backend::arrived`].
/// It is reused, so that reading allocates only at first.
#[derive(Debug, Default)]
pub struct LateRead {
    /// The bytes, once they have arrived.
    pub content: Vec<u8>,
    /// Where the backend keeps them until then; none: they have arrived.
    pub slot: Option<usize>,
}

/// Executes one plan. A backend is made from a [`crate::Proved`] plan and allocates all memory
/// then, and none afterwards.
///
/// Run-wide tensors can be written and read at any time between runs. Tensors of a phase last while
/// segments of that phase run one after another, and are NaN when the phase is entered again. A
/// segment's inputs and outputs share bytes with those of other segments. So the caller writes
/// every input right before the segment runs and reads an output right after; a backend refuses to
/// read bytes that another write or run has overwritten.
pub trait Backend: Send {
    /// The plan it was made for.
    fn plan(&self) -> &Plan;

    /// Bytes allocated for the plan's tensors: [`Plan::arena_bytes`], unless the backend was asked
    /// to give each tensor its own allocation.
    fn arena_bytes(&self) -> Bytes;

    /// Copies host bytes into a part of a tensor, from byte `offset` on. Elements are
    /// little-endian.
    fn write_at(
        &mut self,
        tensor: TensorId,
        offset: u64,
        content: &[u8],
    ) -> Result<(), BackendError>;

    /// Copies a part of a tensor to the host, from byte `offset` on.
    fn read_at(
        &mut self,
        tensor: TensorId,
        offset: u64,
        content: &mut [u8],
    ) -> Result<(), BackendError>;

    /// Starts to read a part of a tensor as it is after the segments that were run so far.
    /// [`Backend::arrived`] returns it, also if other segments have run since. A backend that runs
    /// segments at once, or that has no room, reads at once.
    fn read_later(
        &mut self,
        tensor: TensorId,
        offset: u64,
        bytes: usize,
        late: &mut LateRead,
    ) -> Result<(), BackendError> {
        late.slot = None;
        late.content.resize(bytes, 0);
        self.read_at(tensor, offset, &mut late.content)
    }

    /// Waits until the bytes have arrived.
    fn arrived<'a>(&mut self, late: &'a mut LateRead) -> Result<&'a [u8], BackendError> {
        Ok(&late.content)
    }

    /// Choices outside the plan that decide the bits of the results, by name: the algorithms of
    /// matmuls. A backend that is given the same choices computes the same bits.
    fn choices(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Writes a whole tensor; `content` must have exactly its size.
    fn write(&mut self, tensor: TensorId, content: &[u8]) -> Result<(), BackendError> {
        whole(self.plan(), tensor, content.len())?;
        self.write_at(tensor, 0, content)
    }

    /// Reads a whole tensor; `content` must have exactly its size.
    fn read(&mut self, tensor: TensorId, content: &mut [u8]) -> Result<(), BackendError> {
        whole(self.plan(), tensor, content.len())?;
        self.read_at(tensor, 0, content)
    }

    /// Runs a segment's steps: those of a lane in order, and each after the steps that it waits
    /// for. Waits order the steps of one segment only, so no step starts before the segment that
    /// ran last has ended on all lanes.
    fn run(&mut self, segment: SegmentId, inputs: &StepInputs) -> Result<(), BackendError>;

    /// As [`Backend::run`]; also returns the seconds that each step took.
    fn run_timed(
        &mut self,
        segment: SegmentId,
        inputs: &StepInputs,
    ) -> Result<Vec<f64>, BackendError>;
}

/// Checks that the host's buffer is as large as the tensor.
fn whole(plan: &Plan, tensor: TensorId, given: usize) -> Result<(), BackendError> {
    let tensors = &plan.schedule.tensors;
    let bytes = tensors.bytes(tensor).get();
    if bytes == given as u64 {
        return Ok(());
    }
    let name = &tensors.get(tensor).name;
    let what = format!("tensor {name} has {bytes} bytes, the host gave {given}");
    Err(BackendError::HostAccess { what })
}
