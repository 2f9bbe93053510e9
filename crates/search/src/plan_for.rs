//! The one place that turns a run into a program and a plan.

use crate::budget::{Candidate, Cut, Search, Seen, cut, scratch_bytes};
use crate::error::SearchError;
use crate::host_bytes::HostBytes;
use crate::machine::{Levers, Machine};
use crate::planned::Planned;
use crate::refusal::Refusal;
use model::update::OFFLOAD_WINDOW;
use model::{
    AdamW, Dims, Draft, EvalSpec, GenerateSpec, Gpt2, Level, ModelSpec, OptimizerSpec, ProgramSpec,
    TrainSpec, Types,
};
use plan::ops::Scaling;
use plan::{Bytes, Dtype, Scope};
use spec::{GradCheckpoint, RunSpec};
use std::rc::Rc;

/// Tokens whose logits exist at one time when nothing is trained: the fastest measured for GPT-2's
/// vocabulary.
const EVAL_CHUNK: u64 = 4096;

/// Those that are tried then.
const EVAL_CHUNKS: [u64; 4] = [EVAL_CHUNK, 2048, 1024, plan::ops::TOKEN_BLOCK];

/// Most sequences of an evaluation slice when nothing is trained.
const EVAL_ROWS: u64 = 16;

/// Shortest context that has a segment of its own, as a power of two.
const SHORTEST_PREFILL: u32 = 4;

/// Sequences generated side by side.
const GENERATED_ROWS: u64 = 1;

/// PyTorch's default, which nanoGPT keeps.
const ADAM_EPS: f64 = 1e-8;

/// PyTorch's GradScaler doubles the scale after so many clean updates.
const GROWTH_INTERVAL: u32 = 2000;

/// How often the estimate may be corrected by the plan that was built.
const CORRECTIONS: usize = 6;

/// Estimates are nearer to the truth than this: what is more over the limit need not be placed.
const FAR_FROM_FITTING: f64 = 1.05;

/// Most sequences of an iteration or of an evaluation batch.
pub const MOST_SEQUENCES: u64 = 1 << 22;

/// A lever that changes more than time is pulled where it saves at least this share of it.
const WORTH_A_LEVER: f64 = 0.99;

/// The fastest plan of a training run that fits the machine: training unless only an evaluation is
/// asked for, evaluation, and generation for a sample.
pub fn plan_for(run: &RunSpec, dims: Dims, machine: &Machine) -> Result<Planned, SearchError> {
    let task = Task { run, dims, machine, levers: Levers::NONE };
    match plan_if_it_fits(run, dims, machine)? {
        Some(planned) => Ok(planned),
        None => Err(task.refuse()?),
    }
}

/// The same without the reasons.
pub(crate) fn plan_if_it_fits(
    run: &RunSpec,
    dims: Dims,
    machine: &Machine,
) -> Result<Option<Planned>, SearchError> {
    check_context(run, &dims)?;
    check_sequences(run)?;
    let mut task = Task { run, dims, machine, levers: Levers::NONE };
    if run.eval_only {
        return task.evaluation();
    }
    let search = task.search();
    let mut best: Option<Planned> = None;
    for levers in Levers::permitted(run, machine) {
        task.levers = levers;
        let Some((planned, is_free)) = task.fastest(&search)? else {
            continue;
        };
        let worth = |best: &Planned| planned.seconds <= best.seconds * WORTH_A_LEVER;
        if best.as_ref().is_none_or(worth) {
            best = Some(planned);
        }
        if is_free {
            break; // memory costs it nothing: no lever makes it faster
        }
    }
    Ok(best)
}

