//! The one place that turns a run into a program and a plan.

use crate::budget::{Choice, Machine, Search, cut, iteration_seconds};
use crate::error::SpecError;
use crate::run_spec::{GradCheckpoint, RunSpec};
use model::{
    Dims, EvalSpec, GenerateSpec, Level, ModelSpec, OptimizerSpec, Program, ProgramSpec, TrainSpec,
    Types,
};
use plan::ops::Scaling;
use plan::report::Bill;
use plan::{Bytes, Plan, Scratch};
use std::rc::Rc;

/// Tokens whose logits exist at one time when nothing is trained: the fastest measured for GPT-2's
/// vocabulary.
const EVAL_CHUNK: u64 = 4096;

/// Most sequences of an evaluation slice when nothing is trained.
const EVAL_ROWS: u64 = 16;

/// Sequences generated side by side.
const GENERATED_ROWS: u64 = 1;

/// PyTorch's default, which nanoGPT keeps.
const ADAM_EPS: f64 = 1e-8;

/// How often the estimate may be corrected by the plan that was built.
const CORRECTIONS: usize = 6;

/// Most sequences of an iteration or of an evaluation batch.
const MOST_SEQUENCES: u64 = 1 << 22;

/// Tensors that a refusal names.
const NAMED: usize = 5;

/// A run that fits.
#[derive(Clone, Debug)]
pub struct Planned {
    /// What is executed.
    pub program: Program,
    /// Where everything stands.
    pub plan: Plan,
    /// How training is cut, where there is training.
    pub choice: Option<Choice>,
    /// Predicted seconds of an iteration; 0 without training.
    pub seconds: f64,
}

impl Planned {
    fn new(
        spec: &ProgramSpec,
        choice: Option<Choice>,
        machine: &Machine,
    ) -> Result<Planned, SpecError> {
        let program = Program::new(spec, Rc::clone(&machine.scratch))?;
        let plan = Plan::new(program.schedule.clone())?;
        let slices = choice.as_ref().map_or(&[][..], |choice| &choice.slices);
        let seconds = match slices {
            [] => 0.0,
            slices => iteration_seconds(&program, slices, &machine.device),
        };
        Ok(Planned { program, plan, choice, seconds })
    }

    /// Bytes of the device: the arena and what driver and libraries take.
    pub fn device_bytes(&self, machine: &Machine) -> u64 {
        self.plan.arena_bytes.get().saturating_add(machine.device.context.get())
    }
}

/// The fastest plan of a training run that fits the machine: training unless only an evaluation is
/// asked for, evaluation, and generation for a sample.
pub fn plan_for(run: &RunSpec, dims: Dims, machine: &Machine) -> Result<Planned, SpecError> {
    check_context(run, &dims)?;
    if run.eval_only {
        let rows = run.eval_batch_size.min(EVAL_ROWS);
        let planned = Planned::new(&spec(run, (dims, machine.types), None, rows), None, machine)?;
        return within(planned, machine);
    }
    let train = train_spec(run);
    let levels: &[Level] = match run.grad_checkpoint {
        GradCheckpoint::Auto => &Level::ALL,
        GradCheckpoint::Always => &[Level::R6],
        GradCheckpoint::Never => &[Level::R0],
    };
    check_sequences(run)?;
    let whole = spec(run, (dims, machine.types), Some(train.clone()), 1);
    let sequences = run.sequences_per_iteration();
    let search = Search { spec: &whole, train: &train, sequences, levels, machine };
    // Without a limit first: a plan that fits anyway does not depend on how much is free today.
    let outside = outside_training(run, dims, &train, machine)?;
    let limit = machine.budget.get().saturating_sub(outside);
    let mut available = u64::MAX;
    for _ in 0..CORRECTIONS {
        let Some(choice) = search.best(available)? else {
            break;
        };
        let planned = build(run, dims, &train, choice, machine)?;
        let needed = planned.device_bytes(machine);
        match needed.checked_sub(machine.budget.get()) {
            None | Some(0) => return Ok(planned),
            Some(_) if available > limit => available = limit,
            Some(over) => available = available.saturating_sub(over),
        }
    }
    refuse(run, dims, &train, levels, machine)
}

/// The program and plan of generation alone.
pub fn plan_for_sample(
    run: &RunSpec,
    dims: Dims,
    scratch: Rc<dyn Scratch>,
) -> Result<(Program, Plan), SpecError> {
    let spec = ProgramSpec {
        model: model(run, dims, Types::F32),
        train: None,
        eval: None,
        generate: Some(generate(&dims)),
    };
    let program = Program::new(&spec, scratch)?;
    let plan = Plan::new(program.schedule.clone())?;
    Ok((program, plan))
}

/// The whole plan of a choice.
fn build(
    run: &RunSpec,
    dims: Dims,
    train: &TrainSpec,
    choice: Choice,
    machine: &Machine,
) -> Result<Planned, SpecError> {
    let train = TrainSpec {
        slices: choice.slices.clone(),
        head_chunk: choice.head_chunk,
        levels: choice.levels.clone(),
        ..train.clone()
    };
    let rows = choice.slices.first().copied().unwrap_or(1);
    Planned::new(&spec(run, (dims, machine.types), Some(train), rows), Some(choice), machine)
}

