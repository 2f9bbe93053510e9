//! The executor runs a segment's steps; each op is one line of a `match`. It knows only the plan,
//! which has already made every decision.

use crate::arena::{Memory, MemoryMode, StepMemory};
use crate::isa::Isa;
use crate::kernels;
use crate::pool::Pool;
use crate::wire::Wire;
use plan::ops::{AdamW, Op, TOKEN_BLOCK};
use plan::{
    Backend, BackendError, Bytes, Dtype, Exchange, OneRank, Plan, Proved, Scratch, SegmentId,
    StepInputs, StepState, TensorId, Tensors,
};
use std::time::Instant;

/// How to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuOptions {
    /// Number of threads, the calling one included.
    pub threads: usize,
    /// How tensors get their memory.
    pub memory: MemoryMode,
    /// Whether to fill every range with NaN before its first and after its last use.
    pub poison: bool,
    /// The instruction set to use.
    pub isa: Isa,
}

impl CpuOptions {
    /// One arena, the CPU's best instruction set, no poison.
    pub fn new(threads: usize) -> CpuOptions {
        CpuOptions { threads, memory: MemoryMode::Arena, poison: false, isa: Isa::best() }
    }
}

/// Memory that this backend needs in addition to an op's operands, with this many threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuScratch {
    /// Number of threads, the calling one included.
    pub threads: usize,
}

impl Scratch for CpuScratch {
    fn bytes(&self, op: &Op, tensors: &Tensors) -> Option<Bytes> {
        let floats = scratch_floats(op, tensors, self.threads.max(1) as u64)?;
        floats.checked_mul(4).and_then(Bytes::new)
    }
}

/// Number of f32 that an op needs in addition to its operands, with this many threads.
fn scratch_floats(op: &Op, tensors: &Tensors, threads: u64) -> Option<u64> {
    let attention = |qkv: TensorId, heads: u64| {
        let shape = tensors.get(qkv).shape;
        let positions = shape.dims().get(1).copied()?;
        let each = kernels::attention::scratch(positions, (shape.width() / 3).checked_div(heads)?)?;
        each.checked_mul(threads)
    };
    match op {
        Op::Linear(_)
        | Op::LinearBackwardInput(_)
        | Op::LinearBackwardWeight(_)
        | Op::HeadTrain(_)
        | Op::HeadEval(_) => (kernels::gemm::SCRATCH as u64).checked_mul(threads),
        Op::Attention(op) => attention(op.qkv, op.heads),
        Op::AttentionBackward(op) => attention(op.qkv, op.heads),
        Op::AttentionDecode(op) => {
            tensors.get(op.cache).shape.dims().get(3).copied()?.checked_mul(threads)
        }
        // Partial sums of gain's and bias's gradients, whatever the number of threads.
        Op::LayerNormBackward(op) => {
            let shape = tensors.get(op.x).shape;
            let partials = shape.rows().div_ceil(TOKEN_BLOCK).checked_mul(shape.width())?;
            partials.checked_mul(2)
        }
        Op::Embed(_)
        | Op::EmbedBackward(_)
        | Op::LayerNorm(_)
        | Op::Gelu(_)
        | Op::GeluBackward(_)
        | Op::CacheStore(_)
        | Op::SelectPosition(_)
        | Op::GradNorm(_)
        | Op::LossScaler(_)
        | Op::AdamW(_)
        | Op::Transfer(_)
        | Op::Clear(_)
        | Op::SquareSums(_)
        | Op::NormOfSums(_)
        | Op::AllGather(_) => Some(0),
        Op::ReduceScatter(op) => Some(op.workspace_bytes()?.div_ceil(4)),
    }
}

/// More sequences than any iteration has.
const MAX_ROWS: usize = 1 << 24;

/// More threads than any machine that this runs on has.
const MAX_THREADS: usize = 1024;

/// Executes a plan on the CPU.
pub struct CpuBackend {
    plan: Proved<CpuScratch>,
    memory: Memory,
    pool: Pool,
    isa: Isa,
    poison: bool,
    wire: Wire,
}

