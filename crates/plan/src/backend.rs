//! The contract between a plan and what executes it. A backend knows the plan and nothing else;
//! what changes from step to step is [`StepInputs`] (host) and [`StepState`] (device).

use crate::arena::Plan;
use crate::bytes::Bytes;
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

/// Scalars that live on the device between steps and in the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepState {
    /// Updates done so far: Adam's t.
    pub adam_t: u64,
    /// What the loss is multiplied by before the backward pass.
    pub loss_scale: f32,
    /// Clean updates since the scale last changed.
    pub growth: u32,
    /// Whether the last norm was inf or nan.
    pub found_inf: bool,
    /// Norm of the last update's gradients, unscaled and before clipping.
    pub grad_norm: f32,
    /// What the last update multiplied gradients by: clip factor over loss scale.
    pub grad_multiplier: f32,
    /// Whether the last update was skipped.
    pub skipped: bool,
}

impl StepState {
    /// Words in its tensor. More than the fields need, so that fields can join.
    pub const WORDS: usize = 16;

    /// Before the first update.
    pub fn initial(loss_scale: f32) -> StepState {
        StepState {
            adam_t: 0,
            loss_scale,
            growth: 0,
            found_inf: false,
            grad_norm: 0.0,
            grad_multiplier: 0.0,
            skipped: false,
        }
    }

    /// The tensor's content.
    pub fn to_words(&self) -> [u32; StepState::WORDS] {
        let mut words = [0; StepState::WORDS];
        words[0] = self.adam_t as u32;
        words[1] = (self.adam_t >> 32) as u32;
        words[2] = self.loss_scale.to_bits();
        words[3] = self.growth;
        words[4] = u32::from(self.found_inf);
        words[5] = self.grad_norm.to_bits();
        words[6] = self.grad_multiplier.to_bits();
        words[7] = u32::from(self.skipped);
        words
    }

    /// From the tensor's content.
    pub fn from_words(words: &[u32; StepState::WORDS]) -> StepState {
        StepState {
            adam_t: u64::from(words[0]) | u64::from(words[1]) << 32,
            loss_scale: f32::from_bits(words[2]),
            growth: words[3],
            found_inf: words[4] != 0,
            grad_norm: f32::from_bits(words[5]),
            grad_multiplier: f32::from_bits(words[6]),
            skipped: words[7] != 0,
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

/// Executes one plan. Making one obtains all memory; nothing after that does.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_survives_its_words() {
        let state = StepState {
            adam_t: 0x1_2345_6789,
            loss_scale: 65536.0,
            growth: 1999,
            found_inf: true,
            grad_norm: 0.25,
            grad_multiplier: -1.5,
            skipped: true,
        };
        assert_eq!(StepState::from_words(&state.to_words()), state);
    }
}
