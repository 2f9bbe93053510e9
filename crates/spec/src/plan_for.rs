//! The one place that turns a run into a program and a plan.

use crate::error::SpecError;
use crate::run_spec::RunSpec;
use model::{
    Dims, EvalSpec, GenerateSpec, ModelSpec, OptimizerSpec, Program, ProgramSpec, TrainSpec, Types,
};
use plan::ops::Scaling;
use plan::{Plan, Scratch};
use std::rc::Rc;

/// Tokens whose logits exist at one time: the fastest measured for GPT-2's vocabulary.
const HEAD_CHUNK: u64 = 4096;

/// Sequences generated side by side.
const GENERATED_ROWS: u64 = 1;

/// PyTorch's default, which nanoGPT keeps.
const ADAM_EPS: f64 = 1e-8;

/// The program and plan of a training run: training unless only an evaluation is asked for,
/// evaluation, and generation for a sample. `scratch` is what the backend needs for itself.
pub fn plan_for(
    run: &RunSpec,
    dims: Dims,
    scratch: Rc<dyn Scratch>,
) -> Result<(Program, Plan), SpecError> {
    check_context(run, &dims)?;
    let train = TrainSpec {
        slices: vec![run.batch_size],
        positions: run.block_size,
        head_chunk: HEAD_CHUNK,
        loss_rows: run.sequences_per_iteration(),
        levels: Vec::new(),
        optimizer: optimizer(run),
    };
    let eval = EvalSpec {
        slices: vec![run.eval_batch_size],
        positions: run.eval_block_size,
        head_chunk: HEAD_CHUNK,
        loss_rows: run.eval_batch_size * run.eval_iters, // resolve() has checked the product
    };
    let spec = ProgramSpec {
        model: model(run, dims),
        train: (!run.eval_only).then_some(train),
        eval: Some(eval),
        generate: Some(generate(&dims)),
    };
    build(&spec, scratch)
}

/// The program and plan of generation alone.
pub fn plan_for_sample(
    run: &RunSpec,
    dims: Dims,
    scratch: Rc<dyn Scratch>,
) -> Result<(Program, Plan), SpecError> {
    let spec = ProgramSpec {
        model: model(run, dims),
        train: None,
        eval: None,
        generate: Some(generate(&dims)),
    };
    build(&spec, scratch)
}

fn build(spec: &ProgramSpec, scratch: Rc<dyn Scratch>) -> Result<(Program, Plan), SpecError> {
    let program = Program::new(spec, scratch)?;
    let plan = Plan::new(program.schedule.clone())?;
    Ok((program, plan))
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

fn model(run: &RunSpec, dims: Dims) -> ModelSpec {
    ModelSpec { dims, dropout: run.dropout as f32, gelu: run.gelu_kind(), types: Types::F32 }
}

fn optimizer(run: &RunSpec) -> OptimizerSpec {
    OptimizerSpec {
        beta1: run.beta1,
        beta2: run.beta2,
        eps: ADAM_EPS,
        weight_decay: run.weight_decay,
        scaling: Scaling::Off, // every tensor of a program is f32 so far
    }
}

/// A prompt is padded to the next power of two, so no context waits for more than twice its length.
fn generate(dims: &Dims) -> GenerateSpec {
    let powers = (0..u64::BITS).map(|shift| 1u64 << shift);
    let mut prefill: Vec<u64> = powers.take_while(|&length| length < dims.block_size).collect();
    prefill.push(dims.block_size);
    GenerateSpec { rows: GENERATED_ROWS, prefill }
}
