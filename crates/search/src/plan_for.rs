//! The search: takes a checked run and a byte budget, and returns the fastest plan that fits.
//!
//! 1. Subtract what outlives slices (weights, moments, the device's context) from the budget.
//! 2. `candidates.rs`: try numbers of slices × head chunks, each with the cheapest levels of
//!    recompute that fit (`levels.rs`), estimated from a three-layer model (`probe.rs`).
//! 3. Build the best candidate in full. If it is too large, subtract the excess and repeat 2.
//! 4. Repeat with each lever that the run permits: it must be 1 % faster than what was found.
//! 5. If nothing fits: `refusal.rs` says what is missing, `suggest.rs` which settings fit.
//!
//! A backend takes a plan only with its proof (`plan::verify`), which shares no code with this.

use crate::candidates::Candidates;
use crate::cut::{Cut, layers_on_host};
use crate::error::SearchError;
use crate::host_bytes::HostBytes;
use crate::machine::{Machine, StateOptions};
use crate::planned::Planned;
use crate::probe::scratch_bytes;
use crate::refusal::Refusal;
use crate::task::Task;
use crate::without_training::{evaluation, smallest_evaluation};
use model::{Dims, Draft, Level};
use plan::{Bytes, Schedule, Scope};
use spec::RunSpec;
use std::rc::Rc;

/// The fastest plan of a training run that fits the machine. It contains training (unless the run
/// only evaluates), evaluation, and generation for samples.
pub fn plan_for(run: &RunSpec, dims: Dims, machine: &Machine) -> Result<Planned, SearchError> {
    match plan_if_it_fits(run, dims, machine)? {
        Some(planned) => Ok(planned),
        None => Err(refuse(run, dims, machine)?),
    }
}

/// As [`plan_for`], without the reasons when nothing fits.
pub(crate) fn plan_if_it_fits(
    run: &RunSpec,
    dims: Dims,
    machine: &Machine,
) -> Result<Option<Planned>, SearchError> {
    check(run, &dims)?;
    let mut task = Task { run, dims, machine, state_options: StateOptions::DEFAULT };
    if run.eval_only {
        return evaluation(&task);
    }
    let candidates = Candidates::new(&task);
    let mut best: Option<Planned> = None;
    let mut take = |planned: Planned| {
        let is_worth_it = |best: &Planned| planned.seconds <= best.seconds * WORTH_IT;
        if best.as_ref().is_none_or(is_worth_it) {
            best = Some(planned);
        }
    };
    for state_options in StateOptions::permitted(run, machine) {
        task.state_options = state_options;
        // If no plan fits with all activations on the device, none fits with some on the host.
        let Some((planned, is_free)) = task.fastest(&candidates)? else {
            continue;
        };
        take(planned);
        if is_free {
            break; // the plan for unlimited memory fits: no option is faster
        }
        if let Some(with_host) = task.with_host(&candidates)? {
            task.fastest(&with_host)?.into_iter().for_each(|(planned, _)| take(planned));
        }
    }
    Ok(best)
}

/// The `count` fastest plans by the cost model, or as many as there are. The first is the one that
/// [`plan_for`] returns. If it keeps activations in host memory, the second is the best of those
/// that do not: the link may be slower than the table of GPUs says. The others differ from these in
/// their slices, where the cost model errs most, and follow by estimated time. All store optimizer
/// state alike, and a longer list begins with the shorter one.
pub fn best_plans(
    run: &RunSpec,
    dims: Dims,
    machine: &Machine,
    count: usize,
) -> Result<Vec<Planned>, SearchError> {
    let first = plan_for(run, dims, machine)?;
    let Some(cut) = first.cut().filter(|_| count > 1) else {
        return Ok(vec![first]);
    };
    let task = Task { run, dims, machine, state_options: cut.state_options };
    let mut candidates = Candidates::new(&task);
    let mut best = vec![first];
    if cut.layers_on_host() > 0 {
        best.extend(task.fastest(&candidates)?.map(|(planned, _)| planned));
        candidates = task.with_host(&candidates)?.unwrap_or(candidates);
    }
    task.add_others(&candidates, &mut best, count)?;
    Ok(best)
}

