//! A small model on the CPU backend: made from a few numbers, filled with the same weights and
//! tokens every time, run, and read back.

use fitgpt_cpu::{CpuBackend, CpuOptions, CpuScratch, Isa};
use model::{
    AdamW, Dims, Draft, EvalSpec, GenerateSpec, Gpt2, Level, LossSegment, ModelSpec, ModuleKind,
    OptimizerSpec, Program, ProgramSpec, TrainSpec, Types,
};
use plan::ops::{GeluKind, Op, Scaling};
use plan::{
    Backend, Bytes, Dtype, Plan, Scratch, StepInputs, StepState, TensorId, Tensors, verify,
};
use requires::{Need, absent};
use std::rc::Rc;

/// The instruction sets of this CPU; the running test records those that it lacks.
#[track_caller]
pub fn instruction_sets() -> Vec<Isa> {
    let all = Isa::available();
    for (need, name) in [(Need::Avx512, "AVX-512"), (Need::Avx2, "AVX2")] {
        if all.iter().all(|isa| isa.name() != name) {
            absent(need, format!("this CPU has no {name}"));
        }
    }
    all
}

/// What a test varies.
#[derive(Clone, Debug)]
pub struct Setup {
    pub dims: Dims,
    pub dropout: f32,
    pub slices: Vec<u64>,
    pub positions: u64,
    pub head_chunk: u64,
    pub loss_rows: u64,
    pub levels: Vec<Level>,
    pub moments: Dtype,
    pub offload: Option<u64>,
    pub generate: Option<GenerateSpec>,
    pub scratch_threads: usize,
    /// Rows of the head's weight are a multiple of this.
    pub head_rows: u64,
    /// Whether linear layers are joined with what stands next to them.
    pub joins: bool,
}

/// The CPU's scratch, but for a head whose weight may have more rows than the vocabulary, and for
/// ops that may be joined.
#[derive(Clone, Copy, Debug)]
struct Changed {
    scratch: CpuScratch,
    head_rows: u64,
    joins: bool,
}

impl Scratch for Changed {
    fn bytes(&self, op: &Op, tensors: &Tensors) -> Option<Bytes> {
        self.scratch.bytes(op, tensors)
    }

    fn head_rows(&self, vocabulary: u64) -> u64 {
        vocabulary.next_multiple_of(self.head_rows)
    }

    fn computes_joined(&self, _: &Op, _: &Tensors) -> bool {
        self.joins
    }
}

/// 2 layers, odd sizes, more than one block of 256 tokens and of 64 keys.
pub fn setup() -> Setup {
    let dims =
        Dims { n_layer: 2, n_head: 3, n_embd: 51, block_size: 90, vocab_size: 83, bias: true };
    Setup {
        dims,
        dropout: 0.0,
        slices: vec![7],
        positions: 90,
        head_chunk: 256,
        loss_rows: 7,
        levels: Vec::new(),
        moments: Dtype::F32,
        offload: None,
        generate: None,
        scratch_threads: 3,
        head_rows: 1,
        joins: false,
    }
}

impl Setup {
    pub fn scratch(&self) -> CpuScratch {
        CpuScratch { threads: self.scratch_threads }
    }

    pub fn draft(&self) -> Draft {
        let dims = self.dims.checked().unwrap();
        let optimizer = OptimizerSpec {
            rule: AdamW { moments: self.moments, ..AdamW::NANOGPT }.into(),
            scaling: Scaling::Off,
            offload: self.offload,
        };
        let (slices, positions) = (self.slices.clone(), self.positions);
        let (head_chunk, loss_rows) = (self.head_chunk, self.loss_rows);
        let train = TrainSpec {
            sharing: model::Sharing::NONE,
            slices: slices.clone(),
            positions,
            head_chunk,
            loss_rows,
            levels: self.levels.clone(),
            optimizer,
        };
        let spec = ProgramSpec {
            model: ModelSpec {
                dims,
                dropout: self.dropout,
                architecture: Gpt2 { gelu: GeluKind::Erf }.into(),
                types: Types::F32,
            },
            train: Some(train),
            eval: Some(EvalSpec { slices, positions, head_chunk, loss_rows }),
            generate: self.generate.clone(),
        };
        let &Setup { head_rows, joins, .. } = self;
        let scratch = Changed { scratch: self.scratch(), head_rows, joins };
        Draft::new(&spec, Rc::new(scratch)).unwrap()
    }

    pub fn run(&self, options: CpuOptions) -> Run {
        let Draft { program, schedule, .. } = self.draft();
        let plan = Plan::new(schedule).unwrap();
        let proved = verify(plan, self.scratch()).unwrap();
        let mut run = Run { backend: CpuBackend::new(proved, options).unwrap(), program };
        run.fill_weights();
        run
    }

