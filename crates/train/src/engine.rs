//! The program on its backend: writes batches, runs slices and updates, reads losses. Only this
//! file knows which tensor is which.

use crate::error::TrainError;
use crate::host::{ids_to_bytes, room, words_to_floats};
use crate::outer::{Outer, OuterStep};
use crate::weights;
use model::{Dims, LossSegment, Program, slice_segment};
use plan::ops::{Op, Scaling};
use plan::{Backend, BackendError, Bytes, LateRead, Plan, StepInputs, StepState, TensorId};
use search::HostBytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where PyTorch's GradScaler starts. Without loss scaling, the scale is 1.
const FIRST_LOSS_SCALE: f32 = 65536.0;

/// A backend with its program, and host buffers that are reused.
pub struct Engine {
    backend: Box<dyn Backend>,
    program: Program,
    dims: Dims,
    bytes: Vec<u8>,
    losses: Vec<f32>,
    /// The outer step, if ranks train alone in between.
    outer: Option<Outer>,
    /// Steps through the run, for other ranks: all ranks count the same ones.
    steps: Arc<AtomicU64>,
}

/// What an iteration or an evaluation batch leaves behind, on its way to the host. Reused.
#[derive(Debug, Default)]
pub struct Report {
    state: LateRead,
    row_losses: LateRead,
    losses: Vec<f32>,
    /// How many ranks' losses it has; each rank's end with its request to stop.
    ranks: usize,
}

impl Report {
    /// Whether everything is on the host already.
    pub fn is_here(&self) -> bool {
        self.state.slot.is_none() && self.row_losses.slot.is_none()
    }

    /// The summed loss of each sequence that this rank has, after [`Engine::finish_report`].
    pub fn losses(&self) -> &[f32] {
        self.losses_of(0)
    }

    /// As [`Report::losses`], of any rank.
    pub fn losses_of(&self, rank: usize) -> &[f32] {
        if self.ranks <= 1 {
            return &self.losses;
        }
        let each = self.losses.len() / self.ranks;
        &self.losses[rank * each..(rank + 1) * each - 1]
    }

    /// Whether any rank was asked to stop.
    pub fn is_stopped(&self) -> bool {
        let each = self.losses.len() / self.ranks.max(1);
        self.ranks > 1 && self.losses.chunks_exact(each).any(|rank| rank[each - 1] > 0.0)
    }
}

/// Sequences and their targets, each of `positions` ids.
pub struct Rows {
    /// Input ids, one sequence after another.
    pub tokens: Vec<i32>,
    /// For each input the id that follows it.
    pub targets: Vec<i32>,
    /// Ids per sequence.
    pub positions: usize,
}

impl Rows {
    /// Buffers for `rows` sequences.
    pub fn new(rows: u64, positions: u64) -> Result<Rows, TrainError> {
        Rows::with_tokens(rows.saturating_mul(positions), positions)
    }

    /// Buffers of a size from the table of host buffers.
    pub fn of_bytes(bytes: Bytes, positions: u64) -> Result<Rows, TrainError> {
        Rows::with_tokens(bytes.get() / HostBytes::PER_TOKEN, positions)
    }

    fn with_tokens(tokens: u64, positions: u64) -> Result<Rows, TrainError> {
        let room = || room(tokens, "batches");
        Ok(Rows { tokens: room()?, targets: room()?, positions: positions as usize })
    }
}

impl Engine {
    /// Takes a loaded backend and its program.
    pub fn new(backend: Box<dyn Backend>, program: Program, dims: Dims) -> Engine {
        let (bytes, losses) = (Vec::new(), Vec::new());
        Engine { backend, program, dims, bytes, losses, outer: None, steps: Arc::default() }
    }