/// Bytes of everything but training slices: what outlives them, and the device's context.
fn outside_training(
    run: &RunSpec,
    dims: Dims,
    train: &TrainSpec,
    machine: &Machine,
) -> Result<u64, SpecError> {
    let train = TrainSpec { slices: Vec::new(), ..train.clone() };
    let spec = ProgramSpec {
        eval: None,
        generate: None,
        ..spec(run, (dims, machine.types), Some(train), 1)
    };
    let planned = Planned::new(&spec, None, machine)?;
    let held = planned.plan.schedule.tensors.held_bytes(plan::Scope::Run).unwrap_or(planned.plan.arena_bytes);
    Ok(held.get().saturating_add(machine.device.context.get()))
}

/// What is missing, counted from the smallest plan there is.
fn refuse(
    run: &RunSpec,
    dims: Dims,
    train: &TrainSpec,
    levels: &[Level],
    machine: &Machine,
) -> Result<Planned, SpecError> {
    let strongest = levels.last().copied().unwrap_or_default();
    let smallest = Choice {
        slices: cut(run.sequences_per_iteration(), run.sequences_per_iteration()),
        head_chunk: plan::ops::TOKEN_BLOCK,
        levels: vec![strongest; dims.n_layer as usize],
        seconds: 0.0,
        bytes: 0,
    };
    within(build(run, dims, train, smallest, machine)?, machine)
}

/// The plan, if it fits; else how much is missing and what is largest.
fn within(planned: Planned, machine: &Machine) -> Result<Planned, SpecError> {
    let needed = planned.device_bytes(machine);
    if needed <= machine.budget.get() {
        return Ok(planned);
    }
    let bill = Bill::new(&planned.plan);
    let fullest = bill.segments.iter().max_by_key(|segment| segment.top);
    let tensors = fullest.map_or(&[][..], |segment| &segment.tensors);
    let largest = tensors.iter().take(NAMED).map(|t| (t.name.clone(), t.bytes)).collect();
    let (budget, needed) = (machine.budget, Bytes::new(needed).unwrap_or(machine.budget));
    Err(SpecError::DoesNotFit { budget, needed, largest })
}

/// Slices are listed one by one, and the host holds a whole iteration.
fn check_sequences(run: &RunSpec) -> Result<(), SpecError> {
    let sequences = run.sequences_per_iteration().max(run.eval_batch_size);
    if sequences > MOST_SEQUENCES {
        let needed = sequences.saturating_mul(run.block_size).saturating_mul(8);
        let needed = Bytes::new(needed.min(i64::MAX as u64)).unwrap_or(Bytes::ZERO);
        return Err(SpecError::TooManySequences { sequences, most: MOST_SEQUENCES, needed });
    }
    Ok(())
}

/// A model may come from a checkpoint with a shorter context than the run asks for.
fn check_context(run: &RunSpec, dims: &Dims) -> Result<(), SpecError> {
    let (asked, most) = (run.block_size, dims.block_size);
    if asked > most {
        let what =
            format!("block_size={asked}: the model has {most} positions; use at most {most}");
        return Err(SpecError::Conflict { what });
    }
    Ok(())
}

fn train_spec(run: &RunSpec) -> TrainSpec {
    TrainSpec {
        slices: Vec::new(),
        positions: run.block_size,
        head_chunk: EVAL_CHUNK,
        loss_rows: run.sequences_per_iteration(),
        levels: Vec::new(),
        optimizer: optimizer(run),
    }
}

/// Everything that the run does. Evaluation is cut into slices of at most `rows` sequences: it
/// keeps so little that it fits wherever a training slice of that size does.
fn spec(
    run: &RunSpec,
    (dims, types): (Dims, Types),
    train: Option<TrainSpec>,
    rows: u64,
) -> ProgramSpec {
    let head_chunk = train.as_ref().map_or(EVAL_CHUNK, |train| train.head_chunk);
    let eval = EvalSpec {
        slices: cut(run.eval_batch_size, run.eval_batch_size.div_ceil(rows.max(1))),
        positions: run.eval_block_size,
        head_chunk,
        loss_rows: run.eval_batch_size,
    };
    let generate = Some(generate(&dims));
    ProgramSpec { model: model(run, dims, types), train, eval: Some(eval), generate }
}

fn model(run: &RunSpec, dims: Dims, types: Types) -> ModelSpec {
    ModelSpec { dims, dropout: run.dropout as f32, gelu: run.gelu_kind(), types }
}

fn optimizer(run: &RunSpec) -> OptimizerSpec {
    OptimizerSpec {
        beta1: run.beta1,
        beta2: run.beta2,
        eps: ADAM_EPS,
        weight_decay: run.weight_decay,
        scaling: Scaling::Off, // the CPU computes in f32
        offload: None,
    }
}

/// A prompt is padded to the next power of two, so no context waits for more than twice its length.
fn generate(dims: &Dims) -> GenerateSpec {
    let powers = (0..u64::BITS).map(|shift| 1u64 << shift);
    let mut prefill: Vec<u64> = powers.take_while(|&length| length < dims.block_size).collect();
    prefill.push(dims.block_size);
    GenerateSpec { rows: GENERATED_ROWS, prefill }
}
