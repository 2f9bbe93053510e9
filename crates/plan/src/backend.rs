//! The contract between a plan and what executes it. A backend knows the plan and nothing else;
//! what changes from step to step is [`StepInputs`] (host) and [`crate::StepState`] (device).

use crate::arena::Plan;
use crate::bytes::Bytes;
use crate::defect::Defect;
use crate::ops::Op;
use crate::schedule::SegmentId;
use crate::tensor::{TensorId, Tensors};
use std::fmt;

/// What a backend needs beside an op's own operands: packed panels, a BLAS workspace, tiles. Asked
/// while the schedule is built, so that scratch is a tensor like any other and has one formula.
pub trait Scratch: fmt::Debug {
    /// Bytes for this op, 0 for none; `None` when they do not fit 63 bits. The op's `workspace`
    /// operand has no size yet.
    fn bytes(&self, op: &Op, tensors: &Tensors) -> Option<Bytes>;
}

/// A backend that needs nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoScratch;

impl Scratch for NoScratch {
    fn bytes(&self, _: &Op, _: &Tensors) -> Option<Bytes> {
        Some(Bytes::ZERO)
    }
}

/// What the host gives each run of a segment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepInputs {
    /// Learning rate of this update.
    pub lr: f64,
    /// Largest gradient norm; 0 = no clipping.
    pub grad_clip: f64,
    /// Iteration, for the dropout stream.
    pub iteration: u64,
    /// Seed, for the dropout stream.
    pub seed: u64,
    /// Index of the slice's first sequence among those of the iteration.
    pub first_row: u64,
    /// 1 / valid targets of the whole iteration.
    pub inverse_tokens: f32,
    /// Decode: position of the new token. Prefill: position whose logits are wanted.
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
    /// The plan has a defect; it was not loaded.
    BadPlan {
        /// The first defects found.
        defects: String,
    },
    /// The arena could not be obtained.
    OutOfMemory {
        /// What was asked for.
        wanted: Bytes,
    },
    /// The plan asks for something this backend does not execute.
    Unsupported {
        /// What it is.
        what: String,
    },
    /// A host buffer has the wrong size, or the tensor has no place outside a segment's run.
    HostAccess {
        /// The tensor and the sizes.
        what: String,
    },
    /// A value given for this run is outside what the plan allows.
    BadInput {
        /// The value and its limit.
        what: &'static str,
        /// What was given.
        given: i64,
        /// The first value that is not allowed.
        limit: i64,
    },
    /// It cannot be done here and now, and nothing has failed: memory that others hold, a library
    /// that is missing.
    Refused {
        /// What, and what to do.
        what: String,
    },
    /// The device failed.
    Device {
        /// Its words.
        what: String,
    },
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackendError::BadPlan { defects } => write!(f, "the plan is not sound: {defects}"),
            BackendError::OutOfMemory { wanted } => {
                let bytes = wanted.get();
                write!(f, "an arena of {wanted} ({bytes} bytes) cannot be had; ")?;
                f.write_str("lower batch_size, block_size or the model, or free memory")
            }
            BackendError::Unsupported { what } => write!(f, "not supported here: {what}"),
            BackendError::HostAccess { what } => f.write_str(what),
            BackendError::BadInput { what, given, limit } => {
                write!(f, "{what} is {given}, it must be 0 or more and below {limit}")
            }
            BackendError::Refused { what } => f.write_str(what),
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

/// Executes one plan. It is made from a [`crate::Proved`] plan and obtains all memory then; nothing
/// after that does.
///
/// Run-wide tensors can be written and read at any time between runs. What a phase keeps lasts
/// while segments of that phase run one after another, and is NaN when the phase is entered again.
/// A segment's own inputs and outputs share bytes with other segments': every input is written
/// right before the segment runs, an output is read right after, and what another write or run has
/// made stale is refused.
pub trait Backend: Send {
    /// The plan it was made for.
    fn plan(&self) -> &Plan;

    /// Bytes obtained for the plan's tensors: [`Plan::arena_bytes`], unless the backend was asked
    /// to keep tensors apart.
    fn arena_bytes(&self) -> Bytes;

    /// Fills a part of a tensor from the host, from byte `offset` on: little-endian elements.
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

    /// What the backend chose beside the plan and what decides its bits, by name: algorithms of
    /// products. The same choices given again give the same bits.
    fn choices(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Fills a whole tensor; `content` has exactly its size.
    fn write(&mut self, tensor: TensorId, content: &[u8]) -> Result<(), BackendError> {
        whole(self.plan(), tensor, content.len())?;
        self.write_at(tensor, 0, content)
    }

    /// Copies a whole tensor; `content` has exactly its size.
    fn read(&mut self, tensor: TensorId, content: &mut [u8]) -> Result<(), BackendError> {
        whole(self.plan(), tensor, content.len())?;
        self.read_at(tensor, 0, content)
    }

    /// Runs a segment's steps in order.
    fn run(&mut self, segment: SegmentId, inputs: &StepInputs) -> Result<(), BackendError>;

    /// The same, with the seconds that each step took.
    fn run_timed(
        &mut self,
        segment: SegmentId,
        inputs: &StepInputs,
    ) -> Result<Vec<f64>, BackendError>;
}

/// The host's buffer and the tensor have the same size.
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