/// How much longer than the fastest a plan may take to be listed among the best.
const LISTED: f64 = 1.15;

/// How many times the built plan may correct the estimate.
const CORRECTIONS: usize = 6;

/// Estimates are more accurate than this factor, so a plan further over the limit need not be
/// placed.
const FAR_FROM_FITTING: f64 = 1.05;

/// Options that change more than time are used only if the run then takes at most this share of the
/// time.
const WORTH_IT: f64 = 0.99;

/// Most sequences of an iteration or of an evaluation batch.
pub const MOST_SEQUENCES: u64 = 1 << 22;

/// What happened when a cut was built.
enum Built {
    Fits(Box<Planned>),
    /// It is this many bytes too large.
    Over(u64),
    /// The host's memory is too small. No other cut of these candidates changes that.
    HostIsFull,
}

impl Task<'_> {
    /// The fastest plan that fits with the task's options for optimizer state, and whether it would
    /// be the same with unlimited memory.
    fn fastest(&self, candidates: &Candidates<'_>) -> Result<Option<(Planned, bool)>, SearchError> {
        let [outside, _] = self.outside_slices()?;
        let Some(limit) = self.machine.budget.get().checked_sub(outside) else {
            return Ok(None);
        };
        // Try without a limit first: a plan that fits anyway does not depend on how much is free
        // today.
        let mut available = u64::MAX;
        for _ in 0..CORRECTIONS {
            let Some(candidate) = candidates.best(available)? else {
                break;
            };
            let is_known = candidates.may_use_host() && layers_on_host(&candidate.levels) == 0;
            let is_far = candidate.bytes as f64 > limit as f64 * FAR_FROM_FITTING;
            if available > limit && (is_known || is_far) {
                available = limit;
                continue;
            }
            if is_known {
                return Ok(None); // the caller has this plan
            }
            match self.build_if_it_fits(candidate.cut())? {
                Built::Fits(planned) => return Ok(Some((*planned, available == u64::MAX))),
                Built::HostIsFull => return Ok(None),
                Built::Over(bytes) if available <= limit => {
                    available = available.saturating_sub(bytes);
                }
                Built::Over(_) => available = limit,
            }
        }
        if candidates.may_use_host() {
            return Ok(None);
        }
        match self.build_if_it_fits(candidates.smallest()?)? {
            Built::Fits(smallest) => Ok(Some((*smallest, false))),
            Built::Over(_) | Built::HostIsFull => Ok(None),
        }
    }

    /// The candidates with activations in host memory, if the run permits that: as many bytes as
    /// optimizer state and buffers leave free there.
    fn with_host<'a>(
        &self,
        candidates: &Candidates<'a>,
    ) -> Result<Option<Candidates<'a>>, SearchError> {
        let budget = self.machine.host.filter(|_| self.machine.may_offload_activations(self.run));
        let Some(budget) = budget else { return Ok(None) };
        let [_, state] = self.outside_slices()?;
        Ok(Some(candidates.with_host(budget.get().saturating_sub(state))))
    }

    /// Adds the fastest plans with other slices than those that are there, up to `count` in all.
    fn add_others(
        &self,
        candidates: &Candidates<'_>,
        best: &mut Vec<Planned>,
        count: usize,
    ) -> Result<(), SearchError> {
        let [outside, _] = self.outside_slices()?;
        let limit = self.machine.budget.get().saturating_sub(outside);
        for candidate in candidates.within(limit, LISTED)? {
            let cut = candidate.cut();
            let like = |planned: &Planned| planned.program.train_slices == cut.slices;
            if best.len() < count && !best.iter().any(like) {
                best.extend(self.corrected(candidates, cut, limit)?);
            }
        }
        Ok(())
    }

    /// The plan of a cut; if it is too large, with levels that keep less.
    fn corrected(
        &self,
        candidates: &Candidates<'_>,
        mut cut: Cut,
        mut available: u64,
    ) -> Result<Option<Planned>, SearchError> {
        for _ in 0..CORRECTIONS {
            match self.build_if_it_fits(cut.clone())? {
                Built::Fits(planned) => return Ok(Some(*planned)),
                Built::HostIsFull => return Ok(None),
                Built::Over(bytes) => available = available.saturating_sub(bytes),
            }
            match candidates.again(&cut, available)? {
                Some(smaller) => cut = smaller.cut(),
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Builds a cut with the task's options. Training alone is built first: it nearly always needs
    /// the most memory, and placing it is only a part of the work.
    fn build_if_it_fits(&self, cut: Cut) -> Result<Built, SearchError> {
        let cut = Cut { state_options: self.state_options, ..cut };
        let spec = self.training(&cut);
        let training = Planned::new(self.run, &spec, Some(cut.clone()), self.machine)?;
        let [over, over_host] = training.over(self.machine);
        if over_host > 0 {
            return Ok(Built::HostIsFull);
        }
        if over > 0 {
            return Ok(Built::Over(over));
        }
        let planned = self.build(cut)?;
        let [over, over_host] = planned.over(self.machine);
        Ok(match over.max(over_host) {
            0 => Built::Fits(Box::new(planned)),
            bytes => Built::Over(bytes),
        })
    }

    /// Builds the whole plan of a cut.
    fn build(&self, cut: Cut) -> Result<Planned, SearchError> {
        Ok(Planned::new(self.run, &self.whole(&cut), Some(cut), self.machine)?)
    }

    /// Bytes of everything but training slices and the kernels' scratch. First on the device,
    /// including its context (and the host's buffers, if device and host are the same); then of the
    /// host: state, and its buffers.
    fn outside_slices(&self) -> Result<[u64; 2], SearchError> {
        let spec = self.without_slices();
        let Draft { program, schedule, .. } = Draft::new(&spec, Rc::clone(&self.machine.scratch))?;
        let held = |scope| schedule.tensors.held_bytes(scope).map_or(u64::MAX, Bytes::get);
        let arena = held(Scope::Run).saturating_sub(scratch_bytes(&schedule));
        let buffers = HostBytes::new(self.run, &program, &schedule).on(self.machine).total();
        let [here, on_host] = match self.machine.host {
            None => [buffers, 0],
            Some(_) => [0, buffers],
        };
        let device = arena.saturating_add(here);
        let device = device.saturating_add(self.machine.hardware.context.get());
        Ok([device, held(Scope::Host).saturating_add(on_host)])
    }

    /// The smallest possible plan.
    fn smallest(&self) -> Result<Planned, SearchError> {
        if self.run.eval_only {
            return smallest_evaluation(self);
        }
        let cut = Candidates::new(self).smallest()?;
        self.build(Cut { state_options: self.state_options, ..cut })
    }
}

/// The plan of a cut that was chosen before, or why it is no longer possible. Layers that keep
/// activations in host memory compute them again if that memory is no longer free or permitted.
pub fn plan_again(
    run: &RunSpec,
    dims: Dims,
    machine: &Machine,
    cut: &Cut,
) -> Result<Result<Planned, String>, SearchError> {
    check(run, &dims)?;
    let task = Task { run, dims, machine, state_options: cut.state_options };
    let (made_for, now) = (cut.slices.iter().sum::<u64>(), run.sequences_per_group());
    if made_for != now || cut.slices.contains(&0) || cut.head_chunk == 0 {
        return Ok(Err(format!("it was made for {made_for} sequences, now there are {now}")));
    }
    let (saved, without_host) = (cut, cut.without_host());
    let may_use_host = machine.may_offload_activations(run);
    let cut = if may_use_host { saved } else { &without_host };
    let is_excluded = |level: &Level| !level.uses_host() && !task.levels().contains(level);
    if let Some(at) = cut.levels.iter().position(is_excluded) {
        let level = saved.levels[at];
        return Ok(Err(format!("it has layers at {level}, which grad_checkpoint excludes")));
    }
    if cut.levels.len() as u64 != dims.n_layer {
        return Ok(Err(format!("it has {} layers, not {}", cut.levels.len(), dims.n_layer)));
    }
    if !StateOptions::permitted(run, machine).contains(&cut.state_options) {
        return Ok(Err("it stores the optimizer state differently".to_string()));
    }
    let mut planned = task.build(cut.clone())?;
    if planned.over(machine)[1] > 0 && cut.layers_on_host() > 0 {
        planned = task.build(without_host)?;
    }
    if planned.fits(machine) {
        return Ok(Ok(planned));
    }
    let refusal = Refusal::of(&planned, machine);
    Ok(Err(match refusal.missing > Bytes::ZERO {
        true => format!("it needs {} of {}", refusal.needed, refusal.budget),
        false => format!("it needs {} more host memory", refusal.missing_host),
    }))
}

/// The schedule of a cut if no activations went to host memory. It computes the same bits, so a run
/// that moves to a machine without room for them is still recognised by it.
pub fn schedule_without_host(
    run: &RunSpec,
    dims: Dims,
    machine: &Machine,
    cut: &Cut,
) -> Result<Schedule, SearchError> {
    let task = Task { run, dims, machine, state_options: cut.state_options };
    let spec = task.whole(&cut.without_host());
    Ok(Draft::new(&spec, Rc::clone(&machine.scratch))?.schedule)
}

/// Whether the smallest form of training fits, estimated from a small model: a quick answer before
/// a model is planned in full.
pub(crate) fn may_fit(run: &RunSpec, dims: Dims, machine: &Machine) -> Result<bool, SearchError> {
    for state_options in StateOptions::permitted(run, machine) {
        let task = Task { run, dims, machine, state_options };
        let [device, host] = task.outside_slices()?;
        let least = device.saturating_add(Candidates::new(&task).least_bytes()?);
        if least <= machine.budget.get() && machine.host.is_none_or(|budget| host <= budget.get()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What is missing, based on the smallest plan with any permitted options.
fn refuse(run: &RunSpec, dims: Dims, machine: &Machine) -> Result<SearchError, SearchError> {
    let mut least = Refusal { budget: machine.budget, ..Refusal::default() };
    let size = |refusal: &Refusal| refusal.missing.max(refusal.missing_host);
    for (index, state_options) in StateOptions::permitted(run, machine).into_iter().enumerate() {
        let smallest = Task { run, dims, machine, state_options }.smallest()?;
        let refusal = Refusal::of(&smallest, machine);
        if index == 0 || size(&refusal) < size(&least) {
            least = refusal;
        }
    }
    Ok(SearchError::DoesNotFit(Box::new(least)))
}

/// Refuses what no plan can have: more positions than the model, or more sequences than can be
/// listed.
fn check(run: &RunSpec, dims: &Dims) -> Result<(), SearchError> {
    // A model may come from a checkpoint with a shorter context than the run asks for.
    let (asked, most) = (run.block_size, dims.block_size);
    if asked > most {
        return Err(SearchError::TooManyPositions { asked, most });
    }
    // Slices are listed one by one, and the host holds the batch of a whole iteration.
    let sequences = run.sequences_per_iteration().max(run.eval_batch_size);
    if sequences > MOST_SEQUENCES {
        let needed = sequences.saturating_mul(run.block_size);
        let needed = needed.saturating_mul(HostBytes::PER_TOKEN);
        let needed = Bytes::new(needed.min(i64::MAX as u64)).unwrap_or(Bytes::ZERO);
        return Err(SearchError::TooManySequences { sequences, most: MOST_SEQUENCES, needed });
    }
    Ok(())
}
