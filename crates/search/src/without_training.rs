//! Plans without training: evaluation alone, and generation for `sample`.

use crate::error::SearchError;
use crate::machine::{Machine, StateOptions};
use crate::planned::Planned;
use crate::refusal::Refusal;
use crate::task::{EVAL_CHUNK, Task};
use model::{Dims, ProgramSpec};
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

/// The program and plan of evaluation alone, without generation.
pub fn plan_for_evaluation(
    run: &RunSpec,
    dims: Dims,
    machine: &Machine,
) -> Result<Planned, SearchError> {
    let task = Task { run, dims, machine, state_options: StateOptions::DEFAULT };
    if let Some(planned) = largest(&task, Task::losses)? {
        return Ok(planned);
    }
    let smallest = task.losses(1, plan::ops::TOKEN_BLOCK);
    let smallest = Planned::new(run, &smallest, None, machine)?;
    Err(SearchError::DoesNotFit(Box::new(Refusal::of(&smallest, machine))))
}

/// The evaluation and generation with the largest slices and chunks that fit.
pub(crate) fn evaluation(task: &Task<'_>) -> Result<Option<Planned>, SearchError> {
    largest(task, Task::evaluation)
}

/// The largest slices and chunks with which a program fits.
fn largest<'a>(
    task: &Task<'a>,
    program: impl Fn(&Task<'a>, u64, u64) -> ProgramSpec,
) -> Result<Option<Planned>, SearchError> {
    let mut rows = task.run.eval_batch_size.clamp(1, MOST_ROWS);
    loop {
        for chunk in CHUNKS {
            let program = program(task, rows, chunk);
            let planned = Planned::new(task.run, &program, None, task.machine)?;
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
    let program = task.evaluation(1, plan::ops::TOKEN_BLOCK);
    Ok(Planned::new(task.run, &program, None, task.machine)?)
}