    /// Ids of the iteration's sequences and one more, the same for every way of cutting them.
    pub fn ids(&self) -> Vec<i32> {
        let mut stream = rng::Stream::new(3, rng::Purpose::TrainBatch, 0);
        let count = self.loss_rows * self.positions + 1;
        (0..count).map(|_| stream.below(self.dims.vocab_size) as i32).collect()
    }
}

/// A program on its backend.
pub struct Run {
    pub backend: CpuBackend,
    pub program: Program,
}

pub fn to_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

pub fn ids_to_bytes(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

impl Run {
    pub fn fill_weights(&mut self) {
        for (index, p) in self.program.parameters.iter().enumerate() {
            let mut stream = rng::Stream::new(11, rng::Purpose::Init, index as u64);
            let is_norm = p.param.module.kind == ModuleKind::LayerNorm;
            let centre = if is_norm { 1.0 } else { 0.0 };
            let elements = p.param.shape.elements();
            let values: Vec<f32> = (0..elements).map(|_| centre + 0.1 * stream.normal()).collect();
            self.backend.write(p.weight, &to_bytes(&values)).unwrap();
        }
        let words = StepState::initial(1.0).to_words();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.backend.write(self.program.state, &bytes).unwrap();
    }

    pub fn read(&mut self, tensor: TensorId) -> Vec<f32> {
        let bytes = self.backend.plan().schedule.tensors.bytes(tensor).get();
        let mut content = vec![0; bytes as usize];
        self.backend.read(tensor, &mut content).unwrap();
        let (words, _) = content.as_chunks::<4>();
        words.iter().map(|&word| f32::from_le_bytes(word)).collect()
    }

    /// The losses of all sequences of the iteration.
    pub fn losses(&mut self) -> Vec<f32> {
        let row_loss = self.program.row_loss.unwrap();
        self.read(row_loss)
    }

    /// Runs `cuts` (slice sizes, in order) over the iteration's sequences.
    pub fn run_slices(&mut self, setup: &Setup, cuts: &[u64], eval: bool, iteration: u64) {
        let (ids, positions) = (setup.ids(), setup.positions as usize);
        let segments: Vec<LossSegment> =
            if eval { self.program.eval.clone() } else { self.program.train.clone() };
        let mut first_row = 0;
        for &rows in cuts {
            let slice = segments.iter().find(|slice| slice.rows == rows).unwrap();
            let range = first_row as usize * positions..(first_row + rows) as usize * positions;
            let targets = range.start + 1..range.end + 1;
            self.backend.write(slice.tokens, &ids_to_bytes(&ids[range])).unwrap();
            self.backend.write(slice.targets, &ids_to_bytes(&ids[targets])).unwrap();
            let inputs = StepInputs {
                first_row,
                iteration,
                seed: 1337,
                inverse_tokens: 1.0 / (setup.loss_rows as f32 * positions as f32),
                ..StepInputs::default()
            };
            self.backend.run(slice.segment, &inputs).unwrap();
            first_row += rows;
        }
    }

    pub fn update(&mut self) {
        self.update_at(1e-2, 1.0);
    }

    pub fn update_at(&mut self, lr: f64, grad_clip: f64) {
        let inputs = StepInputs { lr, grad_clip, ..StepInputs::default() };
        self.backend.run(self.program.update.unwrap(), &inputs).unwrap();
    }

    /// An update of a run with this seed.
    pub fn update_with(&mut self, seed: u64) {
        let inputs = StepInputs { lr: 1e-2, grad_clip: 1.0, seed, ..StepInputs::default() };
        self.backend.run(self.program.update.unwrap(), &inputs).unwrap();
    }

    /// A tensor of 16-bit numbers.
    pub fn read_halves(&mut self, tensor: TensorId) -> Vec<f32> {
        let bytes = self.backend.plan().schedule.tensors.bytes(tensor).get();
        let mut content = vec![0; bytes as usize];
        self.backend.read(tensor, &mut content).unwrap();
        let (halves, _) = content.as_chunks::<2>();
        let wide = |half: &[u8; 2]| f32::from_bits(u32::from(u16::from_le_bytes(*half)) << 16);
        halves.iter().map(wide).collect()
    }

    /// Gradients of all parameters.
    pub fn gradients(&mut self) -> Vec<Vec<f32>> {
        let ids: Vec<TensorId> =
            self.program.parameters.iter().map(|p| p.gradient.unwrap()).collect();
        ids.into_iter().map(|id| self.read(id)).collect()
    }

    /// Weights of all parameters.
    pub fn weights(&mut self) -> Vec<Vec<f32>> {
        let ids: Vec<TensorId> = self.program.parameters.iter().map(|p| p.weight).collect();
        ids.into_iter().map(|id| self.read(id)).collect()
    }
}
