//! A run that was planned: what it takes of each memory, and how long it is predicted to take.

use crate::budget::Cut;
use crate::machine::Machine;
use model::{Draft, LossSegment, Program, ProgramSpec};
use plan::cost::segment_seconds;
use plan::hardware::Hardware;
use plan::{Bytes, Plan, PlanError, Tensors};
use spec::RunSpec;
use std::rc::Rc;

/// A run that was planned.
#[derive(Clone, Debug)]
pub struct Planned {
    /// What is executed.
    pub program: Program,
    /// Where everything stands.
    pub plan: Plan,
    /// How training is cut, where there is training.
    pub cut: Option<Cut>,
    /// Seconds of an iteration by the machine's table; 0 without training.
    pub seconds: f64,
}

/// What the cost model says of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Trained tokens a second, evaluations not counted; none where nothing is trained.
    pub tokens_per_second: Option<f64>,
    /// The whole run, evaluations included.
    pub run_seconds: f64,
}

impl Planned {
    pub(crate) fn new(
        spec: &ProgramSpec,
        cut: Option<Cut>,
        machine: &Machine,
    ) -> Result<Planned, PlanError> {
        let Draft { program, schedule } = Draft::new(spec, Rc::clone(&machine.scratch))?;
        let plan = Plan::new(schedule)?;
        let mut planned = Planned { program, plan, cut, seconds: 0.0 };
        planned.seconds = planned.iteration_seconds(&machine.hardware);
        Ok(planned)
    }

    /// Bytes of the device: the arena and its context. Where device and host are one, everything
    /// that the host keeps for the run counts too: one budget bounds all of it.
    pub fn device_bytes(&self, run: &RunSpec, machine: &Machine) -> u64 {
        let own = self.plan.arena_bytes.get().saturating_add(machine.hardware.context.get());
        match machine.host {
            Some(_) => own,
            None => own.saturating_add(self.host_bytes(run)),
        }
    }

    /// What the host keeps outside the arena: batches, and room for one tensor of a checkpoint.
    pub fn beside(&self, run: &RunSpec) -> [(&'static str, Bytes); 2] {
        beside(&self.program, &self.plan.schedule.tensors, run)
    }

    /// Bytes of host memory: offloaded state and what is beside the arena.
    pub fn host_bytes(&self, run: &RunSpec) -> u64 {
        let beside = self.beside(run).into_iter().map(|(_, bytes)| bytes.get());
        beside.fold(self.plan.host_bytes.get(), u64::saturating_add)
    }

    /// Bytes beyond the device's budget, and beyond the host's where it has one of its own.
    pub(crate) fn over(&self, run: &RunSpec, machine: &Machine) -> [u64; 2] {
        let device = self.device_bytes(run, machine).saturating_sub(machine.budget.get());
        let over_host = |budget: Bytes| self.host_bytes(run).saturating_sub(budget.get());
        [device, machine.host.map_or(0, over_host)]
    }

    pub(crate) fn fits(&self, run: &RunSpec, machine: &Machine) -> bool {
        self.over(run, machine) == [0, 0]
    }

    /// One number for all that is executed: the plan, and how iterations and evaluations are cut.
    pub fn hash(&self) -> u64 {
        let cut = format!("{:?} {:?}", self.program.train_slices, self.program.eval_slices);
        plan::fnv::Fnv::of(&format!("{:016x} {cut}", plan::report::hash(&self.plan)))
    }

    /// Predicted seconds of an iteration.
    pub fn iteration_seconds(&self, hardware: &Hardware) -> f64 {
        let slices = self.cut.as_ref().map_or(&[][..], |cut| &cut.slices);
        let update = self.program.update.filter(|_| !slices.is_empty());
        let update = update.map_or(0.0, |id| segment_seconds(&self.plan.schedule, id, hardware));
        self.slices_seconds(&self.program.train, slices, hardware) + update
    }

    /// Predicted seconds of an evaluation batch.
    pub fn eval_batch_seconds(&self, hardware: &Hardware) -> f64 {
        self.slices_seconds(&self.program.eval, &self.program.eval_slices, hardware)
    }

    fn slices_seconds(&self, segments: &[LossSegment], slices: &[u64], hardware: &Hardware) -> f64 {
        let seconds: Vec<(u64, f64)> = segments
            .iter()
            .map(|slice| {
                (slice.rows, segment_seconds(&self.plan.schedule, slice.segment, hardware))
            })
            .collect();
        let of = |rows: &u64| seconds.iter().find(|(of, _)| of == rows).map_or(0.0, |(_, s)| *s);
        slices.iter().map(of).sum()
    }

    /// What the cost model says of the whole run on the hardware.
    pub fn predict(&self, run: &RunSpec, hardware: &Hardware) -> Prediction {
        let iteration = self.iteration_seconds(hardware);
        let evaluation = 2.0 * run.eval_iters as f64 * self.eval_batch_seconds(hardware);
        let (iterations, evaluations) = match run.eval_only {
            true => (0.0, 1.0),
            false => (run.max_iters as f64, (run.max_iters / run.eval_interval.max(1) + 1) as f64),
        };
        Prediction {
            tokens_per_second: (iteration > 0.0)
                .then(|| run.tokens_per_iteration() as f64 / iteration),
            run_seconds: iterations * iteration + evaluations * evaluation,
        }
    }
}

/// What the host keeps outside the arena: batches of a program that has any, and room for one
/// tensor of a checkpoint.
pub(crate) fn beside(
    program: &Program,
    tensors: &Tensors,
    run: &RunSpec,
) -> [(&'static str, Bytes); 2] {
    let whole = |bytes: u64| Bytes::new(bytes.min(i64::MAX as u64)).unwrap_or(Bytes::ZERO);
    let eval_tokens = run.eval_batch_size.saturating_mul(run.eval_block_size);
    let tokens = run.tokens_per_iteration().saturating_add(eval_tokens);
    let has_batches = program.update.is_some() || !program.eval.is_empty();
    let batches = if has_batches { whole(tokens.saturating_mul(8)) } else { Bytes::ZERO };
    let sizes = program.parameters.iter().map(|row| tensors.bytes(row.weight));
    [("batches", batches), ("buffer for saving", sizes.max().unwrap_or(Bytes::ZERO))]
}