/// The plan of a cut that was made before, or why it cannot be had any more.
pub fn plan_again(
    run: &RunSpec,
    dims: Dims,
    machine: &Machine,
    cut: &Cut,
) -> Result<Result<Planned, String>, SearchError> {
    check_context(run, &dims)?;
    check_sequences(run)?;
    let (made_for, now) = (cut.slices.iter().sum::<u64>(), run.sequences_per_iteration());
    if made_for != now || cut.slices.contains(&0) || cut.head_chunk == 0 {
        return Ok(Err(format!("it was made for {made_for} sequences, now there are {now}")));
    }
    let allowed = levels(run);
    let others = cut.levels.iter().find(|level| !allowed.contains(level));
    if let Some(level) = others {
        return Ok(Err(format!("it has layers at {level}, which grad_checkpoint excludes")));
    }
    if cut.levels.len() as u64 != dims.n_layer {
        return Ok(Err(format!("it has {} layers, not {}", cut.levels.len(), dims.n_layer)));
    }
    if !Levers::permitted(run, machine).contains(&cut.levers) {
        return Ok(Err("its optimizer state is kept in another way".to_string()));
    }
    let task = Task { run, dims, machine, levers: cut.levers };
    let planned = task.build(cut.clone())?;
    if planned.fits(machine) {
        return Ok(Ok(planned));
    }
    let refusal = Refusal::of(&planned, machine);
    Ok(Err(match refusal.missing > Bytes::ZERO {
        true => format!("it needs {} of {}", refusal.needed, refusal.budget),
        false => format!("{} of host memory are missing for it", refusal.missing_host),
    }))
}

