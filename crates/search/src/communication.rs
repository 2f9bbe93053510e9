//! What a rank sends in an iteration, how long that takes, and how much of it is hidden behind
//! computation. Bytes and seconds are those of the plan's steps.

use crate::planned::Planned;
use model::AverageSegments;
use plan::hardware::Hardware;
use plan::overlap::segment_time;
use plan::{SegmentId, Step};
use spec::RunSpec;

/// What a rank sends in an iteration. With DiLoCo, the average over the iterations between two
/// outer steps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Communication {
    /// Bytes.
    pub bytes: u64,
    /// All of it, one after the other.
    pub seconds: f64,
    /// The part during which nothing is computed.
    pub exposed: f64,
}

impl Communication {
    /// The part that is hidden behind computation.
    pub fn hidden(&self) -> f64 {
        (self.seconds - self.exposed).max(0.0)
    }
}

impl Planned {
    /// What this rank sends in an iteration on the hardware.
    pub fn communication(&self, run: &RunSpec, hardware: &Hardware) -> Communication {
        let schedule = &self.plan.schedule;
        let sent = |step: &Step| step.op.operation().wire_bytes(&schedule.tensors);
        let mut found = Communication::default();
        for (id, times) in self.program.runs() {
            let bytes = schedule.segment(id).steps.iter().map(sent).fold(0, u64::saturating_add);
            let time = segment_time(schedule, id, hardware);
            found.bytes = found.bytes.saturating_add(bytes.saturating_mul(times));
            found.seconds += times as f64 * time.communication;
            found.exposed += times as f64 * time.exposed;
        }
        let outer = self.outer_step(run, hardware);
        found.bytes = found.bytes.saturating_add(outer.bytes);
        found.seconds += outer.seconds;
        found.exposed += outer.exposed;
        found
    }

    /// DiLoCo's outer step, divided among the iterations between two of them; nothing otherwise.
    /// The ranks' changes are summed in 16 bits, piece by piece, and the averages gathered in 16
    /// bits. Nothing is computed meanwhile; the step itself, on the host, is not counted.
    pub(crate) fn outer_step(&self, run: &RunSpec, hardware: &Hardware) -> Communication {
        let Some(AverageSegments { sum, gather }) = self.program.averaging else {
            return Communication::default();
        };
        let (schedule, every) = (&self.plan.schedule, run.ranks.sync_every.max(1));
        let sent = |id: SegmentId| -> u64 {
            let steps = schedule.segment(id).steps.iter();
            steps.map(|step| step.op.operation().wire_bytes(&schedule.tensors)).sum()
        };
        let bytes = [sum, gather].map(sent).into_iter().fold(0, u64::saturating_add) / every;
        let seconds = [sum, gather].map(|id| segment_time(schedule, id, hardware).communication);
        let seconds = seconds.into_iter().sum::<f64>() / every as f64;
        Communication { bytes, seconds, exposed: seconds }
    }
}
