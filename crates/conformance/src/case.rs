//! A case: what runs, on which inputs, which results are read, and how exact they must be.

use crate::values::Values;
use plan::fnv::Fnv;
use plan::ops::Op;
use plan::{Schedule, SegmentId, StepInputs, StepState, TensorId};
use std::fmt;

/// One case. The reference sees its kind, attributes and inputs; a backend sees its schedule and
/// script.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Unique; also the file name of its golden.
    pub name: String,
    /// The function of `reference.py` that computes it.
    pub kind: &'static str,
    /// Numbers that the reference needs in addition to the inputs.
    pub attributes: Vec<(String, Attribute)>,
    /// Everything that has values, including what backends compute themselves (dropout masks).
    pub inputs: Vec<Input>,
    /// What the backend loads.
    pub schedule: Schedule,
    /// What the host does, in order.
    pub script: Vec<Action>,
    /// Which results are gradients of which inputs, for cases that have a backward.
    pub derivative: Option<Derivative>,
}

/// One or several numbers, or a word, for the reference.
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    /// A count or a flag (0 or 1).
    Int(i64),
    /// A real number; exact when it comes from an `f32`.
    Float(f64),
    /// A word.
    Text(&'static str),
    /// Several counts.
    Ints(Vec<i64>),
    /// Several real numbers.
    Floats(Vec<f64>),
}

/// Named values.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Unique within the case.
    pub name: String,
    /// Dimensions, slowest first.
    pub shape: Vec<u64>,
    /// The elements.
    pub values: Values,
}

/// One action of the host.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Writes an input of the case into a tensor.
    Write {
        /// The tensor.
        tensor: TensorId,
        /// Index in [`Case::inputs`].
        input: usize,
    },
    /// Writes zeros.
    Clear {
        /// The tensor.
        tensor: TensorId,
    },
    /// Runs a segment.
    Run {
        /// The segment.
        segment: SegmentId,
        /// The inputs of the run.
        inputs: StepInputs,
    },
    /// Reads a tensor and keeps its content.
    Read(Reading),
}

/// A result that is compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Unique within the case.
    pub label: String,
    /// The tensor.
    pub tensor: TensorId,
    /// Which part of it.
    pub form: Form,
    /// How exact it must be.
    pub tolerance: Tolerance,
}

/// Which part of a tensor is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    /// All elements.
    Elements,
    /// The elements from `from` up to, not including, `to`.
    Part {
        /// First element.
        from: usize,
        /// First element after the part.
        to: usize,
    },
    /// The sum of all elements times a factor: for example, a loss from the losses of its rows.
    Total {
        /// The factor.
        factor: f32,
    },
    /// The fields of a step state; see [`state_fields`].
    State,
}

/// `|got - want| <= absolute + relative * |want|` for each element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// For values near zero.
    pub absolute: f64,
    /// For all others.
    pub relative: f64,
    /// Why it cannot be smaller.
    pub reason: &'static str,
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:e} + {:e} |golden|: {}", self.absolute, self.relative, self.reason)
    }
}

/// A scalar loss of the case's results, and its gradients that the case computes.
#[derive(Clone, Debug, PartialEq)]
pub struct Derivative {
    /// The scalar is the sum of these.
    pub loss: Vec<LossTerm>,
    /// Its gradients.
    pub pairs: Vec<GradientPair>,
}

/// A part of a scalar loss.
#[derive(Clone, Debug, PartialEq)]
pub enum LossTerm {
    /// `Σ output · cotangent`, where the cotangent is the input that served as the output's
    /// gradient.
    Dot {
        /// Label of the output.
        output: String,
        /// Name of the input.
        cotangent: String,
    },
    /// `Σ output · factor`.
    Sum {
        /// Label of the output.
        output: String,
        /// The factor.
        factor: f64,
    },
}

/// An input and its gradient.
#[derive(Clone, Debug, PartialEq)]
pub struct GradientPair {
    /// Name of the input.
    pub input: String,
    /// Label of the gradient.
    pub gradient: String,
    /// Whether the gradient was added to an input with its own name.
    pub accumulated: bool,
}

impl Case {
    /// Changes every step, as the recompute rewrite does.
    pub(crate) fn rewrite(&mut self, mut change: impl FnMut(&mut Op)) {
        let steps = self.schedule.segments.iter_mut().flat_map(|segment| &mut segment.steps);
        steps.for_each(|step| change(&mut step.op));
    }

    /// The readings of the script, in order.
    pub fn readings(&self) -> impl Iterator<Item = &Reading> {
        self.script.iter().filter_map(|action| match action {
            Action::Read(reading) => Some(reading),
            Action::Write { .. } | Action::Clear { .. } | Action::Run { .. } => None,
        })
    }

    /// The dimensions of a reading.
    pub fn reading_shape(&self, reading: &Reading) -> Vec<u64> {
        match reading.form {
            Form::Elements => self.schedule.tensors.get(reading.tensor).shape.dims().to_vec(),
            Form::Part { from, to } => vec![(to - from) as u64],
            Form::Total { .. } => vec![1],
            Form::State => vec![STATE_FIELDS as u64],
        }
    }

    /// The input of that name.
    pub fn input(&self, name: &str) -> Option<&Input> {
        self.inputs.iter().find(|input| input.name == name)
    }

    /// A number that changes whenever the reference would have to compute something else.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = Fnv::seeded(0);
        hash.add(format!("{} {:?}", self.kind, self.attributes).as_bytes());
        for input in &self.inputs {
            let dtype = input.values.dtype();
            hash.add(format!("{} {dtype} {:?}", input.name, input.shape).as_bytes());
            hash.add(input.values.to_bytes());
        }
        for reading in self.readings() {
            let shape = self.reading_shape(reading);
            hash.add(format!("{} {shape:?}", reading.label).as_bytes());
        }
        hash.get()
    }
}

/// How many numbers [`state_fields`] gives.
pub const STATE_FIELDS: usize = 7;

/// A step state as comparable numbers: Adam's t, loss scale, growth, found_inf, norm, multiplier,
/// skipped. A skipped update uses no multiplier, so its multiplier counts as 0.
pub fn state_fields(state: &StepState) -> [f32; STATE_FIELDS] {
    let flag = |set: bool| if set { 1.0 } else { 0.0 };
    [
        state.updates as f32,
        state.loss_scale,
        state.growth as f32,
        flag(state.found_inf),
        state.grad_norm,
        if state.skipped { 0.0 } else { state.grad_multiplier },
        flag(state.skipped),
    ]
}