/// Whether training alone fits in its smallest form, by the look of a small model: a quick answer
/// before a model is planned whole.
pub(crate) fn may_fit(run: &RunSpec, dims: Dims, machine: &Machine) -> Result<bool, SearchError> {
    for levers in Levers::permitted(run, machine) {
        let task = Task { run, dims, machine, levers };
        let [device, host] = task.outside_training()?;
        let least = device.saturating_add(task.search().least()?.1);
        if least <= machine.budget.get() && machine.host.is_none_or(|budget| host <= budget.get()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The program and plan of generation alone.
pub fn plan_for_sample(
    run: &RunSpec,
    dims: Dims,
    machine: &Machine,
) -> Result<Planned, SearchError> {
    let spec = ProgramSpec {
        model: model(run, dims, machine.types(run, Levers::NONE)),
        train: None,
        eval: None,
        generate: Some(generate(&dims)),
    };
    let planned = Planned::new(run, &spec, None, machine)?;
    match planned.device_bytes(machine) <= machine.budget.get() {
        true => Ok(planned),
        false => Err(SearchError::DoesNotFit(Box::new(Refusal::of(&planned, machine)))),
    }
}

/// A run to be planned for a machine, with levers as they stand.
#[derive(Clone, Copy)]
struct Task<'a> {
    run: &'a RunSpec,
    dims: Dims,
    machine: &'a Machine,
    levers: Levers,
}

impl<'a> Task<'a> {
    /// The search for slices, chunk and levels, which levers do not touch.
    fn search(&self) -> Search<'a> {
        let seen = Seen::default();
        let train = self.train_spec();
        let spec = self.spec(Some(train.clone()), 1);
        let sequences = self.run.sequences_per_iteration();
        Search { spec, train, sequences, levels: levels(self.run), machine: self.machine, seen }
    }

    /// The fastest plan that fits with these levers, and whether it would be the same in any amount
    /// of memory.
    fn fastest(&self, search: &Search<'_>) -> Result<Option<(Planned, bool)>, SearchError> {
        // Without a limit first: a plan that fits anyway does not depend on how much is free today.
        let [outside, _] = self.outside_training()?;
        let Some(limit) = self.machine.budget.get().checked_sub(outside) else {
            return Ok(None); // what is there all the time is too much
        };
        let mut available = u64::MAX;
        for _ in 0..CORRECTIONS {
            let Some(Candidate { cut, bytes, .. }) = search.best(available)? else {
                break;
            };
            if available > limit && bytes as f64 > limit as f64 * FAR_FROM_FITTING {
                available = limit;
                continue;
            }
            let cut = Cut { levers: self.levers, ..cut };
            // Training alone is nearly always the fullest, and a part of the work to place.
            let training = self.training_alone(cut.clone())?;
            let [mut over, over_host] = training.over(self.machine);
            if over_host > 0 && self.machine.host.is_some() {
                return Ok(None); // no way to cut an iteration changes that
            }
            if over.max(over_host) == 0 {
                let planned = self.build(cut)?;
                if planned.fits(self.machine) {
                    return Ok(Some((planned, available == u64::MAX)));
                }
                over = planned.over(self.machine).into_iter().max().unwrap_or(0);
            }
            match available <= limit {
                true => available = available.saturating_sub(over.max(over_host)),
                false => available = limit,
            }
        }
        let smallest = self.smallest_cut(search)?;
        if !self.training_alone(smallest.clone())?.fits(self.machine) {
            return Ok(None);
        }
        let smallest = self.build(smallest)?;
        Ok(smallest.fits(self.machine).then_some((smallest, false)))
    }

    /// The whole plan of a cut.
    fn build(&self, cut: Cut) -> Result<Planned, SearchError> {
        Ok(Planned::new(self.run, &self.spec_of(&cut), Some(cut), self.machine)?)
    }

    /// Its training segments, without evaluation and generation.
    fn training_alone(&self, cut: Cut) -> Result<Planned, SearchError> {
        let spec = ProgramSpec { eval: None, generate: None, ..self.spec_of(&cut) };
        Ok(Planned::new(self.run, &spec, Some(cut), self.machine)?)
    }

    fn spec_of(&self, cut: &Cut) -> ProgramSpec {
        let train = TrainSpec {
            slices: cut.slices.clone(),
            head_chunk: cut.head_chunk,
            levels: cut.levels.clone(),
            ..self.train_spec()
        };
        self.spec(Some(train), cut.slices.first().copied().unwrap_or(1))
    }

    /// The smallest plan there is.
    fn smallest(&self) -> Result<Planned, SearchError> {
        if self.run.eval_only {
            return self.evaluation_in(1, plan::ops::TOKEN_BLOCK);
        }
        self.build(self.smallest_cut(&self.search())?)
    }

    /// The largest slices and chunks of an evaluation alone that fit.
    fn evaluation(&self) -> Result<Option<Planned>, SearchError> {
        let mut rows = self.run.eval_batch_size.clamp(1, EVAL_ROWS);
        loop {
            for chunk in EVAL_CHUNKS {
                let planned = self.evaluation_in(rows, chunk)?;
                if planned.fits(self.machine) {
                    return Ok(Some(planned));
                }
            }
            if rows == 1 {
                return Ok(None);
            }
            rows /= 2;
        }
    }

    fn evaluation_in(&self, rows: u64, chunk: u64) -> Result<Planned, SearchError> {
        let mut spec = self.spec(None, rows);
        if let Some(eval) = &mut spec.eval {
            eval.head_chunk = chunk;
        }
        Ok(Planned::new(self.run, &spec, None, self.machine)?)
    }

    fn smallest_cut(&self, search: &Search<'_>) -> Result<Cut, SearchError> {
        let sequences = self.run.sequences_per_iteration();
        let (level, _) = search.least()?;
        Ok(Cut {
            slices: cut(sequences, sequences),
            head_chunk: plan::ops::TOKEN_BLOCK,
            levels: vec![level; self.dims.n_layer as usize],
            levers: self.levers,
        })
    }

    /// Bytes of everything but training slices and the kernels' scratch: what outlives them, the
    /// device's context, and what the host keeps beside where device and host are one; and of state
    /// in host memory.
    fn outside_training(&self) -> Result<[u64; 2], SearchError> {
        let train = TrainSpec { slices: Vec::new(), ..self.train_spec() };
        let spec = ProgramSpec { eval: None, generate: None, ..self.spec(Some(train), 1) };
        let Draft { program, schedule, .. } = Draft::new(&spec, Rc::clone(&self.machine.scratch))?;
        let held = |scope| schedule.tensors.held_bytes(scope).map_or(u64::MAX, Bytes::get);
        let device = held(Scope::Run).saturating_sub(scratch_bytes(&schedule));
        let host = HostBytes::new(self.run, &program, &schedule.tensors).total();
        let counted = if self.machine.host.is_none() { host } else { 0 };
        let all = device.saturating_add(counted);
        Ok([all.saturating_add(self.machine.hardware.context.get()), held(Scope::Host)])
    }

    /// What is missing, counted from the smallest plan with any permitted levers.
    fn refuse(&self) -> Result<SearchError, SearchError> {
        let mut least: Option<Refusal> = None;
        for levers in Levers::permitted(self.run, self.machine) {
            let planned = Task { levers, ..*self }.smallest()?;
            let refusal = Refusal::of(&planned, self.machine);
            let size = |refusal: &Refusal| refusal.missing.max(refusal.missing_host);
            if least.as_ref().is_none_or(|least| size(&refusal) < size(least)) {
                least = Some(refusal);
            }
        }
        let none = || Refusal { budget: self.machine.budget, ..Refusal::default() };
        Ok(SearchError::DoesNotFit(Box::new(least.unwrap_or_else(none))))
    }

    fn train_spec(&self) -> TrainSpec {
        TrainSpec {
            slices: Vec::new(),
            positions: self.run.block_size,
            head_chunk: EVAL_CHUNK,
            loss_rows: self.run.sequences_per_iteration(),
            levels: Vec::new(),
            optimizer: self.optimizer(),
        }
    }

    /// Everything that the run does. Evaluation is cut into slices of at most `rows` sequences: it
    /// keeps so little that it fits wherever a training slice of that size does.
    fn spec(&self, train: Option<TrainSpec>, rows: u64) -> ProgramSpec {
        let run = self.run;
        let head_chunk = train.as_ref().map_or(EVAL_CHUNK, |train| train.head_chunk);
        let eval = EvalSpec {
            slices: cut(run.eval_batch_size, run.eval_batch_size.div_ceil(rows.max(1))),
            positions: run.eval_block_size,
            head_chunk,
            loss_rows: run.eval_batch_size,
        };
        let generate = Some(generate(&self.dims));
        let types = self.machine.types(run, self.levers);
        ProgramSpec { model: model(run, self.dims, types), train, eval: Some(eval), generate }
    }

    fn optimizer(&self) -> OptimizerSpec {
        let RunSpec { beta1, beta2, weight_decay, .. } = *self.run;
        let scaling = match self.machine.compute {
            Dtype::F16 => Scaling::Dynamic { growth_interval: GROWTH_INTERVAL },
            _ => Scaling::Off,
        };
        let offload = self.levers.offload.then_some(OFFLOAD_WINDOW);
        let rule = AdamW { beta1, beta2, eps: ADAM_EPS, weight_decay }.into();
        OptimizerSpec { rule, scaling, offload }
    }
}

/// Levels that the run permits, weakest first.
fn levels(run: &RunSpec) -> &'static [Level] {
    match run.grad_checkpoint {
        GradCheckpoint::Auto => &Level::ALL,
        GradCheckpoint::Always => &[Level::R6],
        GradCheckpoint::Never => &[Level::R0],
    }
}

