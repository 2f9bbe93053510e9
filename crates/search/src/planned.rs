//! A planned run: how much of each memory it needs, and how long it is predicted to take.

use crate::cut::Cut;
use crate::host_bytes::HostBytes;
use crate::machine::{Machine, StateOptions};
use model::{Draft, Level, LossSegment, Program, ProgramSpec, slice_segment};
use plan::hardware::{Hardware, Network};
use plan::overlap::segment_seconds;
use plan::{Bytes, Plan, PlanError};
use spec::RunSpec;
use std::rc::Rc;

/// A planned run.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The ids of its segments and tensors.
    pub program: Program,
    /// The steps, and where every tensor is.
    pub plan: Plan,
    training: Option<Training>,
    /// What the host keeps outside the arena.
    pub host: HostBytes,
    /// Seconds of an iteration by the machine's table, as if bytes reached other ranks at once; 0
    /// without training.
    pub seconds: f64,
}

/// What the search decided about training, except for the slices: the program has them.
#[derive(Clone, Debug)]
struct Training {
    head_chunk: u64,
    levels: Vec<Level>,
    state_options: StateOptions,
}

/// What the cost model predicts for a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Tokens per second that all ranks together train, without evaluations; none if nothing is
    /// trained.
    pub tokens_per_second: Option<f64>,
    /// The whole run, evaluations included.
    pub run_seconds: f64,
}

impl Planned {
    pub(crate) fn new(
        run: &RunSpec,
        spec: &ProgramSpec,
        cut: Option<Cut>,
        machine: &Machine,
    ) -> Result<Planned, PlanError> {
        let Draft { program, schedule, .. } = Draft::new(spec, Rc::clone(&machine.scratch))?;
        let plan = Plan::new(schedule)?;
        let host = HostBytes::new(run, &program, &plan.schedule).on(machine);
        let training = cut.map(|cut| {
            let Cut { slices: _, head_chunk, levels, state_options } = cut;
            Training { head_chunk, levels, state_options }
        });
        let mut planned = Planned { program, plan, training, host, seconds: 0.0 };
        // A run has the same plan over any link, as `train` does not know what connects its ranks.
        let hardware = Hardware { network: Network::NONE, ..machine.hardware.clone() };
        planned.seconds = planned.iteration_seconds(&hardware);
        Ok(planned)
    }

    /// How training is divided, if there is training.
    pub fn cut(&self) -> Option<Cut> {
        let Training { head_chunk, levels, state_options } = self.training.clone()?;
        Some(Cut { slices: self.program.train_slices.clone(), head_chunk, levels, state_options })
    }

    /// Bytes of the device: the arena and the device's context. If device and host are the same,
    /// one budget limits both, so everything that the host keeps for the run counts too.
    pub fn device_bytes(&self, machine: &Machine) -> u64 {
        let own = self.plan.arena_bytes.get().saturating_add(machine.hardware.context.get());
        match machine.host {
            Some(_) => own,
            None => own.saturating_add(self.host_bytes()),
        }
    }

    /// Bytes of host memory: offloaded state and activations, and the host's buffers.
    pub fn host_bytes(&self) -> u64 {
        self.plan.host_bytes.get().saturating_add(self.host.total())
    }

    /// Bytes over the device's budget, and over the host's if it has its own.
    pub(crate) fn over(&self, machine: &Machine) -> [u64; 2] {
        let device = self.device_bytes(machine).saturating_sub(machine.budget.get());
        let over_host = |budget: Bytes| self.host_bytes().saturating_sub(budget.get());
        [device, machine.host.map_or(0, over_host)]
    }

    pub(crate) fn fits(&self, machine: &Machine) -> bool {
        self.over(machine) == [0, 0]
    }

    /// One hash for everything that is executed: the plan, and how iterations and evaluations are
    /// divided.
    pub fn hash(&self) -> u64 {
        let cut = format!("{:?} {:?}", self.program.train_slices, self.program.eval_slices);
        plan::fnv::Fnv::of(format!("{:016x} {cut}", plan::report::hash(&self.plan)))
    }

    /// Predicted seconds of an iteration.
    pub fn iteration_seconds(&self, hardware: &Hardware) -> f64 {
        let schedule = &self.plan.schedule;
        let runs = self.program.runs().into_iter();
        runs.map(|(id, times)| segment_seconds(schedule, id, hardware) * times as f64).sum()
    }

    /// Predicted seconds of an evaluation batch.
    pub fn eval_batch_seconds(&self, hardware: &Hardware) -> f64 {
        self.slices_seconds(&self.program.eval, &self.program.eval_slices, hardware)
    }

    fn slices_seconds(&self, segments: &[LossSegment], slices: &[u64], hardware: &Hardware) -> f64 {
        let of =
            |slice: &LossSegment| segment_seconds(&self.plan.schedule, slice.segment, hardware);
        let seconds: Vec<f64> = segments.iter().map(of).collect();
        let found = (0..slices.len()).filter_map(|slice| slice_segment(segments, slices, slice));
        found.map(|index| seconds[index]).sum()
    }

    /// What the cost model predicts for the whole run on the hardware.
    pub fn predict(&self, run: &RunSpec, hardware: &Hardware) -> Prediction {
        let outer = self.outer_step(run, hardware).exposed;
        let iteration = self.iteration_seconds(hardware) + outer;
        // Ranks share the batches of an evaluation.
        let batches = run.eval_iters.div_ceil(run.rank.ranks as u64);
        let evaluation = 2.0 * batches as f64 * self.eval_batch_seconds(hardware);
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
