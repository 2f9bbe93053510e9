//! A plan executed on the CPU: nothing is allocated inside a step, the bytes obtained are those
//! planned, and every number has the bits of the run that keeps everything in all the memory there
//! is. Where an iteration is cut differently, sums are only reordered.

use super::draw::Drawn;
use cpu::{CpuBackend, CpuOptions};
use plan::{ALIGNMENT, Backend, BackendError, Bytes, Plan, SegmentId, StepInputs, TensorId};
use rng::{Purpose, Stream};
use spec::{Choice, GradCheckpoint, Machine, Planned, RunSpec, plan_again, plan_for};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use train::TrainError;
use train::engine::{Engine, Rows};
use train::generate::{Request, generate};

/// Iterations of a run.
const ITERATIONS: u64 = 3;
/// Tokens that are generated.
const GENERATED: u64 = 5;
/// The whole vocabulary's logits at one time: a chunk that is never reached.
const UNCUT: u64 = 1 << 20;

/// Largest difference of a loss, as a share of it, where sums are reordered.
const REORDERED: f32 = 1e-3;

/// What a run computed.
#[derive(Debug, Default)]
struct Trace {
    train_losses: Vec<f32>,
    eval_losses: Vec<f32>,
    weights: Vec<u8>,
    generated: Vec<i32>,
}

/// Executes a plan and compares it with the run that keeps everything, and with the run as it would
/// be planned without a limit.
pub fn on_cpu(
    tight: &Planned,
    drawn: &Drawn,
    spacious: &Machine,
    threads: usize,
) -> Result<(), String> {
    let choice = tight.choice.clone().ok_or("nothing is trained")?;
    let found = trace(tight, drawn, threads)?;
    let levels = vec![model::Level::R0; choice.levels.len()];
    let uncut = Choice { head_chunk: UNCUT, levels, ..choice };
    // A user who wants recompute everywhere would not get a plan without it.
    let run = RunSpec { grad_checkpoint: GradCheckpoint::Auto, ..drawn.run.clone() };
    let kept = plan_again(&run, drawn.dims, spacious, &uncut);
    let kept = kept.map_err(|error| error.to_string())??;
    same_bits(&found, &trace(&kept, drawn, threads)?)?;
    let free = plan_for(&drawn.run, drawn.dims, spacious).map_err(|error| error.to_string())?;
    if free.choice.as_ref().map(|free| free.levers) == tight.choice.as_ref().map(|c| c.levers) {
        nearly(&found, &trace(&free, drawn, threads)?)?;
    }
    Ok(())
}

fn same_bits(found: &Trace, want: &Trace) -> Result<(), String> {
    let bits = |losses: &[f32]| losses.iter().map(|loss| loss.to_bits()).collect::<Vec<_>>();
    if bits(&found.train_losses) != bits(&want.train_losses) {
        return Err("losses of training have other bits than without a limit".to_owned());
    }
    if bits(&found.eval_losses) != bits(&want.eval_losses) {
        return Err("losses of the evaluation have other bits than without a limit".to_owned());
    }
    if found.weights != want.weights {
        return Err("weights have other bits than without a limit".to_owned());
    }
    match found.generated == want.generated {
        true => Ok(()),
        false => Err("other tokens are generated than without a limit".to_owned()),
    }
}

/// Other slices reorder sums, and three small updates spread what that changes.
fn nearly(found: &Trace, want: &Trace) -> Result<(), String> {
    for (found, want) in found.train_losses.iter().zip(&want.train_losses) {
        if (found - want).abs() > REORDERED * want.abs() {
            return Err(format!("a loss of {found} is {want} when cut otherwise"));
        }
    }
    Ok(())
}