    /// The model's sizes.
    pub fn dims(&self) -> &Dims {
        &self.dims
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The plan that the backend holds.
    pub fn plan(&self) -> &Plan {
        self.backend.plan()
    }

    /// The backend.
    pub fn backend(&mut self) -> &mut dyn Backend {
        &mut *self.backend
    }

    /// The backend, and the program that runs on it.
    pub fn parts(&mut self) -> (&mut dyn Backend, &Program) {
        (&mut *self.backend, &self.program)
    }

    /// Counts its steps here from now on. Whoever watches the ranks compares their counts.
    pub fn count_steps(&mut self, steps: Arc<AtomicU64>) {
        self.steps = steps;
    }

    /// This rank begins something that the others do too.
    pub(crate) fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// An iteration begins. From here ranks count alike, whatever they counted before.
    pub(crate) fn step_to(&self, iteration: u64) {
        self.steps.store(iteration.saturating_add(1) << 32, Ordering::Relaxed);
    }

    /// Other ranks evaluate sequences, and this one has none.
    pub(crate) fn skip_eval_rows(&self) {
        self.steps.fetch_add(self.program.eval_slices.len() as u64, Ordering::Relaxed);
    }

    /// Ranks train alone from now on, and average every so often. Call it when the weights are
    /// there.
    pub fn begin_outer(&mut self, step: OuterStep) -> Result<(), TrainError> {
        self.outer = Some(Outer::new(step, self)?);
        Ok(())
    }

    /// The next outer step starts from the weights as they are now.
    pub fn restart_outer(&mut self) -> Result<(), TrainError> {
        self.with_outer(Outer::restart).map(|_| ())
    }

    /// Works on the outer step, if there is one.
    pub fn with_outer<T>(
        &mut self,
        work: impl FnOnce(&mut Outer, &mut Engine) -> Result<T, TrainError>,
    ) -> Result<Option<T>, TrainError> {
        let Some(mut outer) = self.outer.take() else { return Ok(None) };
        let done = work(&mut outer, self);
        self.outer = Some(outer);
        done.map(Some)
    }

    /// Whether there is an outer step.
    pub fn has_outer(&self) -> bool {
        self.outer.is_some()
    }

    /// Averages with the other ranks if that is due before this iteration. Returns whether it was.
    pub fn average_if_due(&mut self, iteration: u64) -> Result<bool, TrainError> {
        if !self.outer.as_ref().is_some_and(|outer| outer.is_due(iteration)) {
            return Ok(false);
        }
        self.average_now()?;
        Ok(true)
    }

    /// Averages with the other ranks, due or not.
    pub fn average_now(&mut self) -> Result<(), TrainError> {
        self.step();
        self.with_outer(Outer::average).map(|_| ())
    }

    /// Bytes allocated for the plan.
    pub fn arena_bytes(&self) -> u64 {
        self.backend.arena_bytes().get()
    }

    /// Draws new weights as nanoGPT does. The generator ends where nanoGPT draws its first batch.
    pub fn initialise(&mut self, generator: &mut rng::torch::Generator) -> Result<(), TrainError> {
        let Engine { backend, program, dims, bytes, .. } = self;
        let table: Vec<_> = program.parameters.iter().map(|row| row.param.clone()).collect();
        let mut result = Ok(());
        program.architecture.initialise(dims, &table, generator, |index, first, values| {
            let row = &program.parameters[index];
            if result.is_ok() {
                result = weights::write(&mut **backend, program, row, (first, values), bytes);
            }
        });
        result?;
        let scale = self.first_loss_scale();
        self.set_state(&StepState::initial(scale))
    }

    /// Advances a generator as [`Engine::initialise`] does, and keeps the weights.
    pub fn skip_initialisation(&self, generator: &mut rng::torch::Generator) {
        let rows = self.program.parameters.iter();
        let table: Vec<_> = rows.map(|row| row.param.clone()).collect();
        self.program.architecture.initialise(&self.dims, &table, generator, |_, _, _| {});
    }

    /// The loss scale at the start of a run.
    fn first_loss_scale(&self) -> f32 {
        let schedule = &self.backend.plan().schedule;
        let steps = self.program.update.map_or(&[][..], |id| &schedule.segment(id).steps);
        let scales = |step: &plan::Step| match &step.op {
            Op::LossScaler(op) => matches!(op.scaling, Scaling::Dynamic { .. }),
            _ => false,
        };
        if steps.iter().any(scales) { FIRST_LOSS_SCALE } else { 1.0 }
    }

    /// After loading a checkpoint that was trained in another format: starts loss scaling if the
    /// run had none, or ends it.
    pub fn settle_loss_scale(&mut self) -> Result<(), TrainError> {
        let (state, first) = (self.state()?, self.first_loss_scale());
        // A run with scaling can be at scale 1: then the last update was skipped, or clean updates
        // have been counted since.
        let was_scaled = state.loss_scale != 1.0 || state.growth > 0 || state.skipped;
        if was_scaled == (first != 1.0) {
            return Ok(());
        }
        self.set_state(&StepState { loss_scale: first, growth: 0, ..state })
    }

    /// Reads the weights of a parameter, as f32 if the run trains.
    pub fn weights(&mut self, index: usize) -> Result<Vec<u8>, TrainError> {
        let Engine { backend, program, .. } = self;
        let row = &program.parameters[index];
        let format = weights::format(&**backend, row);
        let mut content = vec![0; (row.param.shape.elements() * format.size()) as usize];
        weights::read(&mut **backend, row, &mut content)?;
        Ok(content)
    }

    /// Writes the step state.
    pub fn set_state(&mut self, state: &StepState) -> Result<(), TrainError> {
        let words = state.to_words().map(u32::to_le_bytes);
        Ok(self.backend.write(self.program.state, words.as_flattened())?)
    }

    /// Reads the step state.
    pub fn state(&mut self) -> Result<StepState, TrainError> {
        let mut bytes = [[0; 4]; StepState::WORDS];
        self.backend.read(self.program.state, bytes.as_flattened_mut())?;
        Ok(state_of(&bytes))
    }

    /// Forward and backward pass of an iteration's sequences, slice by slice; gradients accumulate.
    /// Before each slice, `keep_going` gets the share that is done. If it returns false, the rest
    /// is skipped and the result is false.
    pub fn train_rows(
        &mut self,
        rows: &Rows,
        step: &StepInputs,
        keep_going: &mut dyn FnMut(f64) -> bool,
    ) -> Result<bool, TrainError> {
        let Engine { backend, program, bytes, steps, .. } = self;
        let slices = (&program.train[..], &program.train_slices[..]);
        let (sharing, group) = (program.sharing, program.train_slices.iter().sum::<u64>());
        let rounds = sharing.rounds();
        check_rows(rows, slices.1, rounds)?;
        for round in 0..rounds {
            // Masks and losses are by the sequence's number in the iteration, on any rank.
            let first_row = step.first_row + sharing.group(round) * group;
            let step = StepInputs { first_row, ..*step };
            let mut keep_going = |share: f64| {
                steps.fetch_add(1, Ordering::Relaxed);
                keep_going((round as f64 + share) / rounds as f64)
            };
            let part = (rows, round * group);
            if !run_rows(&mut **backend, bytes, slices, part, &step, &mut keep_going)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Losses of sequences, without gradients; `keep_going` as in training.
    pub fn eval_rows(
        &mut self,
        rows: &Rows,
        keep_going: &mut dyn FnMut(f64) -> bool,
    ) -> Result<bool, TrainError> {
        let Engine { backend, program, bytes, steps, .. } = self;
        let slices = (&program.eval[..], &program.eval_slices[..]);
        check_rows(rows, slices.1, 1)?;
        let mut keep_going = |share: f64| {
            steps.fetch_add(1, Ordering::Relaxed);
            keep_going(share)
        };
        run_rows(&mut **backend, bytes, slices, (rows, 0), &StepInputs::default(), &mut keep_going)
    }

    /// Updates the parameters.
    pub fn update(&mut self, step: &StepInputs) -> Result<(), TrainError> {
        self.step();
        match self.program.update {
            Some(update) => Ok(self.backend.run(update, step)?),
            None => Ok(()),
        }
    }

    /// Starts to read the state and the losses of the first `rows` sequences of the last batch; of
    /// all ranks, if the update has brought them together. The next batch may run before
    /// [`Engine::finish_report`].
    pub fn begin_report(&mut self, report: &mut Report, rows: u64) -> Result<(), TrainError> {
        let of_all = self.program.row_losses.filter(|_| self.program.sharing.has_groups());
        self.begin(report, rows, of_all)
    }

    /// Brings the losses of all ranks together and starts to read them.
    pub fn begin_report_of_all(&mut self, report: &mut Report) -> Result<(), TrainError> {
        if let Some(segment) = self.program.gather_losses {
            self.backend.run(segment, &StepInputs::default())?;
        }
        self.begin(report, 0, self.program.row_losses)
    }

    fn begin(
        &mut self,
        report: &mut Report,
        rows: u64,
        of_all: Option<TensorId>,
    ) -> Result<(), TrainError> {
        let Engine { backend, program, .. } = self;
        backend.read_later(program.state, 0, StepState::WORDS * 4, &mut report.state)?;
        report.ranks = of_all.map_or(1, |_| program.sharing.rank.ranks);
        let (tensor, bytes) = match of_all {
            Some(all) => (Some(all), backend.plan().schedule.tensors.bytes(all).get()),
            None => (program.row_loss, rows * 4),
        };
        if let Some(row_loss) = tensor {
            backend.read_later(row_loss, 0, bytes as usize, &mut report.row_losses)?;
        }
        Ok(())
    }

    /// Waits for a report. Returns the state; the report then has the losses.
    pub fn finish_report(&mut self, report: &mut Report) -> Result<StepState, TrainError> {
        let words = self.backend.arrived(&mut report.state)?.as_chunks::<4>().0;
        let words = words.try_into().map_err(|_| {
            let what = format!("a state of {} words was read", words.len());
            BackendError::Internal { what }
        })?;
        let state = state_of(words);
        words_to_floats(self.backend.arrived(&mut report.row_losses)?, &mut report.losses);
        Ok(state)
    }

    /// Tells the other ranks, with the next losses, whether this one was asked to stop.
    pub fn ask_to_stop(&mut self, asked: bool) -> Result<(), TrainError> {
        let Engine { backend, program, .. } = self;
        let (Some(row_loss), Some(_)) = (program.row_loss, program.row_losses) else {
            return Ok(());
        };
        let rows = backend.plan().schedule.tensors.get(row_loss).shape.elements();
        let flag = if asked { 1.0f32 } else { 0.0 };
        Ok(backend.write_at(row_loss, (rows - 1) * 4, &flag.to_le_bytes())?)
    }

    /// The summed loss of each of the first `rows` sequences of the last batch.
    pub fn row_losses(&mut self, rows: u64) -> Result<&[f32], TrainError> {
        if let Some(row_loss) = self.program.row_loss {
            self.bytes.resize(rows as usize * 4, 0);
            self.backend.read_at(row_loss, 0, &mut self.bytes)?;
            words_to_floats(&self.bytes, &mut self.losses);
        }
        Ok(&self.losses)
    }
}

fn state_of(words: &[[u8; 4]; StepState::WORDS]) -> StepState {
    StepState::from_words(&words.map(u32::from_le_bytes))
}

/// The rows of a batch must be those of all slices, as often as there are rounds.
fn check_rows(rows: &Rows, slices: &[u64], rounds: u64) -> Result<(), TrainError> {
    let total = (rows.tokens.len() / rows.positions) as u64;
    if slices.iter().sum::<u64>() * rounds == total {
        return Ok(());
    }
    let what = format!("{total} sequences in {rounds} x slices of {slices:?}");
    Err(BackendError::Unsupported { what }.into())
}

/// Writes the sequences of each slice to the backend and runs it. The first slice begins with row
/// `first` of the batch. `bytes` is a reused buffer.
fn run_rows(
    backend: &mut dyn Backend,
    bytes: &mut Vec<u8>,
    (segments, slices): (&[LossSegment], &[u64]),
    (rows, first): (&Rows, u64),
    step: &StepInputs,
    keep_going: &mut dyn FnMut(f64) -> bool,
) -> Result<bool, TrainError> {
    let total = slices.iter().sum::<u64>();
    let mut done = 0;
    for index in 0..slices.len() {
        if !keep_going(done as f64 / total as f64) {
            return Ok(false);
        }
        let Some(slice) = slice_segment(segments, slices, index).map(|at| &segments[at]) else {
            let what = format!("no slice of {} sequences", slices[index]);
            return Err(BackendError::Unsupported { what }.into());
        };
        let ids = |row: u64| (first + row) as usize * rows.positions;
        let range = ids(done)..ids(done + slice.rows);
        for (tensor, ids) in [(slice.tokens, &rows.tokens), (slice.targets, &rows.targets)] {
            bytes.clear();
            ids_to_bytes(&ids[range.clone()], bytes);
            backend.write(tensor, bytes)?;
        }
        let first_row = step.first_row + done;
        backend.run(slice.segment, &StepInputs { first_row, ..*step })?;
        done += slice.rows;
    }
    Ok(true)
}
