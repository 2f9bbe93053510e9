//! A small model on the GPU, made from a few settings. Weights are drawn as in a real run, and
//! results are read back bit for bit.

use crate::fixture::{MOST_SCRATCH, load};
use fitgpt_cuda::{CudaOptions, Gpu};
use model::{
    AdamW, Dims, Draft, EvalSpec, Gpt2, Level, ModelSpec, OptimizerSpec, Program, ProgramSpec,
    Sharing, TrainSpec, Types,
};
use plan::ops::{GeluKind, Scaling};
use plan::{Backend, Dtype, Plan, Scratch, StepInputs, StepState};
use std::rc::Rc;
use train::engine::{Engine, Rows};

/// What a test varies.
#[derive(Clone, Debug)]
pub struct SmallRun {
    pub types: Types,
    /// Of 4 heads.
    pub n_embd: u64,
    pub moments: Dtype,
    pub dropout: f32,
    pub levels: Vec<Level>,
    pub offload: Option<u64>,
    pub slices: Vec<u64>,
    pub head_chunk: u64,
    /// With groups, `slices` are those of one.
    pub sharing: Sharing,
}

pub const LAYERS: u64 = 3;
/// Not a multiple of the keys that a block of attention owns.
const POSITIONS: u64 = 192;
pub const ROWS: u64 = 6;
const VOCABULARY: u64 = 259;

/// bf16, one slice, everything kept.
pub fn small_run() -> SmallRun {
    SmallRun {
        types: Types { compute: Dtype::Bf16, residual: Dtype::Bf16 },
        n_embd: 128,
        moments: Dtype::F32,
        dropout: 0.0,
        levels: Vec::new(),
        offload: None,
        slices: vec![ROWS],
        head_chunk: 512,
        sharing: Sharing::NONE,
    }
}

impl SmallRun {
    fn dims(&self) -> Dims {
        Dims {
            n_layer: LAYERS,
            n_head: 4,
            n_embd: self.n_embd,
            block_size: POSITIONS,
            vocab_size: VOCABULARY,
            bias: true,
        }
    }

    pub fn draft(&self) -> Draft {
        self.draft_with(Rc::new(MOST_SCRATCH))
    }

    /// For another backend.
    pub fn draft_with(&self, scratch: Rc<dyn Scratch>) -> Draft {
        let scaling = match self.types.compute {
            Dtype::F16 => Scaling::Dynamic { growth_interval: 2000 },
            _ => Scaling::Off,
        };
        let optimizer = OptimizerSpec {
            rule: AdamW { moments: self.moments, ..AdamW::NANOGPT }.into(),
            scaling,
            offload: self.offload,
        };
        let spec = ProgramSpec {
            model: ModelSpec {
                dims: self.dims(),
                dropout: self.dropout,
                architecture: Gpt2 { gelu: GeluKind::Erf }.into(),
                types: self.types,
            },
            train: Some(TrainSpec {
                sharing: self.sharing,
                slices: self.slices.clone(),
                positions: POSITIONS,
                head_chunk: self.head_chunk,
                loss_rows: ROWS,
                levels: self.levels.clone(),
                optimizer,
            }),
            eval: Some(EvalSpec {
                slices: self.slices.clone(),
                positions: POSITIONS,
                head_chunk: self.head_chunk,
                loss_rows: ROWS,
            }),
            generate: None,
        };
        Draft::new(&spec, scratch).unwrap()
    }

    /// The program on the GPU with its first weights.
    pub fn engine(&self, gpu: &Gpu, options: &CudaOptions) -> Engine {
        let Draft { program, schedule, .. } = self.draft();
        let plan = Plan::new(schedule).unwrap();
        self.engine_on(load(gpu, plan, options).unwrap(), program)
    }

    /// A program on its backend with its first weights.
    pub fn engine_on(&self, backend: Box<dyn Backend>, program: Program) -> Engine {
        let mut engine = Engine::new(backend, program, self.dims());
        engine.initialise(&mut rng::torch::Generator::new(1337)).unwrap();
        engine
    }

    /// Losses, state and every weight after some iterations, as bits.
    pub fn trace(&self, gpu: &Gpu, options: &CudaOptions, iterations: u64) -> Vec<u8> {
        let mut engine = self.engine(gpu, options);
        let mut trace = Vec::new();
        for iteration in 0..iterations {
            iterate(&mut engine, iteration);
            let losses = engine.row_losses(ROWS).unwrap().to_vec();
            trace.extend(losses.iter().flat_map(|loss| loss.to_le_bytes()));
        }
        let state = engine.state().unwrap();
        trace.extend(state.to_words().iter().flat_map(|word| word.to_le_bytes()));
        for index in 0..engine.program().parameters.len() {
            trace.extend(engine.weights(index).unwrap());
        }
        trace
    }
}

/// The sequences of an iteration, which depend on its number alone.
fn rows_of(iteration: u64) -> Rows {
    let mut rows = Rows::new(ROWS, POSITIONS).unwrap();
    let mut stream = rng::Stream::new(5, rng::Purpose::TrainBatch, iteration);
    rows.tokens.fill_with(|| stream.below(VOCABULARY) as i32);
    rows.targets.fill_with(|| stream.below(VOCABULARY) as i32);
    rows
}

/// The sequences of the groups that this rank computes, round by round.
fn own_rows(sharing: Sharing, all: Rows) -> Rows {
    let group = (ROWS / sharing.groups.max(1)) as usize * all.positions;
    let rounds = 0..sharing.rounds();
    let groups = rounds.map(|round| sharing.group(round) as usize * group);
    let ranges: Vec<_> = groups.map(|first| first..first + group).collect();
    let of = |ids: &[i32]| ranges.iter().flat_map(|range| ids[range.clone()].to_vec()).collect();
    Rows { tokens: of(&all.tokens), targets: of(&all.targets), positions: all.positions }
}

/// One iteration.
pub fn iterate(engine: &mut Engine, iteration: u64) -> StepState {
    let rows = own_rows(engine.program().sharing, rows_of(iteration));
    let step = StepInputs {
        lr: 1e-3,
        grad_clip: 1.0,
        iteration,
        seed: 7,
        inverse_tokens: 1.0 / (ROWS * POSITIONS) as f32,
        ..StepInputs::default()
    };
    engine.train_rows(&rows, &step, &mut |_| true).unwrap();
    engine.update(&step).unwrap();
    engine.state().unwrap()
}