/// Trains, evaluates and generates.
fn trace(planned: &Planned, drawn: &Drawn, threads: usize) -> Result<Trace, String> {
    let before = counting::asked_at(ALIGNMENT);
    let backend = CpuBackend::new(planned.plan.clone(), CpuOptions::new(threads));
    let backend = backend.map_err(|error| error.to_string())?;
    let obtained = counting::asked_at(ALIGNMENT) - before;
    let wanted = planned.plan.arena_bytes.get() + planned.plan.host_bytes.get();
    // A test binary without the counting allocator sees none.
    if obtained != wanted && counting::calls() > 0 {
        return Err(format!("{obtained} bytes obtained, {wanted} planned"));
    }
    let allocations = Arc::new(AtomicU64::new(0));
    let counted = Counted { inner: backend, allocations: Arc::clone(&allocations) };
    let mut engine = Engine::new(Box::new(counted), planned.program.clone(), drawn.dims);
    let trace = run(&mut engine, drawn).map_err(|error| error.to_string())?;
    match allocations.load(Ordering::Relaxed) {
        0 => Ok(trace),
        count => Err(format!("{count} allocations inside steps")),
    }
}

/// Everything a run does, on any device.
fn run(engine: &mut Engine, drawn: &Drawn) -> Result<Trace, TrainError> {
    let Drawn { run, dims, .. } = drawn;
    let mut trace = Trace::default();
    engine.initialise(&mut rng::torch::Generator::new(1337))?;
    let sequences = run.sequences_per_iteration();
    for iteration in 0..ITERATIONS {
        let step = StepInputs {
            lr: 1e-3,
            grad_clip: 1.0,
            iteration,
            seed: 7,
            inverse_tokens: 1.0 / run.tokens_per_iteration() as f32,
            ..StepInputs::default()
        };
        let rows = rows(sequences, run.block_size, dims.vocab_size, iteration)?;
        engine.train_rows(&rows, &step, &mut |_| true)?;
        engine.update(&step)?;
        trace.train_losses.extend(engine.row_losses(sequences)?);
    }
    let eval = rows(run.eval_batch_size, run.eval_block_size, dims.vocab_size, 99)?;
    engine.eval_rows(&eval, &mut |_| true)?;
    trace.eval_losses.extend(engine.row_losses(run.eval_batch_size)?);
    let choice = train::sampling::Choice { temperature: 1.0, top_k: 0 };
    let prompt = vec![1, 2, 3];
    let request = Request { prompt, max_new_tokens: GENERATED, choice, seed: 1, index: 0 };
    generate(engine, &request, |token| {
        trace.generated.push(token);
        true
    })?;
    let weights: Vec<TensorId> = engine.program().parameters.iter().map(|row| row.weight).collect();
    for weight in weights {
        let bytes = engine.program().schedule.tensors.bytes(weight).get();
        let mut content = vec![0; bytes as usize];
        engine.backend().read(weight, &mut content)?;
        trace.weights.extend(content);
    }
    Ok(trace)
}

/// Ids that depend on the iteration alone.
pub fn rows(count: u64, positions: u64, vocabulary: u64, at: u64) -> Result<Rows, TrainError> {
    let mut rows = Rows::new(count, positions)?;
    let mut stream = Stream::new(5, Purpose::TrainBatch, at);
    rows.tokens.fill_with(|| stream.below(vocabulary) as i32);
    rows.targets.fill_with(|| stream.below(vocabulary) as i32);
    Ok(rows)
}

/// A backend whose steps are watched.
struct Counted {
    inner: CpuBackend,
    allocations: Arc<AtomicU64>,
}

impl Backend for Counted {
    fn plan(&self) -> &Plan {
        self.inner.plan()
    }

    fn arena_bytes(&self) -> Bytes {
        self.inner.arena_bytes()
    }

    fn write_at(
        &mut self,
        tensor: TensorId,
        offset: u64,
        content: &[u8],
    ) -> Result<(), BackendError> {
        self.inner.write_at(tensor, offset, content)
    }

    fn read_at(
        &mut self,
        tensor: TensorId,
        offset: u64,
        content: &mut [u8],
    ) -> Result<(), BackendError> {
        self.inner.read_at(tensor, offset, content)
    }

    fn run(&mut self, segment: SegmentId, inputs: &StepInputs) -> Result<(), BackendError> {
        let before = counting::calls();
        let outcome = self.inner.run(segment, inputs);
        self.allocations.fetch_add(counting::calls() - before, Ordering::Relaxed);
        outcome
    }

    fn run_timed(
        &mut self,
        segment: SegmentId,
        inputs: &StepInputs,
    ) -> Result<Vec<f64>, BackendError> {
        self.inner.run_timed(segment, inputs)
    }
}
