//! The host's buffers outside the arena, in one table of sizes. The bill prints it, the budget
//! counts it, and `train` allocates from it.

use crate::machine::Machine;
use model::Program;
use plan::exchange::staged_bytes;
use plan::{Bytes, Dtype, Schedule};
use spec::{Connection, RunSpec};

/// Bytes of each buffer that the host keeps for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostBytes {
    /// Tokens and targets of an iteration.
    pub train_batch: Bytes,
    /// Tokens and targets of an evaluation batch.
    pub eval_batch: Bytes,
    /// The largest tensor of a checkpoint, as f32: a checkpoint may store it in f32 even if the run
    /// computes in another format.
    pub checkpoint_tensor: Bytes,
    /// The outer step of ranks that train alone: all weights and their momentum, this rank's shard
    /// of averages, and the largest parameter twice.
    pub outer_step: Bytes,
    /// What travels between ranks of GPUs by MPI passes through here.
    pub staging: Bytes,
}

impl HostBytes {
    /// Bytes of a token and its target.
    pub const PER_TOKEN: u64 = 2 * Dtype::I32.size();

    /// The buffers of a program. Without training and evaluation there are no batches.
    pub fn new(run: &RunSpec, program: &Program, schedule: &Schedule) -> HostBytes {
        let tensors = &schedule.tensors;
        let has_batches = program.update.is_some() || !program.eval.is_empty();
        let batch = |tokens: u64| match has_batches {
            true => saturated(tokens.saturating_mul(HostBytes::PER_TOKEN)),
            false => Bytes::ZERO,
        };
        let weights = program.parameters.iter().map(|row| row.weight);
        let elements = weights.chain([program.state]).map(|id| tensors.get(id).shape.elements());
        let largest = elements.max().unwrap_or(0);
        let outer = match (program.sharing.averages, program.gradients) {
            (true, Some(gradients)) => {
                let all = tensors.get(gradients).shape.elements();
                let shard = if program.averaging.is_some() { program.shard.elements } else { 0 };
                let flat = all.saturating_mul(2).saturating_add(shard);
                flat.saturating_add(largest.saturating_mul(2))
            }
            _ => 0,
        };
        HostBytes {
            train_batch: batch(run.tokens_per_rank()),
            eval_batch: batch(run.eval_batch_size.saturating_mul(run.eval_block_size)),
            checkpoint_tensor: saturated(largest.saturating_mul(Dtype::F32.size())),
            outer_step: saturated(outer.saturating_mul(Dtype::F32.size())),
            staging: match run.ranks.backend {
                Connection::Mpi => saturated(staged_bytes(schedule)),
                Connection::Auto | Connection::Nccl | Connection::Gloo => Bytes::ZERO,
            },
        }
    }

    /// The same on a machine: where the device is the host, nothing passes through a buffer.
    pub(crate) fn on(self, machine: &Machine) -> HostBytes {
        match machine.host {
            Some(_) => self,
            None => HostBytes { staging: Bytes::ZERO, ..self },
        }
    }

    /// The rows of the bill.
    pub fn rows(&self) -> Vec<(&'static str, Bytes)> {
        let batches = self.train_batch.get().saturating_add(self.eval_batch.get());
        let mut rows =
            vec![("batches", saturated(batches)), ("buffer for saving", self.checkpoint_tensor)];
        let more = [("outer step", self.outer_step), ("between ranks", self.staging)];
        rows.extend(more.into_iter().filter(|(_, bytes)| *bytes > Bytes::ZERO));
        rows
    }

    /// The sum of all buffers.
    pub fn total(&self) -> u64 {
        self.rows().into_iter().map(|(_, bytes)| bytes.get()).fold(0, u64::saturating_add)
    }
}

fn saturated(bytes: u64) -> Bytes {
    Bytes::new(bytes.min(i64::MAX as u64)).unwrap_or(Bytes::ZERO)
}
