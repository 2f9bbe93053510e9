//! The program on its backend: writing batches, running slices and updates, reading losses. The
//! one place that knows which tensor is which.

use crate::error::TrainError;
use crate::host::{ids_to_bytes, room, words_to_floats};
use model::{Dims, LossSegment, Program};
use plan::ops::{Op, Scaling};
use plan::{Backend, Bytes, Plan, StepInputs, StepState, half};
use search::HostBytes;

/// PyTorch's GradScaler starts so; without scaling the loss is as it is.
const FIRST_LOSS_SCALE: f32 = 65536.0;

/// A backend with its program and the host's buffers, made once.
pub struct Engine {
    backend: Box<dyn Backend>,
    program: Program,
    dims: Dims,
    bytes: Vec<u8>,
    losses: Vec<f32>,
}

/// Sequences with their targets, `positions` ids each.
pub struct Rows {
    /// Inputs.
    pub tokens: Vec<i32>,
    /// What follows each of them.
    pub targets: Vec<i32>,
    /// Ids of a sequence.
    pub positions: usize,
}

impl Rows {
    /// Room for so many sequences.
    pub fn new(rows: u64, positions: u64) -> Result<Rows, TrainError> {
        Rows::with_tokens(rows.saturating_mul(positions), positions)
    }

    /// Room of so many bytes, as the table of the host's buffers has it.
    pub fn of_bytes(bytes: Bytes, positions: u64) -> Result<Rows, TrainError> {
        Rows::with_tokens(bytes.get() / HostBytes::PER_TOKEN, positions)
    }

    fn with_tokens(tokens: u64, positions: u64) -> Result<Rows, TrainError> {
        let room = || room(tokens, "batches");
        Ok(Rows { tokens: room()?, targets: room()?, positions: positions as usize })
    }
}

impl Engine {
    /// A loaded backend and its program.
    pub fn new(backend: Box<dyn Backend>, program: Program, dims: Dims) -> Engine {
        Engine { backend, program, dims, bytes: Vec::new(), losses: Vec::new() }
    }