/// Slices are listed one by one, and the host holds a whole iteration.
fn check_sequences(run: &RunSpec) -> Result<(), SearchError> {
    let sequences = run.sequences_per_iteration().max(run.eval_batch_size);
    if sequences > MOST_SEQUENCES {
        let needed = sequences.saturating_mul(run.block_size).saturating_mul(8);
        let needed = Bytes::new(needed.min(i64::MAX as u64)).unwrap_or(Bytes::ZERO);
        return Err(SearchError::TooManySequences { sequences, most: MOST_SEQUENCES, needed });
    }
    Ok(())
}

/// A model may come from a checkpoint with a shorter context than the run asks for.
fn check_context(run: &RunSpec, dims: &Dims) -> Result<(), SearchError> {
    let (asked, most) = (run.block_size, dims.block_size);
    if asked > most {
        return Err(SearchError::TooManyPositions { asked, most });
    }
    Ok(())
}

fn model(run: &RunSpec, dims: Dims, types: Types) -> ModelSpec {
    let architecture = Gpt2 { gelu: run.gelu_kind() }.into();
    ModelSpec { architecture, dims, dropout: run.dropout as f32, types }
}

/// A prompt is padded to the next power of two, so no long context waits for more than twice its
/// length; the shortest ones wait for nothing that could be measured.
fn generate(dims: &Dims) -> GenerateSpec {
    let powers = (SHORTEST_PREFILL..u64::BITS).map(|shift| 1u64 << shift);
    let mut prefill: Vec<u64> = powers.take_while(|&length| length < dims.block_size).collect();
    prefill.push(dims.block_size);
    GenerateSpec { rows: GENERATED_ROWS, prefill }
}
