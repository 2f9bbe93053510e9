//! The events that order the streams of one segment: other lanes start with the compute lane, a
//! step waits for the steps that the plan names, and the segment ends when all lanes have.

use crate::context::DriverContext;
use crate::error::CudaError;
use crate::stream::Event;
use plan::{Lane, Step};
use std::collections::BTreeSet;
use std::sync::Arc;

/// All made before the first run.
pub(crate) struct LaneEvents {
    /// By step; only those that another lane waits for.
    steps: Vec<Option<Event>>,
    start: Event,
    /// The lanes beside the compute lane that the segment uses, with the ends of their work.
    others: Vec<(Lane, Event)>,
}

impl LaneEvents {
    pub(crate) fn new(
        context: &Arc<DriverContext>,
        steps: &[Step],
    ) -> Result<LaneEvents, CudaError> {
        let event = || Event::new(context, false);
        let is_used = |lane: &Lane| steps.iter().any(|step| step.lane == *lane);
        let others = Lane::ALL.into_iter().filter(|lane| *lane != Lane::Compute && is_used(lane));
        let awaited: BTreeSet<usize> = steps.iter().flat_map(|step| &step.waits).copied().collect();
        let of_step = |index: usize| awaited.contains(&index).then(event).transpose();
        Ok(LaneEvents {
            steps: (0..steps.len()).map(of_step).collect::<Result<_, _>>()?,
            start: event()?,
            others: others.map(|lane| Ok((lane, event()?))).collect::<Result<_, CudaError>>()?,
        })
    }

    /// Before the first step.
    pub(crate) fn fork(&self) -> Result<(), CudaError> {
        if self.others.is_empty() {
            return Ok(());
        }
        self.start.record()?;
        self.others.iter().try_for_each(|(lane, _)| self.start.hold_up(*lane))
    }

    /// Makes a lane wait for a step.
    pub(crate) fn wait(&self, step: usize, lane: Lane) -> Result<(), CudaError> {
        self.of_step(step).map_or(Ok(()), |event| event.hold_up(lane))
    }

    /// Behind a step.
    pub(crate) fn ended(&self, step: usize, lane: Lane) -> Result<(), CudaError> {
        self.of_step(step).map_or(Ok(()), |event| event.record_on(lane))
    }

    fn of_step(&self, step: usize) -> Option<&Event> {
        self.steps.get(step)?.as_ref()
    }

    /// Behind the last step.
    pub(crate) fn join(&self) -> Result<(), CudaError> {
        self.others.iter().try_for_each(|(lane, end)| {
            end.record_on(*lane)?;
            end.hold_up(Lane::Compute)
        })
    }
}
