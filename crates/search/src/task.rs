//! The programs of a run: what the architecture has to build for a cut, for an evaluation alone and
//! for a sample.

use crate::cut::{Cut, near_equal};
use crate::machine::{Machine, StateOptions};
use model::update::OFFLOAD_WINDOW;
use model::{
    Dims, EvalSpec, GenerateSpec, Level, ModelSpec, OptimizerSpec, ProgramSpec, TrainSpec,
};
use plan::Dtype;
use plan::ops::Scaling;
use spec::{GradCheckpoint, RunSpec};

/// Tokens whose logits exist at the same time when nothing is trained: the fastest number measured
/// for GPT-2's vocabulary.
pub const EVAL_CHUNK: u64 = 4096;

/// The shortest context that gets its own segment, as a power of two.
const SHORTEST_PREFILL: u32 = 4;

/// Sequences generated at the same time.
const GENERATED_ROWS: u64 = 1;

/// PyTorch's GradScaler doubles the scale after this many clean updates.
const GROWTH_INTERVAL: u32 = 2000;

/// A run to be planned for a machine, with one choice of options for optimizer state.
#[derive(Clone, Copy)]
pub struct Task<'a> {
    /// The run that the user asked for.
    pub run: &'a RunSpec,
    /// The model's sizes.
    pub dims: Dims,
    /// The machine that it is planned for.
    pub machine: &'a Machine,
    /// How the optimizer's state is stored.
    pub state_options: StateOptions,
}

impl Task<'_> {
    /// Levels of recompute that the run permits, weakest first, without those that need host
    /// memory.
    pub fn levels(&self) -> &'static [Level] {
        match self.run.grad_checkpoint {
            GradCheckpoint::Auto => &Level::ON_DEVICE,
            GradCheckpoint::Always => &[Level::R6],
            GradCheckpoint::Never => &[Level::R0],
        }
    }

    /// Training, evaluation, and generation for a sample.
    pub fn whole(&self, cut: &Cut) -> ProgramSpec {
        let rows = cut.slices.first().copied().unwrap_or(1);
        ProgramSpec {
            model: self.model(),
            train: Some(TrainSpec {
                slices: cut.slices.clone(),
                head_chunk: cut.head_chunk,
                levels: cut.levels.clone(),
                ..self.train_spec()
            }),
            eval: Some(self.eval_spec(rows, cut.head_chunk)),
            generate: Some(self.generate_spec()),
        }
    }

    /// Only the training segments.
    pub fn training(&self, cut: &Cut) -> ProgramSpec {
        ProgramSpec { eval: None, generate: None, ..self.whole(cut) }
    }

    /// Only the update: everything that outlives slices, and no slice.
    pub fn without_slices(&self) -> ProgramSpec {
        let train = Some(self.train_spec());
        ProgramSpec { model: self.model(), train, eval: None, generate: None }
    }

    /// Evaluation, and generation for a sample.
    pub fn evaluation(&self, rows: u64, head_chunk: u64) -> ProgramSpec {
        let eval = Some(self.eval_spec(rows, head_chunk));
        let generate = Some(self.generate_spec());
        ProgramSpec { model: self.model(), train: None, eval, generate }
    }

    /// Only evaluation.
    pub fn losses(&self, rows: u64, head_chunk: u64) -> ProgramSpec {
        ProgramSpec { generate: None, ..self.evaluation(rows, head_chunk) }
    }

    /// Only generation.
    pub fn generation(&self) -> ProgramSpec {
        let generate = Some(self.generate_spec());
        ProgramSpec { model: self.model(), train: None, eval: None, generate }
    }

    /// The model, in the machine's number formats.
    pub fn model(&self) -> ModelSpec {
        let (run, types) = (self.run, self.machine.types(self.run));
        let architecture = run.architecture();
        ModelSpec { architecture, dims: self.dims, dropout: run.dropout as f32, types }
    }

    /// Training without slices, which a cut adds.
    pub fn train_spec(&self) -> TrainSpec {
        TrainSpec {
            slices: Vec::new(),
            positions: self.run.block_size,
            head_chunk: EVAL_CHUNK,
            loss_rows: self.run.sequences_per_iteration(),
            levels: Vec::new(),
            optimizer: self.optimizer(),
            sharing: self.run.sharing(),
        }
    }

    /// Evaluation in slices of at most `rows` sequences. It keeps so little that it fits wherever a
    /// training slice of that size does.
    fn eval_spec(&self, rows: u64, head_chunk: u64) -> EvalSpec {
        let sequences = self.run.eval_batch_size;
        EvalSpec {
            slices: near_equal(sequences, sequences.div_ceil(rows.max(1))),
            positions: self.run.eval_block_size,
            head_chunk,
            loss_rows: sequences,
        }
    }

    /// A prompt is padded to the next power of two, so a long context takes at most twice its own
    /// time. For the shortest contexts, the waste is too small to measure.
    fn generate_spec(&self) -> GenerateSpec {
        let longest = self.dims.block_size;
        let powers = (SHORTEST_PREFILL..u64::BITS).map(|shift| 1u64 << shift);
        let mut prefill: Vec<u64> = powers.take_while(|&length| length < longest).collect();
        prefill.push(longest);
        GenerateSpec { rows: GENERATED_ROWS, prefill }
    }

    fn optimizer(&self) -> OptimizerSpec {
        let scaling = match self.machine.compute {
            Dtype::F16 => Scaling::Dynamic { growth_interval: GROWTH_INTERVAL },
            _ => Scaling::Off,
        };
        let offload = self.state_options.offload.then_some(OFFLOAD_WINDOW);
        let rule = self.run.optimizer(self.state_options.format);
        OptimizerSpec { rule, scaling, offload }
    }
}
