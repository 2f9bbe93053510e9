//! Allocations of a PyTorch program, in order: tensors with sizes and steps that touch them. How
//! long each lives follows from its first and last touch, by the planner's own lifetimes: a value
//! that is saved for backward is touched there, a Python variable where it is overwritten.

use plan::lifetimes::{first_to_last, sums};
use plan::{Bytes, Dtype, Io, PlanError, Role, Scope, Shape, Tensor, TensorId, Tensors};

/// PyTorch's allocator rounds every request up to this.
const ROUNDING: u64 = 512;

/// What a run does at a step.
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
    /// All, in the order in which they first occur.
    pub const ALL: [Phase; 5] =
        [Phase::FirstEval, Phase::Forward, Phase::Backward, Phase::Optimizer, Phase::Eval];

    /// The word of documents.
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

/// One step: a kernel that allocates, or a moment at which something is still referenced.
struct Step {
    phase: Phase,
    touched: Vec<TensorId>,
}

/// A program's allocations.
#[derive(Default)]
pub struct Tape {
    tensors: Tensors,
    steps: Vec<Step>,
    phase: Option<Phase>,
    /// Touched at every later step: parameters, gradients, Adam's state.
    kept: Vec<TensorId>,
}

/// A tensor that is alive at the fullest step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alive {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// Bytes, rounded as the allocator rounds them.
    pub bytes: u64,
}

/// The fullest step of a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peak {
    /// The phase.
    pub phase: Phase,
    /// Bytes at that step.
    pub bytes: u64,
    /// What is alive there, largest first.
    pub alive: Vec<Alive>,
    /// What the step itself asked for, largest first.
    pub asked: Vec<Alive>,
}

impl Tape {
    /// Following steps belong to this phase.
    pub fn enter(&mut self, phase: Phase) {
        self.phase = Some(phase);
    }

    /// A tensor that some step will make.
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

    /// A step that touches these.
    pub fn step(&mut self, touched: &[TensorId]) {
        let phase = self.phase.unwrap_or(Phase::FirstEval);
        self.steps.push(Step { phase, touched: touched.to_vec() });
    }

    /// From its first touch to the end of the program, or to [`Tape::release`].
    pub fn keep(&mut self, tensor: TensorId) {
        self.step(&[tensor]);
        self.kept.push(tensor);
    }

    /// What was kept is let go here.
    pub fn release(&mut self, tensors: &[TensorId]) {
        self.step(tensors);
        self.kept.retain(|kept| !tensors.contains(kept));
    }

    /// The fullest step of each phase that occurs.
    pub fn peaks(mut self) -> Option<Vec<Peak>> {
        let kept = std::mem::take(&mut self.kept);
        self.step(&kept);
        let lives = first_to_last(self.steps.iter().map(|step| step.touched.clone()));
        let size = |tensor: TensorId| {
            let bytes = self.tensors.bytes(tensor).get();
            bytes.checked_next_multiple_of(ROUNDING).and_then(Bytes::new)
        };
        let live = sums(&lives, self.steps.len(), size)?;
        let mut peaks = Vec::new();
        for phase in Phase::ALL {
            let of_phase = (0..self.steps.len()).filter(|&step| self.steps[step].phase == phase);
            let Some(fullest) = of_phase.max_by_key(|&step| (live[step], usize::MAX - step)) else {
                continue;
            };
            let row = |tensor: TensorId| {
                let found = self.tensors.get(tensor);
                let bytes = size(tensor).map_or(0, Bytes::get);
                Alive { name: found.name.clone(), role: found.role, bytes }
            };
            let sorted = |mut rows: Vec<Alive>| {
                rows.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
                rows
            };
            let alive = lives.iter().filter(|(_, live)| live.contains(fullest));
            let asked = lives.iter().filter(|(_, live)| live.first == fullest);
            peaks.push(Peak {
                phase,
                bytes: live[fullest].get(),
                alive: sorted(alive.map(|(&tensor, _)| row(tensor)).collect()),
                asked: sorted(asked.map(|(&tensor, _)| row(tensor)).collect()),
            });
        }
        Some(peaks)
    }
}
