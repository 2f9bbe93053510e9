//! The checks that a backend's tests call. Each runs all its cases and reports every failure, not
//! only the first.

use crate::case::{Case, Tolerance};
use crate::compare::{Difference, compare};
use crate::finite_difference::{DerivativeError, Directional, directional};
use crate::golden::{GoldenError, Goldens};
use crate::run::{LoadBackend, Measured, RunError, run_case};
use crate::{cases, models};
use plan::{PlanError, Scratch};
use std::fmt;
use std::rc::Rc;

/// A failed case of a backend, or a golden that cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{case}: {problem}")]
pub struct Failure {
    /// The case.
    pub case: String,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Problem {
    /// The cases cannot be built.
    #[error("{0}")]
    Build(PlanError),
    /// The golden cannot be read, or belongs to another case.
    #[error("{0}")]
    Golden(GoldenError),
    /// The case could not be run.
    #[error("{0}")]
    Run(RunError),
    /// The case ran, and was expected to be refused.
    #[error("it ran, and was expected to be refused")]
    NotRefused,
    /// A value is not what it should be.
    #[error("{label}{difference} (tolerance {tolerance})")]
    Value {
        /// Its label.
        label: String,
        /// How it differs.
        difference: Difference,
        /// The tolerance.
        tolerance: Tolerance,
    },
    /// Derivatives could not be compared.
    #[error("{0}")]
    Derivative(DerivativeError),
    /// A gradient is not the derivative of the loss.
    #[error("{0}")]
    Gradient(Directional),
}

/// What was checked, and which value came closest to its tolerance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Cases that were run.
    pub cases: usize,
    /// Elements, or derivatives, that were compared.
    pub values: usize,
    /// Case and label, and the share of the tolerance that it uses.
    pub closest: Option<(String, f64)>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cases, {} values", self.cases, self.values)?;
        match &self.closest {
            Some((what, used)) => {
                write!(f, "; closest: {what}, {:.1} % of its tolerance", used * 100.0)
            }
            None => Ok(()),
        }
    }
}

/// The state of a running check.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) summary: Summary,
    failures: Vec<Failure>,
}

impl Report {
    pub(crate) fn fail(&mut self, case: &str, problem: Problem) {
        self.failures.push(Failure { case: case.to_string(), problem });
    }

    pub(crate) fn pass(&mut self, case: &str, label: &str, values: usize, used: f64) {
        self.summary.values += values;
        if self.summary.closest.as_ref().is_none_or(|(_, most)| used > *most) {
            self.summary.closest = Some((format!("{case} {label}"), used));
        }
    }

    /// Compares what was read with what was expected, reading by reading.
    fn values<'w>(
        &mut self,
        case: &Case,
        measured: &[Measured],
        wanted: impl Iterator<Item = &'w [f32]>,
    ) {
        for ((reading, got), want) in case.readings().zip(measured).zip(wanted) {
            match compare(&got.elements, want, &reading.tolerance) {
                Ok(used) => self.pass(&case.name, &reading.label, want.len(), used),
                Err(difference) => {
                    let (label, tolerance) = (reading.label.clone(), reading.tolerance);
                    self.fail(&case.name, Problem::Value { label, difference, tolerance });
                }
            }
        }
    }

    pub(crate) fn finish(self) -> Result<Summary, Vec<Failure>> {
        if self.failures.is_empty() { Ok(self.summary) } else { Err(self.failures) }
    }
}

/// Checks every op case against its golden.
pub fn check_ops(
    load: LoadBackend<'_>,
    scratch: &Rc<dyn Scratch>,
) -> Result<Summary, Vec<Failure>> {
    check_goldens(cases::cases(scratch), load)
}

/// Checks every model case against its golden.
pub fn check_models(
    load: LoadBackend<'_>,
    scratch: &Rc<dyn Scratch>,
) -> Result<Summary, Vec<Failure>> {
    check_goldens(models::cases(scratch), load)
}

/// Checks the gradients of every op case against the backend's own forward.
pub fn check_finite_differences(
    load: LoadBackend<'_>,
    scratch: &Rc<dyn Scratch>,
) -> Result<Summary, Vec<Failure>> {
    let cases = built(cases::cases(scratch))?;
    let mut report = Report::default();
    for case in cases.iter().filter(|case| case.derivative.is_some()) {
        report.summary.cases += 1;
        match directional(case, load) {
            Err(error) => report.fail(&case.name, Problem::Derivative(error)),
            Ok(all) => {
                for one in all {
                    match one.used() {
                        used if used <= 1.0 => report.pass(&case.name, &one.input, 1, used),
                        _ => report.fail(&case.name, Problem::Gradient(one)),
                    }
                }
            }
        }
    }
    report.finish()
}

/// Checks one backend against another, on all op and model cases, with the tolerances of the
/// goldens.
pub fn check_agreement(
    load: LoadBackend<'_>,
    other: LoadBackend<'_>,
    scratch: &Rc<dyn Scratch>,
) -> Result<Summary, Vec<Failure>> {
    let mut cases = built(cases::cases(scratch))?;
    cases.extend(built(models::cases(scratch))?);
    let mut report = Report::default();
    for case in &cases {
        report.summary.cases += 1;
        match (run_case(case, load), run_case(case, other)) {
            (Ok(got), Ok(want)) => {
                report.values(case, &got, want.iter().map(|one| one.elements.as_slice()));
            }
            (Err(error), _) | (_, Err(error)) => report.fail(&case.name, Problem::Run(error)),
        }
    }
    report.finish()
}

fn check_goldens(
    cases: Result<Vec<Case>, PlanError>,
    load: LoadBackend<'_>,
) -> Result<Summary, Vec<Failure>> {
    let cases = built(cases)?;
    let goldens = Goldens::in_tree().map_err(|error| {
        vec![Failure { case: "all cases".to_string(), problem: Problem::Golden(error) }]
    })?;
    let mut report = Report::default();
    for case in &cases {
        report.summary.cases += 1;
        match (goldens.of(case), run_case(case, load)) {
            (Ok(golden), Ok(measured)) => {
                let wanted = golden.values.iter().map(|value| value.elements.as_slice());
                report.values(case, &measured, wanted);
            }
            (Err(error), _) => report.fail(&case.name, Problem::Golden(error)),
            (_, Err(error)) => report.fail(&case.name, Problem::Run(error)),
        }
    }
    report.finish()
}

pub(crate) fn built(cases: Result<Vec<Case>, PlanError>) -> Result<Vec<Case>, Vec<Failure>> {
    cases.map_err(|error| {
        vec![Failure { case: "all cases".to_string(), problem: Problem::Build(error) }]
    })
}
