//! Plans without training: evaluation alone, and generation for `sample`.

use crate::error::SearchError;
use crate::machine::{Machine, StateOptions};
use crate::planned::Planned;
use crate::refusal::Refusal;
use crate::task::{EVAL_CHUNK, Task};
use model::Dims;
use spec::RunSpec;

/// Head chunks to try, largest first.
const CHUNKS: [u64; 4] = [EVAL_CHUNK, 2048, 1024, plan::ops::TOKEN_BLOCK];

/// Most sequences of a slice.
const MOST_ROWS: u64 = 16;

/// The program and plan of generation alone.
pub fn plan_for_sample(
    run: &RunSpec,
    dims: Dims,
    machine: &Machine,
) -> Result<Planned, SearchError> {
    let task = Task { run, dims, machine, state_options: StateOptions::DEFAULT };
    let planned = Planned::new(run, &task.generation(), None, machine)?;
    match planned.device_bytes(machine) <= machine.budget.get() {
        true => Ok(planned),
        false => Err(SearchError::DoesNotFit(Box::new(Refusal::of(&planned, machine)))),
    }
}

/// The evaluation with the largest slices and chunks that fit.
pub(crate) fn evaluation(task: &Task<'_>) -> Result<Option<Planned>, SearchError> {
    let mut rows = task.run.eval_batch_size.clamp(1, MOST_ROWS);
    loop {
        for chunk in CHUNKS {
            let planned = evaluation_in(task, rows, chunk)?;
            if planned.fits(task.machine) {
                return Ok(Some(planned));
            }
        }
        if rows == 1 {
            return Ok(None);
        }
        rows /= 2;
    }
}

/// The smallest possible evaluation.
pub(crate) fn smallest_evaluation(task: &Task<'_>) -> Result<Planned, SearchError> {
    evaluation_in(task, 1, plan::ops::TOKEN_BLOCK)
}

fn evaluation_in(task: &Task<'_>, rows: u64, chunk: u64) -> Result<Planned, SearchError> {
    Ok(Planned::new(task.run, &task.evaluation(rows, chunk), None, task.machine)?)
}
