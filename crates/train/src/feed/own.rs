//! Our own batches: a pure function of seed, use, iteration and micro-step. There is no state to
//! save, and evaluation cannot change training's batches.

use super::Feed;
use crate::engine::Rows;
use crate::error::TrainError;
use crate::host::room;
use data::{Batch, BatchSampler, Dataset, Split, Use, fill_rows};
use plan::Rank;
use serde_json::Value;
use spec::RunSpec;

/// Draws batches of a data set.
pub struct OwnFeed<'a> {
    dataset: &'a Dataset,
    sampler: BatchSampler,
    batch_size: usize,
    /// Sequences of a group, and which groups are this rank's.
    group: usize,
    rank: Rank,
    starts: Vec<u64>,
}

impl<'a> OwnFeed<'a> {
    /// The feed of a run.
    pub fn new(spec: &RunSpec, dataset: &'a Dataset) -> Result<OwnFeed<'a>, TrainError> {
        let starts = room(spec.batch_size.max(spec.eval_batch_size), "batches")?;
        let (sampler, batch_size) = (BatchSampler { seed: spec.seed }, spec.batch_size as usize);
        let (group, rank) = (spec.sequences_per_group().max(1) as usize, spec.rank);
        Ok(OwnFeed { dataset, sampler, batch_size, group, rank, starts })
    }

    fn fill(
        &mut self,
        batch: Batch,
        positions: usize,
        tokens: &mut [i32],
        targets: &mut [i32],
    ) -> Result<(), TrainError> {
        let stream = self.dataset.split(batch.purpose.split());
        let starts = &mut self.starts[..tokens.len() / positions];
        self.sampler.starts(batch, stream, positions as u64, starts)?;
        Ok(fill_rows(stream, starts, tokens, targets)?)
    }
}

impl OwnFeed<'_> {
    /// The sequences of an iteration from number `first` on, which are the same on any rank.
    fn fill_group(
        &mut self,
        iteration: u64,
        first: usize,
        positions: usize,
        mut tokens: &mut [i32],
        mut targets: &mut [i32],
    ) -> Result<(), TrainError> {
        let stream = self.dataset.split(Split::Train);
        let mut row = first;
        while !tokens.is_empty() {
            let batch = name(Use::Train, iteration, (row / self.batch_size) as u64);
            let starts = &mut self.starts[..self.batch_size];
            self.sampler.starts(batch, stream, positions as u64, starts)?;
            let wanted = tokens.len() / positions;
            let here = &starts[row % self.batch_size..];
            let here = &here[..here.len().min(wanted)];
            let (some, rest) = tokens.split_at_mut(here.len() * positions);
            let (their, others) = targets.split_at_mut(here.len() * positions);
            fill_rows(stream, here, some, their)?;
            (tokens, targets, row) = (rest, others, row + here.len());
        }
        Ok(())
    }
}

/// The batch's key in the random streams. resolve() keeps both numbers in range.
fn name(purpose: Use, iteration: u64, micro_step: u64) -> Batch {
    Batch { purpose, rank: 0, iteration: iteration as u32, micro_step: micro_step as u16 }
}

impl Feed for OwnFeed<'_> {
    fn train(&mut self, iteration: u64, rows: &mut Rows) -> Result<(), TrainError> {
        let ids = self.group * rows.positions;
        let groups = rows.tokens.chunks_mut(ids).zip(rows.targets.chunks_mut(ids));
        for (round, (tokens, targets)) in (0..).zip(groups) {
            let first = (round * self.rank.ranks + self.rank.rank) * self.group;
            self.fill_group(iteration, first, rows.positions, tokens, targets)?;
        }
        Ok(())
    }

    fn eval(
        &mut self,
        split: Split,
        iteration: u64,
        batch: u64,
        rows: &mut Rows,
    ) -> Result<(), TrainError> {
        let name = name(Use::Eval(split), iteration, batch);
        self.fill(name, rows.positions, &mut rows.tokens, &mut rows.targets)
    }

    fn mark(&mut self) {}

    fn rewind(&mut self) {}

    fn state(&self) -> Value {
        Value::Null
    }

    /// A run that replayed nanoGPT's stream so far continues with our own.
    fn restore(&mut self, _: &Value) -> Result<(), TrainError> {
        Ok(())
    }
}