    /// The model's sizes.
    pub fn dims(&self) -> &Dims {
        &self.dims
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The plan, which the backend holds.
    pub fn plan(&self) -> &Plan {
        self.backend.plan()
    }

    /// The backend.
    pub fn backend(&mut self) -> &mut dyn Backend {
        &mut *self.backend
    }

    /// Bytes obtained for the plan.
    pub fn arena_bytes(&self) -> u64 {
        self.backend.arena_bytes().get()
    }

    /// New weights as nanoGPT draws them; the generator is left where its first batch is drawn.
    pub fn initialise(&mut self, generator: &mut rng::torch::Generator) -> Result<(), TrainError> {
        let Engine { backend, program, dims, bytes, .. } = self;
        let table: Vec<_> = program.parameters.iter().map(|row| row.param.clone()).collect();
        let mut result = Ok(());
        model::init::nanogpt(dims, &table, generator, |index, first, values| {
            let row = &program.parameters[index];
            let copies = [Some(row.weight), Some(row.compute).filter(|&id| id != row.weight)];
            for id in copies.into_iter().flatten() {
                let dtype = backend.plan().schedule.tensors.get(id).dtype;
                bytes.clear();
                half::encode(dtype, values, bytes);
                if result.is_ok() {
                    result = backend.write_at(id, first * dtype.size(), bytes);
                }
            }
        });
        result?;
        let scale = self.first_loss_scale();
        self.set_state(&StepState::initial(scale))
    }

    /// What the loss is multiplied by at the beginning of a run.
    fn first_loss_scale(&self) -> f32 {
        let schedule = &self.backend.plan().schedule;
        let steps = self.program.update.map_or(&[][..], |id| &schedule.segment(id).steps);
        let scales = |step: &plan::Step| match &step.op {
            Op::LossScaler(op) => matches!(op.scaling, Scaling::Dynamic { .. }),
            _ => false,
        };
        if steps.iter().any(scales) { FIRST_LOSS_SCALE } else { 1.0 }
    }

    /// After a checkpoint of a run in another format: a scale where there was none, or none where
    /// there was one.
    pub fn settle_loss_scale(&mut self) -> Result<(), TrainError> {
        let (state, first) = (self.state()?, self.first_loss_scale());
        // A scale that fell to 1 was halved just now, or has been counting clean updates since.
        let was_scaled = state.loss_scale != 1.0 || state.growth > 0 || state.skipped;
        if was_scaled == (first != 1.0) {
            return Ok(());
        }
        self.set_state(&StepState { loss_scale: first, growth: 0, ..state })
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
        Ok(StepState::from_words(&bytes.map(u32::from_le_bytes)))
    }

    /// Forward and backward of an iteration's sequences, slice by slice; gradients add up. Before
    /// each slice `go_on` hears which share is done; where it answers no, the rest is left out and
    /// the answer is false.
    pub fn train_rows(
        &mut self,
        rows: &Rows,
        step: &StepInputs,
        go_on: &mut dyn FnMut(f64) -> bool,
    ) -> Result<bool, TrainError> {
        let Engine { backend, program, bytes, .. } = self;
        let slices = (&program.train[..], &program.train_slices[..]);
        run_rows(&mut **backend, bytes, slices, rows, step, go_on)
    }

    /// Losses of sequences, without gradients; `go_on` as for training.
    pub fn eval_rows(
        &mut self,
        rows: &Rows,
        go_on: &mut dyn FnMut(f64) -> bool,
    ) -> Result<bool, TrainError> {
        let Engine { backend, program, bytes, .. } = self;
        let slices = (&program.eval[..], &program.eval_slices[..]);
        run_rows(&mut **backend, bytes, slices, rows, &StepInputs::default(), go_on)
    }

    /// The parameter update.
    pub fn update(&mut self, step: &StepInputs) -> Result<(), TrainError> {
        match self.program.update {
            Some(update) => Ok(self.backend.run(update, step)?),
            None => Ok(()),
        }
    }

    /// Summed loss of each of the first `rows` sequences that ran last.
    pub fn row_losses(&mut self, rows: u64) -> Result<&[f32], TrainError> {
        if let Some(row_loss) = self.program.row_loss {
            self.bytes.resize(rows as usize * 4, 0);
            self.backend.read_at(row_loss, 0, &mut self.bytes)?;
            words_to_floats(&self.bytes, &mut self.losses);
        }
        Ok(&self.losses)
    }
}

/// Writes the sequences of each slice and runs it. `bytes` is reused.
fn run_rows(
    backend: &mut dyn Backend,
    bytes: &mut Vec<u8>,
    (segments, slices): (&[LossSegment], &[u64]),
    rows: &Rows,
    step: &StepInputs,
    go_on: &mut dyn FnMut(f64) -> bool,
) -> Result<bool, TrainError> {
    let total = (rows.tokens.len() / rows.positions) as u64;
    if slices.iter().sum::<u64>() != total {
        let what = format!("{total} sequences in slices of {slices:?}");
        return Err(plan::BackendError::Unsupported { what }.into());
    }
    let mut first_row = 0;
    for size in slices {
        if !go_on(first_row as f64 / total as f64) {
            return Ok(false);
        }
        let Some(slice) = segments.iter().find(|segment| segment.rows == *size) else {
            let what = format!("no slice of {size} sequences");
            return Err(plan::BackendError::Unsupported { what }.into());
        };
        let ids = |row: u64| row as usize * rows.positions;
        let range = ids(first_row)..ids(first_row + slice.rows);
        for (tensor, ids) in [(slice.tokens, &rows.tokens), (slice.targets, &rows.targets)] {
            bytes.clear();
            ids_to_bytes(&ids[range.clone()], bytes);
            backend.write(tensor, bytes)?;
        }
        backend.run(slice.segment, &StepInputs { first_row, ..*step })?;
        first_row += slice.rows;
    }
    Ok(true)
}
