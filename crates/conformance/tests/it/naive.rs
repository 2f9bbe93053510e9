//! The slowest possible backend: every op by its formula, one element after the other, in f64, over
//! the real plan's arena. It shares no code with any other backend, so it shows whether cases and
//! goldens agree, and it can be made to compute wrong results on purpose.

use crate::naive_ops;
use plan::ops::Op;
use plan::{
    Backend, BackendError, Bytes, Dtype, Io, NoScratch, Plan, Proved, Scope, SegmentId, StepInputs,
    StepState, TensorId, verify,
};
use rng::{Purpose, Stream};

/// Errors on purpose: each element that an op writes is multiplied by 1 ± this.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sabotage {
    /// How much.
    pub relative: f64,
    /// Only in ops of this name.
    pub op: Option<&'static str>,
}

pub struct Naive {
    plan: Proved<NoScratch>,
    arena: Vec<u8>,
    sabotage: Sabotage,
    noise: Stream,
}

/// Loads a plan.
pub fn load(plan: Plan) -> Result<Box<dyn Backend>, BackendError> {
    load_with(plan, Sabotage::default())
}

/// Loads a plan into a backend with errors.
pub fn load_with(plan: Plan, sabotage: Sabotage) -> Result<Box<dyn Backend>, BackendError> {
    let plan = verify(plan, NoScratch)?;
    let arena = vec![0xA5; plan.arena_bytes.get() as usize];
    Ok(Box::new(Naive { plan, arena, sabotage, noise: Stream::new(1, Purpose::Sample, 0) }))
}

impl Naive {
    /// Where a tensor's bytes are. Run-wide and phase-wide tensors have the same offset in all
    /// segments.
    fn range(&self, tensor: TensorId) -> Option<std::ops::Range<usize>> {
        let tensors = &self.plan.schedule.tensors;
        let (root, offset) = tensors.root(tensor);
        let placement = match tensors.get(root).scope {
            Scope::Segment(segment) => self.plan.layout(segment).placement(root),
            Scope::Run | Scope::Host | Scope::Phase(_) => {
                self.plan.layouts.iter().find_map(|layout| layout.placement(root))
            }
        }?;
        let start = (placement.offset.get() + offset.get()) as usize;
        Some(start..start + tensors.bytes(tensor).get() as usize)
    }

    fn host_range(&self, tensor: TensorId, io: Io) -> Result<std::ops::Range<usize>, BackendError> {
        let row = self.plan.schedule.tensors.get(tensor);
        let refuse = |why: &str| BackendError::HostAccess { what: format!("{}: {why}", row.name) };
        if matches!(row.scope, Scope::Segment(_)) && row.io != io {
            return Err(refuse("the host may not touch it this way"));
        }
        self.range(tensor).ok_or_else(|| refuse("it has no placement"))
    }

    fn bytes(&self, tensor: TensorId) -> &[u8] {
        &self.arena[self.range(tensor).unwrap()]
    }

    pub fn dims(&self, tensor: TensorId) -> Vec<usize> {
        let shape = self.plan.schedule.tensors.get(tensor).shape;
        shape.dims().iter().map(|&dim| dim as usize).collect()
    }

    /// The elements of a tensor of floats.
    pub fn get(&self, tensor: TensorId) -> Vec<f64> {
        assert_eq!(self.plan.schedule.tensors.get(tensor).dtype, Dtype::F32);
        let words = self.bytes(tensor).as_chunks::<4>().0;
        words.iter().map(|&word| f64::from(f32::from_le_bytes(word))).collect()
    }

    /// The elements of a tensor of ids.
    pub fn ids(&self, tensor: TensorId) -> Vec<i64> {
        let words = self.bytes(tensor).as_chunks::<4>().0;
        words.iter().map(|&word| i64::from(i32::from_le_bytes(word))).collect()
    }

    /// Overwrites a tensor of floats.
    pub fn put(&mut self, tensor: TensorId, values: &[f64]) {
        let range = self.range(tensor).unwrap();
        assert_eq!(range.len(), values.len() * 4);
        let relative = self.sabotage.relative;
        for (&value, bytes) in values.iter().zip(self.arena[range].as_chunks_mut::<4>().0) {
            let up = self.noise.next_u32() & 1 == 0;
            let factor = if up { 1.0 + relative } else { 1.0 - relative };
            *bytes = ((value * factor) as f32).to_le_bytes();
        }
    }