impl CpuBackend {
    /// Allocates the plan's memory and starts the threads.
    ///
    /// ```
    /// use fitgpt_cpu::{CpuBackend, CpuOptions, CpuScratch};
    /// use plan::{BackendError, Plan, Proved, verify};
    ///
    /// fn load(plan: Plan) -> Result<CpuBackend, BackendError> {
    ///     let proved: Proved<CpuScratch> = verify(plan, CpuScratch { threads: 2 })?;
    ///     CpuBackend::new(proved, CpuOptions::new(2))
    /// }
    /// ```
    ///
    /// A plan that was not proved, or that was proved for kernels with another workspace, does not
    /// compile:
    ///
    /// ```compile_fail,E0308
    /// # use fitgpt_cpu::{CpuBackend, CpuOptions};
    /// # use plan::{BackendError, Plan};
    /// fn load(plan: Plan) -> Result<CpuBackend, BackendError> {
    ///     CpuBackend::new(plan, CpuOptions::new(2))
    /// }
    /// ```
    ///
    /// ```compile_fail,E0308
    /// # use fitgpt_cpu::{CpuBackend, CpuOptions};
    /// # use plan::{BackendError, GpuScratch, Proved};
    /// fn load(proved: Proved<GpuScratch>) -> Result<CpuBackend, BackendError> {
    ///     CpuBackend::new(proved, CpuOptions::new(2))
    /// }
    /// ```
    pub fn new(plan: Proved<CpuScratch>, options: CpuOptions) -> Result<CpuBackend, BackendError> {
        if options.threads > MAX_THREADS {
            let what = format!("{} threads, at most {MAX_THREADS}", options.threads);
            return Err(BackendError::Unsupported { what });
        }
        if options.threads.max(1) > plan.scratch().threads.max(1) {
            let (asked, planned) = (options.threads, plan.scratch().threads);
            let what = format!("{asked} threads with the workspace of {planned}");
            return Err(BackendError::Unsupported { what });
        }
        check_supported(&plan)?;
        let memory = Memory::new(&plan, options.memory)?;
        let pool = Pool::new(options.threads).map_err(|error| {
            let threads = options.threads;
            let what = format!(
                "cannot start {threads} threads ({error}); set OMP_NUM_THREADS=1 or raise `ulimit \
                 -u`"
            );
            BackendError::Device { what }
        })?;
        let wire = Wire::new(Box::new(OneRank));
        Ok(CpuBackend { plan, memory, pool, isa: options.isa, poison: options.poison, wire })
    }

    /// As one of several ranks, which `exchange` connects.
    pub fn among(self, exchange: Box<dyn Exchange>) -> CpuBackend {
        CpuBackend { wire: Wire::new(exchange), ..self }
    }
}

/// Checks element types, so that kernels need not.
fn check_supported(plan: &Plan) -> Result<(), BackendError> {
    let tensors = &plan.schedule.tensors;
    for step in plan.schedule.segments.iter().flat_map(|segment| &segment.steps) {
        if let Op::AdamW(AdamW { copy: Some(copy), .. }) = &step.op {
            let what = format!("a second copy of the weights ({})", tensors.get(*copy).name);
            return Err(BackendError::Unsupported { what });
        }
        for operand in step.operands() {
            let tensor = tensors.get(operand.tensor);
            let halves = match step.op {
                Op::AdamW(_) => tensor.dtype == Dtype::Bf16,
                Op::Transfer(_) | Op::AllGather(_) | Op::Clear(_) => true,
                _ => false,
            };
            if matches!(tensor.dtype, Dtype::Bf16 | Dtype::F16) && !halves {
                let what = format!("{} as {} on the CPU", tensor.name, tensor.dtype);
                return Err(BackendError::Unsupported { what });
            }
        }
    }
    Ok(())
}

impl Backend for CpuBackend {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn arena_bytes(&self) -> Bytes {
        self.memory.bytes()
    }

    fn write_at(
        &mut self,
        tensor: TensorId,
        offset: u64,
        content: &[u8],
    ) -> Result<(), BackendError> {
        self.memory.write_at(tensor, offset, content)
    }

    fn read_at(
        &mut self,
        tensor: TensorId,
        offset: u64,
        content: &mut [u8],
    ) -> Result<(), BackendError> {
        self.memory.read_at(tensor, offset, content)
    }

    fn run(&mut self, segment: SegmentId, inputs: &StepInputs) -> Result<(), BackendError> {
        self.walk(segment, inputs, |_| {})
    }

    fn run_timed(
        &mut self,
        segment: SegmentId,
        inputs: &StepInputs,
    ) -> Result<Vec<f64>, BackendError> {
        let mut seconds = Vec::new();
        let mut last = Instant::now();
        self.walk(segment, inputs, |_| {
            seconds.push(last.elapsed().as_secs_f64());
            last = Instant::now();
        })?;
        Ok(seconds)
    }
}

impl CpuBackend {
    /// Runs the steps and calls `done` after each.
    fn walk(
        &mut self,
        segment: SegmentId,
        inputs: &StepInputs,
        mut done: impl FnMut(usize),
    ) -> Result<(), BackendError> {
        if segment.index() >= self.plan.schedule.segments.len() {
            let (given, limit) = (segment.index() as i64, self.plan.schedule.segments.len() as i64);
            return Err(BackendError::BadInput { what: "segment", given, limit });
        }
        // Kernels multiply rows by heads and positions to key masks. Below this limit that stays
        // far from 2^64.
        check_below("first_row", inputs.first_row.min(i64::MAX as u64) as i64, MAX_ROWS)?;
        self.memory.begin(segment, self.plan.schedule.segment(segment).phase)?;
        for step in 0..self.memory.steps(segment) {
            if self.poison {
                self.memory.poison_written(segment, step);
            }
            let cx = StepContext {
                memory: self.memory.step(segment, step),
                tensors: &self.plan.schedule.tensors,
                pool: &self.pool,
                isa: self.isa,
                inputs,
            };
            let op = &self.plan.schedule.segment(segment).steps[step].op;
            execute(&cx, op, &mut self.wire)?;
            if self.poison {
                self.memory.poison_dying(segment, step);
            }
            done(step);
        }
        self.memory.end(segment);
        Ok(())
    }
}

