//! The allocations of a PyTorch program in order: tensors with sizes, and the steps that touch
//! them. A tensor lives from its first to its last touch, computed by the planner's own lifetimes.
//! A value saved for the backward pass is touched there, a Python variable where it is overwritten.

use plan::lifetimes::{first_to_last, sums};
use plan::{Bytes, Dtype, Io, Live, PlanError, Role, Scope, Shape, Tensor, TensorId, Tensors};
use std::collections::BTreeMap;

/// PyTorch's allocator rounds every request up to this.
const ROUNDING: u64 = 512;

/// The phase of a run that a step belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// `estimate_loss()` before the first training step.
    FirstEval,
    /// A forward pass of training.
    Forward,
    /// A backward pass.
    Backward,
    /// Clipping and the optimizer's step.
    Optimizer,
    /// `estimate_loss()` after training has begun.
    Eval,
}

impl Phase {
    /// All phases, in the order of their first occurrence.
    pub const ALL: [Phase; 5] =
        [Phase::FirstEval, Phase::Forward, Phase::Backward, Phase::Optimizer, Phase::Eval];

    /// Its name in JSON documents.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::FirstEval => "first_eval",
            Phase::Forward => "forward",
            Phase::Backward => "backward",
            Phase::Optimizer => "optimizer",
            Phase::Eval => "eval",
        }
    }
}

/// One step: a kernel that allocates, or a moment when something is still referenced.
struct Step {
    phase: Phase,
    touched: Vec<TensorId>,
}

/// Records the allocations of a program.
#[derive(Default)]
pub struct Tape {
    tensors: Tensors,
    steps: Vec<Step>,
    phase: Option<Phase>,
    /// Touched at every later step: parameters, gradients, Adam's state.
    kept: Vec<TensorId>,
}

/// A tensor that is alive at the peak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alive {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// Bytes, rounded as the allocator rounds them.
    pub bytes: u64,
}

/// The moment when a tensor is allocated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Birth {
    /// Its name.
    pub name: String,
    /// Its shape.
    pub dims: Vec<u64>,
    /// Its element type.
    pub dtype: Dtype,
    /// What it is for.
    pub role: Role,
    /// The phase that allocates it.
    pub phase: Phase,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes held by other tensors at that moment.
    pub held: u64,
    step: usize,
    /// This tensor and those that its step allocates after it.
    not_yet: Vec<TensorId>,
}

/// The step with the most memory in a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peak {
    /// The phase.
    pub phase: Phase,
    /// Bytes at that step.
    pub bytes: u64,
    /// The tensors alive at that step, largest first.
    pub alive: Vec<Alive>,
    /// The tensors that the step itself allocates, largest first.
    pub asked: Vec<Alive>,
}

impl Tape {
    /// Starts a phase; the following steps belong to it.
    pub fn enter(&mut self, phase: Phase) {
        self.phase = Some(phase);
    }

    /// Declares a tensor that some step will allocate.
    pub fn tensor(
        &mut self,
        name: impl Into<String>,
        dims: &[u64],
        dtype: Dtype,
        role: Role,
    ) -> Result<TensorId, PlanError> {
        self.tensors.add(Tensor {
            name: name.into(),
            dtype,
            shape: Shape::new(dims)?,
            role,
            scope: Scope::Run,
            layer: None,
            io: Io::Device,
            view: None,
        })
    }

    /// Adds a step that touches these tensors.
    pub fn step(&mut self, touched: &[TensorId]) {
        let phase = self.phase.unwrap_or(Phase::FirstEval);
        self.steps.push(Step { phase, touched: touched.to_vec() });
    }

    /// Keeps a tensor alive from its first touch to the end of the program or to [`Tape::release`].
    pub fn keep(&mut self, tensor: TensorId) {
        self.step(&[tensor]);
        self.kept.push(tensor);
    }

    /// Frees kept tensors at this point.
    pub fn release(&mut self, tensors: &[TensorId]) {
        self.step(tensors);
        self.kept.retain(|kept| !tensors.contains(kept));
    }