    pub fn state(&self, tensor: TensorId) -> StepState {
        let mut words = [0; StepState::WORDS];
        for (word, bytes) in words.iter_mut().zip(self.bytes(tensor).as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        StepState::from_words(&words)
    }

    pub fn put_state(&mut self, tensor: TensorId, state: &StepState) {
        let range = self.range(tensor).unwrap();
        let bytes: Vec<u8> = state.to_words().iter().flat_map(|word| word.to_le_bytes()).collect();
        self.arena[range].copy_from_slice(&bytes);
    }

    fn step(&mut self, op: &Op, inputs: &StepInputs) {
        match op {
            Op::Embed(op) => naive_ops::embed(self, op, inputs),
            Op::EmbedBackward(op) => naive_ops::embed_backward(self, op, inputs),
            Op::LayerNorm(op) => naive_ops::layernorm(self, op, inputs),
            Op::LayerNormBackward(op) => naive_ops::layernorm_backward(self, op, inputs),
            Op::Linear(op) => naive_ops::linear(self, op),
            Op::LinearBackwardInput(op) => naive_ops::linear_backward_input(self, op),
            Op::LinearBackwardWeight(op) => naive_ops::linear_backward_weight(self, op),
            Op::Attention(op) => naive_ops::attention(self, op, inputs),
            Op::AttentionBackward(op) => naive_ops::attention_backward(self, op, inputs),
            Op::Gelu(op) => naive_ops::gelu(self, op),
            Op::GeluBackward(op) => naive_ops::gelu_backward(self, op),
            Op::HeadTrain(op) => naive_ops::head_train(self, op, inputs),
            Op::HeadEval(op) => naive_ops::head_eval(self, op, inputs),
            Op::CacheStore(op) => naive_ops::cache_store(self, op),
            Op::AttentionDecode(op) => naive_ops::attention_decode(self, op, inputs),
            Op::SelectPosition(op) => naive_ops::select_position(self, op, inputs),
            Op::GradNorm(op) => naive_ops::grad_norm(self, op),
            Op::LossScaler(op) => naive_ops::loss_scaler(self, op, inputs),
            Op::AdamW(op) => naive_ops::adamw(self, op, inputs),
            Op::Transfer(_)
            | Op::Clear(_)
            | Op::SquareSums(_)
            | Op::NormOfSums(_)
            | Op::ReduceScatter(_)
            | Op::AllGather(_) => panic!("no case has one"),
        }
    }
}

impl Backend for Naive {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn arena_bytes(&self) -> Bytes {
        Bytes::new(self.arena.len() as u64).unwrap()
    }

    fn write_at(
        &mut self,
        tensor: TensorId,
        offset: u64,
        content: &[u8],
    ) -> Result<(), BackendError> {
        let start = self.host_range(tensor, Io::Input)?.start + offset as usize;
        self.arena[start..start + content.len()].copy_from_slice(content);
        Ok(())
    }

    fn read_at(
        &mut self,
        tensor: TensorId,
        offset: u64,
        content: &mut [u8],
    ) -> Result<(), BackendError> {
        let start = self.host_range(tensor, Io::Output)?.start + offset as usize;
        content.copy_from_slice(&self.arena[start..start + content.len()]);
        Ok(())
    }

    fn run_timed(&mut self, _: SegmentId, _: &StepInputs) -> Result<Vec<f64>, BackendError> {
        Err(BackendError::Unsupported { what: "it has no clock".to_string() })
    }

    fn run(&mut self, segment: SegmentId, inputs: &StepInputs) -> Result<(), BackendError> {
        let steps = self.plan.schedule.segment(segment).steps.clone();
        let sabotage = self.sabotage;
        for step in steps {
            let name = step.op.operation().name();
            if sabotage.op.is_some_and(|only| only != name) {
                self.sabotage.relative = 0.0;
            }
            self.step(&step.op, inputs);
            self.sabotage = sabotage;
        }
        Ok(())
    }
}
