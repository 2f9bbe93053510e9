//! Executes a plan on the CPU and checks that no step allocates, that the bytes obtained are the
//! bytes planned, and that every number has the same bits as in a run with unlimited memory that
//! recomputes nothing. If an iteration is sliced differently, only the order of sums changes.

use super::draw::Drawn;
use cpu::{CpuBackend, CpuOptions, CpuScratch};
use plan::{
    ALIGNMENT, Backend, BackendError, Bytes, Plan, SegmentId, StepInputs, TensorId, verify,
};
use rng::{Purpose, Stream};
use search::{Cut, Machine, Planned, plan_again, plan_for};
use spec::{GradCheckpoint, RunSpec};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use train::TrainError;
use train::engine::{Engine, Rows};
use train::generate::{SampleRequest, generate};

/// Iterations of a run.
const ITERATIONS: u64 = 3;
/// Tokens that are generated.
const GENERATED: u64 = 5;
/// A head chunk larger than any batch, so that all logits are computed at once.
const UNCUT: u64 = 1 << 20;

/// Largest relative difference of a loss if f32 sums are reordered.
pub const REORDERED: f32 = 1e-3;

/// What a run computed.
#[derive(Clone, Debug, Default)]
pub struct RunResult {
    /// Loss of each row of each iteration, in order.
    pub train_losses: Vec<f32>,
    /// Loss of each row of the evaluation after them.
    pub eval_losses: Vec<f32>,
    /// All weights at the end; empty if they are not compared.
    weights: Vec<u8>,
    generated: Vec<i32>,
}

/// Executes a plan and compares it with the run that recomputes nothing, and with the run planned
/// without a memory limit.
pub fn on_cpu(
    tight: &Planned,
    drawn: &Drawn,
    spacious: &Machine,
    threads: usize,
) -> Result<(), String> {
    let cut = tight.cut().ok_or("the plan does not train")?;
    let found = trace(tight, drawn, threads)?;
    let kept = keeping_everything(cut, drawn, spacious)?;
    same_bits(&found, &trace(&kept, drawn, threads)?)?;
    let free = plan_for(&drawn.run, drawn.dims, spacious).map_err(|error| error.to_string())?;
    if free.cut().map(|free| free.state_options) == tight.cut().map(|c| c.state_options) {
        nearly(&found, &trace(&free, drawn, threads)?, REORDERED)?;
    }
    Ok(())
}

/// The plan with the same slices, without recompute and with all logits at once.
pub fn keeping_everything(cut: Cut, drawn: &Drawn, spacious: &Machine) -> Result<Planned, String> {
    let levels = vec![model::Level::R0; cut.levels.len()];
    let uncut = Cut { head_chunk: UNCUT, levels, ..cut };
    // With `grad_checkpoint` set, the planner would refuse a plan without recompute.
    let run = RunSpec { grad_checkpoint: GradCheckpoint::Auto, ..drawn.run.clone() };
    plan_again(&run, drawn.dims, spacious, &uncut).map_err(|error| error.to_string())?
}

fn same_bits(found: &RunResult, want: &RunResult) -> Result<(), String> {
    let bits = |losses: &[f32]| losses.iter().map(|loss| loss.to_bits()).collect::<Vec<_>>();
    if bits(&found.train_losses) != bits(&want.train_losses) {
        return Err("training losses differ in bits from the run without a limit".to_owned());
    }
    if bits(&found.eval_losses) != bits(&want.eval_losses) {
        return Err("evaluation losses differ in bits from the run without a limit".to_owned());
    }
    if found.weights != want.weights {
        return Err("weights differ in bits from the run without a limit".to_owned());
    }
    match found.generated == want.generated {
        true => Ok(()),
        false => Err("generated tokens differ from the run without a limit".to_owned()),
    }
}

/// Other slices reorder sums, and three small updates amplify the difference, so each loss may
/// differ by this fraction. NaN differs from everything.
pub fn nearly(found: &RunResult, want: &RunResult, share: f32) -> Result<(), String> {
    let parts = [
        ("training", &found.train_losses, &want.train_losses),
        ("evaluation", &found.eval_losses, &want.eval_losses),
    ];
    for (part, found, want) in parts {
        if found.len() != want.len() {
            let (found, want) = (found.len(), want.len());
            return Err(format!("{found} losses of {part}, but {want} with other slices"));
        }
        let is_near = |found: f32, want: f32| (found - want).abs() <= share * want.abs();
        let mut pairs = found.iter().zip(want);
        if let Some((found, want)) = pairs.find(|(found, want)| !is_near(**found, **want)) {
            return Err(format!("a loss of {part} is {found}, but {want} with other slices"));
        }
    }
    Ok(())
}

