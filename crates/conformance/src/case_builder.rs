//! Builds cases concisely: one call adds a tensor, its values and its action in the script. All
//! tensors that the host touches are run-wide, so that they can be both written and read.

use crate::case::{
    Action, Attribute, Case, Derivative, Form, GradientPair, Input, LossTerm, Reading, Tolerance,
};
use crate::values::{Values, stream};
use plan::{
    Dtype, NoScratch, Phase, PlanError, Role, Schedule, ScheduleBuilder, Scratch, SegmentBuilder,
    SegmentId, Shape, StepInputs, StepState, TensorId,
};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The distribution of an input's values.
#[derive(Clone, Copy, Debug)]
pub struct Normal {
    /// Mean.
    pub mean: f32,
    /// Standard deviation.
    pub deviation: f32,
}

/// Mean 0, standard deviation 1.
pub const STANDARD: Normal = Normal { mean: 0.0, deviation: 1.0 };

/// Normal values of mean 0.
pub const fn spread(deviation: f32) -> Normal {
    Normal { mean: 0.0, deviation }
}

/// The distribution of gains and other factors.
pub const NEAR_ONE: Normal = Normal { mean: 1.0, deviation: 0.2 };

/// A case being built.
pub struct CaseBuilder {
    name: String,
    kind: &'static str,
    attributes: Vec<(String, Attribute)>,
    inputs: Vec<Input>,
    /// The schedule being built.
    pub schedule: ScheduleBuilder,
    script: Vec<Action>,
    loss: Vec<LossTerm>,
    pairs: Vec<GradientPair>,
    tolerance: Tolerance,
}

impl CaseBuilder {
    /// An empty case of ops without scratch. Readings get this tolerance until another is set.
    pub fn new(name: &str, kind: &'static str, tolerance: Tolerance) -> CaseBuilder {
        let none: Rc<dyn Scratch> = Rc::new(NoScratch);
        CaseBuilder::with_scratch(name, kind, tolerance, &none)
    }

    /// As [`CaseBuilder::new`], for ops with scratch.
    pub fn with_scratch(
        name: &str,
        kind: &'static str,
        tolerance: Tolerance,
        scratch: &Rc<dyn Scratch>,
    ) -> CaseBuilder {
        CaseBuilder {
            name: name.to_string(),
            kind,
            attributes: Vec::new(),
            inputs: Vec::new(),
            schedule: ScheduleBuilder::with_scratch(Rc::clone(scratch)),
            script: Vec::new(),
            loss: Vec::new(),
            pairs: Vec::new(),
            tolerance,
        }
    }

    /// Sets the tolerance of the readings that follow.
    pub fn set_tolerance(&mut self, tolerance: Tolerance) {
        self.tolerance = tolerance;
    }

    /// Adds a number for the reference.
    pub fn attribute(&mut self, name: &str, value: Attribute) {
        self.attributes.push((name.to_string(), value));
    }

    /// Adds a run-wide tensor of floats without values.
    pub fn tensor(&mut self, name: &str, dims: &[u64]) -> Result<TensorId, PlanError> {
        self.schedule.run_tensor(name, Dtype::F32, Shape::new(dims)?, Role::Activation)
    }

    /// Adds the step state, which is written before anything runs.
    pub fn state(&mut self, state: &StepState) -> Result<TensorId, PlanError> {
        let shape = Shape::new(&[StepState::WORDS as u64])?;
        let tensor = self.schedule.run_tensor("state", Dtype::U32, shape, Role::State)?;
        self.write_new("state", tensor, shape, Values::U32(state.to_words().to_vec()));
        Ok(tensor)
    }

    /// Adds a tensor with drawn values.
    pub fn input(
        &mut self,
        name: &str,
        dims: &[u64],
        normal: Normal,
    ) -> Result<TensorId, PlanError> {
        let values = self.drawn(name, dims, normal)?;
        self.given(name, dims, values)
    }

    /// Drawn values without a tensor.
    pub fn drawn(&self, name: &str, dims: &[u64], normal: Normal) -> Result<Vec<f32>, PlanError> {
        let mut stream = stream(&self.name, name);
        let elements = Shape::new(dims)?.elements();
        Ok((0..elements).map(|_| normal.mean + normal.deviation * stream.normal()).collect())
    }

    /// Adds a tensor with these values.
    pub fn given(
        &mut self,
        name: &str,
        dims: &[u64],
        values: Vec<f32>,
    ) -> Result<TensorId, PlanError> {
        let tensor = self.tensor(name, dims)?;
        self.write_new(name, tensor, Shape::new(dims)?, Values::F32(values));
        Ok(tensor)
    }

    /// Drawn ids below `limit`.
    pub fn drawn_ids(&self, name: &str, dims: &[u64], limit: u64) -> Result<Vec<i32>, PlanError> {
        let mut stream = stream(&self.name, name);
        let elements = Shape::new(dims)?.elements();
        Ok((0..elements).map(|_| stream.below(limit) as i32).collect())
    }