fn execute(cx: &StepContext<'_>, op: &Op, wire: &mut Wire) -> Result<(), BackendError> {
    match op {
        Op::Embed(op) => kernels::embed::forward(cx, op),
        Op::EmbedBackward(op) => kernels::embed::backward(cx, op),
        Op::LayerNorm(op) => kernels::layernorm::forward(cx, op),
        Op::LayerNormBackward(op) => kernels::layernorm::backward(cx, op),
        Op::Linear(op) => kernels::linear::forward(cx, op),
        Op::LinearBackwardInput(op) => kernels::linear::backward_input(cx, op),
        Op::LinearBackwardWeight(op) => kernels::linear::backward_weight(cx, op),
        Op::Attention(op) => kernels::attention::forward(cx, op),
        Op::AttentionBackward(op) => kernels::attention::backward(cx, op),
        Op::Gelu(op) => kernels::gelu::forward(cx, op),
        Op::GeluBackward(op) => kernels::gelu::backward(cx, op),
        Op::HeadTrain(op) => kernels::head::train(cx, op),
        Op::HeadEval(op) => kernels::head::eval(cx, op),
        Op::CacheStore(op) => kernels::decode::store(cx, op),
        Op::AttentionDecode(op) => kernels::decode::attention(cx, op),
        Op::SelectPosition(op) => kernels::decode::select(cx, op),
        Op::GradNorm(op) => kernels::grad_norm::run(cx, op),
        Op::LossScaler(op) => kernels::loss_scaler::run(cx, op),
        Op::AdamW(op) => kernels::adamw::run(cx, op),
        Op::Transfer(op) => kernels::transfer::run(cx, op),
        Op::Clear(op) => kernels::clear::run(cx, op),
        Op::SquareSums(op) => kernels::grad_norm::square_sums(cx, op),
        Op::NormOfSums(op) => kernels::grad_norm::norm_of_sums(cx, op),
        Op::ReduceScatter(op) => kernels::reduce_scatter::run(cx, op, wire),
        Op::AllGather(op) => kernels::all_gather::run(cx, op, wire),
    }
}

/// What a kernel gets for one step.
pub(crate) struct StepContext<'a> {
    /// The step's operands.
    pub(crate) memory: StepMemory<'a>,
    /// Shapes and types of all tensors.
    pub(crate) tensors: &'a Tensors,
    /// The threads to divide work among.
    pub(crate) pool: &'a Pool,
    /// The instruction set to use.
    pub(crate) isa: Isa,
    /// What the host passed to this run.
    pub(crate) inputs: &'a StepInputs,
}

impl<'a> StepContext<'a> {
    /// The last dimension of a tensor.
    pub(crate) fn width(&self, tensor: TensorId) -> usize {
        self.tensors.get(tensor).shape.width() as usize
    }

    /// Positions of a sequence in `[rows, positions, width]`; 1 for tensors without sequences.
    pub(crate) fn positions(&self, tensor: TensorId) -> usize {
        match *self.tensors.get(tensor).shape.dims() {
            [_, positions, _] => positions as usize,
            _ => 1,
        }
    }

    /// Index of the slice's first token within the iteration.
    pub(crate) fn first_token(&self, tensor: TensorId) -> u64 {
        self.inputs.first_row * self.positions(tensor) as u64
    }

    /// The step state, to read.
    pub(crate) fn state_words(
        &self,
        state: TensorId,
    ) -> Result<&'a [u32; StepState::WORDS], BackendError> {
        let words = self.memory.read_words(state);
        words.try_into().map_err(|_| bad_state(words.len()))
    }

    /// The step state, to change.
    #[allow(clippy::mut_from_ref)]
    pub(crate) fn state_words_mut(
        &self,
        state: TensorId,
    ) -> Result<&'a mut [u32; StepState::WORDS], BackendError> {
        let words = self.memory.write_words(state);
        let len = words.len();
        words.try_into().map_err(|_| bad_state(len))
    }
}

fn bad_state(given: usize) -> BackendError {
    let limit = StepState::WORDS as i64 + 1;
    BackendError::BadInput { what: "words of the step state", given: given as i64, limit }
}

/// `given` as an index below `limit`, or an error with both numbers.
pub(crate) fn check_below(
    what: &'static str,
    given: i64,
    limit: usize,
) -> Result<usize, BackendError> {
    match usize::try_from(given) {
        Ok(index) if index < limit => Ok(index),
        _ => Err(BackendError::BadInput { what, given, limit: limit as i64 }),
    }
}