/// Checks that every loss is finite.
fn finite(trace: &RunResult) -> Result<(), String> {
    let mut losses = trace.train_losses.iter().chain(&trace.eval_losses);
    match losses.find(|loss| !loss.is_finite()) {
        None => Ok(()),
        Some(loss) => Err(format!("a loss is {loss}")),
    }
}

/// Trains, evaluates and generates.
fn trace(planned: &Planned, drawn: &Drawn, threads: usize) -> Result<RunResult, String> {
    let before = counting::asked_at(ALIGNMENT);
    let proved = verify(planned.plan.clone(), CpuScratch { threads });
    let backend = proved
        .map_err(BackendError::from)
        .and_then(|proved| CpuBackend::new(proved, CpuOptions::new(threads)));
    let backend = backend.map_err(|error| error.to_string())?;
    let obtained = counting::asked_at(ALIGNMENT) - before;
    let wanted = planned.plan.arena_bytes.get() + planned.plan.host_bytes.get();
    // A test binary without the counting allocator counts nothing.
    if obtained != wanted && counting::calls() > 0 {
        return Err(format!("{obtained} bytes obtained, but {wanted} planned"));
    }
    let allocations = Arc::new(AtomicU64::new(0));
    let counted = Counted { inner: backend, allocations: Arc::clone(&allocations) };
    let mut engine = Engine::new(Box::new(counted), planned.program.clone(), drawn.dims);
    let mut trace = run(&mut engine, drawn)?;
    trace.weights = weights(&mut engine).map_err(|error| error.to_string())?;
    match allocations.load(Ordering::Relaxed) {
        0 => Ok(trace),
        count => Err(format!("{count} allocations inside steps")),
    }
}

/// Trains, evaluates and generates on any device; every loss must be finite.
pub fn run(engine: &mut Engine, drawn: &Drawn) -> Result<RunResult, String> {
    let trace = traced(engine, drawn).map_err(|error| error.to_string())?;
    finite(&trace)?;
    Ok(trace)
}

fn traced(engine: &mut Engine, drawn: &Drawn) -> Result<RunResult, TrainError> {
    let Drawn { run, dims, .. } = drawn;
    let mut trace = RunResult::default();
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
    let options = train::sampling::DrawOptions { temperature: 1.0, top_k: 0, top_p: 1.0 };
    let prompt = vec![1, 2, 3];
    let request = SampleRequest { prompt, max_new_tokens: GENERATED, options, seed: 1, index: 0 };
    generate(engine, &request, |token| {
        trace.generated.push(token);
        true
    })?;
    Ok(trace)
}

fn weights(engine: &mut Engine) -> Result<Vec<u8>, TrainError> {
    let mut all = Vec::new();
    for index in 0..engine.program().parameters.len() {
        all.extend(engine.weights(index)?);
    }
    Ok(all)
}

/// Token ids that depend only on the iteration.
fn rows(count: u64, positions: u64, vocabulary: u64, at: u64) -> Result<Rows, TrainError> {
    let mut rows = Rows::new(count, positions)?;
    let mut stream = Stream::new(5, Purpose::TrainBatch, at);
    rows.tokens.fill_with(|| stream.below(vocabulary) as i32);
    rows.targets.fill_with(|| stream.below(vocabulary) as i32);
    Ok(rows)
}

/// A backend that counts the allocations of its steps.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(train: &[f32], eval: &[f32]) -> RunResult {
        let (train_losses, eval_losses) = (train.to_vec(), eval.to_vec());
        RunResult { train_losses, eval_losses, ..RunResult::default() }
    }

    #[test]
    fn nan_differs_from_everything() {
        let want = losses(&[4.0, 5.0], &[3.0]);
        assert_eq!(nearly(&losses(&[4.001, 5.0], &[3.0]), &want, 1e-3), Ok(()));
        let nan = f32::NAN;
        for (found, want) in [
            (losses(&[nan, 5.0], &[3.0]), want.clone()),
            (want.clone(), losses(&[4.0, nan], &[3.0])),
            (losses(&[nan, 5.0], &[3.0]), losses(&[nan, 5.0], &[3.0])),
            (losses(&[4.0, 5.0], &[nan]), want.clone()),
            (losses(&[4.0, 5.1], &[3.0]), want.clone()),
            (losses(&[4.0], &[3.0]), want.clone()),
        ] {
            assert!(nearly(&found, &want, 1e-3).is_err(), "{found:?} {want:?}");
        }
        assert_eq!(finite(&want), Ok(()));
        for bad in [nan, f32::INFINITY] {
            assert!(finite(&losses(&[bad], &[])).is_err() && finite(&losses(&[], &[bad])).is_err());
        }
    }
}