    /// Computes the lifetime of every tensor.
    pub fn play(mut self) -> Option<Played> {
        let kept = std::mem::take(&mut self.kept);
        self.step(&kept);
        let lives = first_to_last(self.steps.iter().map(|step| step.touched.clone()));
        let sizes = |tensor: TensorId| rounded(&self.tensors, tensor);
        let live = sums(&lives, self.steps.len(), sizes)?;
        let live = live.into_iter().map(Bytes::get).collect();
        Some(Played { tensors: self.tensors, steps: self.steps, lives, live })
    }
}

fn rounded(tensors: &Tensors, tensor: TensorId) -> Option<Bytes> {
    tensors.bytes(tensor).get().checked_next_multiple_of(ROUNDING).and_then(Bytes::new)
}

/// A program with the lifetimes of its tensors.
pub struct Played {
    tensors: Tensors,
    steps: Vec<Step>,
    lives: BTreeMap<TensorId, Live>,
    live: Vec<u64>,
}

impl Played {
    /// The step with the most memory of each phase that occurs.
    pub fn peaks(&self) -> Vec<Peak> {
        let of_phase = |phase: Phase| {
            let steps = (0..self.steps.len()).filter(|&step| self.steps[step].phase == phase);
            let fullest = steps.max_by_key(|&step| (self.live[step], usize::MAX - step))?;
            let asked = self.lives.iter().filter(|(_, live)| live.first == fullest);
            Some(Peak {
                phase,
                bytes: self.live[fullest],
                alive: self.alive_at(fullest),
                asked: sorted(asked.map(|(&tensor, _)| self.row(tensor)).collect()),
            })
        };
        Phase::ALL.into_iter().filter_map(of_phase).collect()
    }

    /// The allocations of all tensors, in order. If a step allocates several, each one sees those
    /// before it as held.
    pub fn births(&self) -> Vec<Birth> {
        let mut found = Vec::new();
        for (step, what) in self.steps.iter().enumerate() {
            let new: Vec<TensorId> = what
                .touched
                .iter()
                .copied()
                .filter(|tensor| self.lives.get(tensor).is_some_and(|live| live.first == step))
                .collect();
            let together: u64 = new.iter().map(|&tensor| self.row(tensor).bytes).sum();
            let mut held = self.live[step].saturating_sub(together);
            for (index, &tensor) in new.iter().enumerate() {
                let row = self.tensors.get(tensor);
                let bytes = self.row(tensor).bytes;
                found.push(Birth {
                    name: row.name.clone(),
                    dims: row.shape.dims().to_vec(),
                    dtype: row.dtype,
                    role: row.role,
                    phase: what.phase,
                    bytes,
                    held,
                    step,
                    not_yet: new[index..].to_vec(),
                });
                held = held.saturating_add(bytes);
            }
        }
        found
    }

    /// The tensors held when a tensor is allocated, without that tensor.
    pub fn held_at(&self, birth: &Birth) -> Vec<Alive> {
        let alive = self.lives.iter().filter(|(_, live)| live.contains(birth.step));
        let here = alive.filter(|(tensor, _)| !birth.not_yet.contains(tensor));
        sorted(here.map(|(&tensor, _)| self.row(tensor)).collect())
    }

    fn alive_at(&self, step: usize) -> Vec<Alive> {
        let alive = self.lives.iter().filter(|(_, live)| live.contains(step));
        sorted(alive.map(|(&tensor, _)| self.row(tensor)).collect())
    }

    fn row(&self, tensor: TensorId) -> Alive {
        let found = self.tensors.get(tensor);
        let bytes = rounded(&self.tensors, tensor).map_or(0, Bytes::get);
        Alive { name: found.name.clone(), role: found.role, bytes }
    }
}

fn sorted(mut rows: Vec<Alive>) -> Vec<Alive> {
    rows.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    rows
}
