//! Runs a case's script on a backend. Everything that the script does not write is filled with NaN
//! first, so that a kernel that reads scratch or skips an output cannot pass by luck.

use crate::case::{Action, Case, Form, Reading, state_fields};
use crate::values::Values;
use plan::{Backend, BackendError, Dtype, Plan, PlanError, Scope, StepState, TensorId, half};

/// Proves a plan for a backend and creates the backend.
pub type LoadBackend<'a> = &'a dyn Fn(Plan) -> Result<Box<dyn Backend>, BackendError>;

/// What was read, by label.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The reading's label.
    pub label: String,
    /// Its elements.
    pub elements: Vec<f32>,
}

/// Why a case could not be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// Its schedule cannot be placed.
    #[error(transparent)]
    Plan(PlanError),
    /// The backend refused or failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

/// A case loaded into a backend. It can be run any number of times.
pub struct Runner<'a> {
    case: &'a Case,
    backend: Box<dyn Backend>,
}

impl<'a> Runner<'a> {
    /// Places the case's schedule and loads the plan.
    pub fn new(case: &'a Case, load: LoadBackend<'_>) -> Result<Runner<'a>, RunError> {
        Ok(Runner { case, backend: load(placed(case)?)? })
    }

    /// Runs the script on the case's inputs.
    pub fn run(&mut self) -> Result<Vec<Measured>, RunError> {
        self.run_with(None)
    }

    /// Runs the script with other values for one of the inputs.
    pub fn run_with(
        &mut self,
        replaced: Option<(&str, &Values)>,
    ) -> Result<Vec<Measured>, RunError> {
        self.poison()?;
        let mut measured = Vec::new();
        for action in &self.case.script {
            match action {
                Action::Write { tensor, input } => {
                    let input = &self.case.inputs[*input];
                    let values = match replaced {
                        Some((name, values)) if name == input.name => values,
                        _ => &input.values,
                    };
                    let content = match values {
                        Values::F32(numbers) => self.encoded(*tensor, numbers),
                        Values::I32(_) | Values::U32(_) => values.to_bytes(),
                    };
                    self.backend.write(*tensor, &content)?;
                }
                Action::Clear { tensor } => {
                    let zeros = vec![0; self.bytes(*tensor)];
                    self.backend.write(*tensor, &zeros)?;
                }
                Action::Run { segment, inputs } => self.backend.run(*segment, inputs)?,
                Action::Read(reading) => {
                    let elements = self.read(reading)?;
                    measured.push(Measured { label: reading.label.clone(), elements });
                }
            }
        }
        Ok(measured)
    }

    /// The backend, for callers that time single segments of [`Case::script`].
    pub fn backend(&mut self) -> &mut dyn Backend {
        &mut *self.backend
    }

    /// The numbers as bytes of the tensor's format.
    fn encoded(&self, tensor: TensorId, numbers: &[f32]) -> Vec<u8> {
        let mut content = Vec::new();
        half::encode(self.case.schedule.tensors.get(tensor).dtype, numbers, &mut content);
        content
    }

    fn bytes(&self, tensor: TensorId) -> usize {
        self.case.schedule.tensors.bytes(tensor).get() as usize
    }

    /// Bytes of all ones are NaN in every float type.
    fn poison(&mut self) -> Result<(), RunError> {
        let tensors = &self.case.schedule.tensors;
        for id in tensors.ids() {
            let tensor = tensors.get(id);
            let held = !matches!(tensor.scope, Scope::Segment(_));
            let is_float = !matches!(tensor.dtype, Dtype::I32 | Dtype::U32);
            if held && is_float && tensor.view.is_none() {
                let ones = vec![0xFF; self.bytes(id)];
                self.backend.write(id, &ones)?;
            }
        }
        Ok(())
    }

    fn read(&mut self, reading: &Reading) -> Result<Vec<f32>, RunError> {
        let mut content = vec![0; self.bytes(reading.tensor)];
        self.backend.read(reading.tensor, &mut content)?;
        let mut numbers = Vec::new();
        half::decode(self.case.schedule.tensors.get(reading.tensor).dtype, &content, &mut numbers);
        Ok(match reading.form {
            Form::Elements => numbers,
            Form::Part { from, to } => numbers.into_iter().take(to).skip(from).collect(),
            Form::Total { factor } => {
                let total: f64 = numbers.into_iter().map(f64::from).sum();
                vec![(total * f64::from(factor)) as f32]
            }
            Form::State => {
                let mut words = [0; StepState::WORDS];
                for (word, bytes) in words.iter_mut().zip(content.as_chunks::<4>().0) {
                    *word = u32::from_le_bytes(*bytes);
                }
                state_fields(&StepState::from_words(&words)).to_vec()
            }
        })
    }
}

/// Runs a case once.
pub fn run_case(case: &Case, load: LoadBackend<'_>) -> Result<Vec<Measured>, RunError> {
    Runner::new(case, load)?.run()
}

/// The case's plan.
pub fn placed(case: &Case) -> Result<Plan, RunError> {
    Plan::new(case.schedule.clone()).map_err(RunError::Plan)
}