    /// Adds a tensor with these ids.
    pub fn ids(
        &mut self,
        name: &str,
        dims: &[u64],
        values: Vec<i32>,
    ) -> Result<TensorId, PlanError> {
        let shape = Shape::new(dims)?;
        let tensor = self.schedule.run_tensor(name, Dtype::I32, shape, Role::Tokens)?;
        self.write_new(name, tensor, shape, Values::I32(values));
        Ok(tensor)
    }

    /// Adds values that only the reference sees.
    pub fn aside(&mut self, name: &str, dims: &[u64], values: Values) {
        self.inputs.push(Input { name: name.to_string(), shape: dims.to_vec(), values });
    }

    /// Writes new values into a tensor at this point of the script.
    pub fn write(&mut self, name: &str, tensor: TensorId, dims: &[u64], values: Values) {
        self.script.push(Action::Write { tensor, input: self.inputs.len() });
        self.aside(name, dims, values);
    }

    fn write_new(&mut self, name: &str, tensor: TensorId, shape: Shape, values: Values) {
        self.write(name, tensor, shape.dims(), values);
    }

    /// Writes zeros into a tensor at this point of the script.
    pub fn clear(&mut self, tensor: TensorId) {
        self.script.push(Action::Clear { tensor });
    }

    /// Starts the segment of a case that has only one.
    pub fn segment(&mut self) -> SegmentBuilder<'_> {
        self.schedule.segment("op", Phase::Train)
    }

    /// Runs a segment at this point of the script.
    pub fn run(&mut self, segment: SegmentId, inputs: StepInputs) {
        self.script.push(Action::Run { segment, inputs });
    }

    /// Reads a whole tensor at this point of the script.
    pub fn read(&mut self, label: &str, tensor: TensorId) {
        self.read_as(label, tensor, Form::Elements);
    }

    /// Reads a tensor in some form at this point of the script.
    pub fn read_as(&mut self, label: &str, tensor: TensorId, form: Form) {
        let (label, tolerance) = (label.to_string(), self.tolerance);
        self.script.push(Action::Read(Reading { label, tensor, form, tolerance }));
    }

    /// Adds `Σ output · cotangent` to the loss whose gradients the case computes.
    pub fn loss_dot(&mut self, output: &str, cotangent: &str) {
        let (output, cotangent) = (output.to_string(), cotangent.to_string());
        self.loss.push(LossTerm::Dot { output, cotangent });
    }

    /// Adds `Σ output · factor` to that loss.
    pub fn loss_sum(&mut self, output: &str, factor: f64) {
        self.loss.push(LossTerm::Sum { output: output.to_string(), factor });
    }

    /// Declares that a result is the gradient of an input.
    pub fn gradient(&mut self, input: &str, gradient: &str) {
        self.pair(input, gradient, false);
    }

    /// Declares that a result is the gradient of an input, added to what the input with the
    /// result's name held.
    pub fn accumulated(&mut self, input: &str, gradient: &str) {
        self.pair(input, gradient, true);
    }

    fn pair(&mut self, input: &str, gradient: &str, accumulated: bool) {
        let (input, gradient) = (input.to_string(), gradient.to_string());
        self.pairs.push(GradientPair { input, gradient, accumulated });
    }

    /// The finished case.
    pub fn finish(mut self) -> Case {
        let schedule = std::mem::take(&mut self.schedule).finish();
        self.finish_with(schedule)
    }

    /// The finished case, with a schedule that was made elsewhere.
    pub fn finish_with(self, schedule: Schedule) -> Case {
        let (loss, pairs) = (self.loss, self.pairs);
        Case {
            name: self.name,
            kind: self.kind,
            attributes: self.attributes,
            inputs: self.inputs,
            schedule,
            script: self.script,
            derivative: (!pairs.is_empty()).then_some(Derivative { loss, pairs }),
        }
    }
}

/// Emits the backward of a segment and returns the gradients of `wanted`, which the host can read.
pub fn backward<const N: usize>(
    segment: &mut SegmentBuilder<'_>,
    accumulators: &[(TensorId, TensorId)],
    delivered: &[(TensorId, TensorId)],
    wanted: [TensorId; N],
) -> Result<[TensorId; N], PlanError> {
    let accumulators: BTreeMap<TensorId, TensorId> = accumulators.iter().copied().collect();
    let gradients = segment.backward(&accumulators, delivered.iter().copied().collect())?;
    let mut found = wanted;
    for gradient in &mut found {
        *gradient = gradients.get(gradient).copied().ok_or(PlanError::NoGradient {
            op: "conformance",
            missing: "a wanted gradient was not delivered".to_string(),
        })?;
        // Gradients that existed before are run-wide, so the host can read them already.
        if delivered.iter().all(|(_, given)| given != gradient) {
            segment.mark_output(*gradient);
        }
    }
    Ok(found)
}
