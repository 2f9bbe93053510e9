//! Op cases in formats that are rounded: 16-bit ones, and TF32, which is f32 whose matmuls round
//! their operands. One backend computes in such a format, the other in f32 on the same numbers,
//! already rounded to the format. They may differ only by the format's own rounding.

use crate::case::{Action, Case, Tolerance};
use crate::cases;
use crate::check::{Failure, Problem, Report, Summary, built};
use crate::compare::compare;
use crate::run::{LoadBackend, Measured, RunError, run_case};
use crate::values::Values;
use plan::ops::Elements;
use plan::{BackendError, Dtype, PlanError, Scratch, TensorId, half};
use std::rc::Rc;

/// Results may be off by this many roundings of the largest number of their tensor: one for storing
/// it, and a few for what was stored in between (probabilities, scores, gradients of logits).
const ROUNDINGS: f64 = 4.0;

/// Attention's gradient subtracts two rounded numbers, `d_out · v` and `d_out · out`, that nearly
/// cancel where softmax is sharp.
const ROUNDINGS_OF_ATTENTION: f64 = 12.0;

const REASON: &str = "a few roundings of the format, of the largest number of the tensor";

/// Checks every op case in `dtype` on one backend against f32 on the other. The backend must refuse
/// the cases named in `refused` as unsupported, and no others.
pub fn check_formats(
    load: LoadBackend<'_>,
    reference: LoadBackend<'_>,
    dtype: Dtype,
    refused: &[&str],
    scratch: &Rc<dyn Scratch>,
) -> Result<Summary, Vec<Failure>> {
    let mut report = Report::default();
    let round = |numbers: &mut Vec<f32>| {
        let mut bytes = Vec::new();
        half::encode(dtype, numbers, &mut bytes);
        half::decode(dtype, &bytes, numbers);
    };
    for case in built(cases::cases(scratch))? {
        let rounded = with_rounded_inputs(&case, round);
        let narrow = match in_format(&rounded, dtype) {
            Ok(Some(narrow)) => narrow,
            Ok(None) => continue,
            Err(error) => {
                report.fail(&case.name, Problem::Build(error));
                continue;
            }
        };
        let got = run_case(&narrow, load);
        if refused.contains(&case.name.as_str()) {
            match got {
                Err(RunError::Backend(BackendError::Unsupported { .. })) => {}
                Err(error) => report.fail(&case.name, Problem::Run(error)),
                Ok(_) => report.fail(&case.name, Problem::NotRefused),
            }
            continue;
        }
        let want = run_case(&rounded, reference);
        compare_runs(&mut report, &case, got, want, rounding(dtype));
    }
    report.finish()
}

/// Checks every op case that multiplies matrices on one backend, which rounds their operands to
/// TF32, against f32 on the other.
pub fn check_tf32(
    load: LoadBackend<'_>,
    reference: LoadBackend<'_>,
    scratch: &Rc<dyn Scratch>,
) -> Result<Summary, Vec<Failure>> {
    let mut report = Report::default();
    let round = |numbers: &mut Vec<f32>| numbers.iter_mut().for_each(|x| *x = tf32(*x));
    let all = built(cases::cases(scratch))?;
    for case in all.iter().filter(|case| MATMUL_KINDS.contains(&case.kind)) {
        let rounded = with_rounded_inputs(case, round);
        let (got, want) = (run_case(&rounded, load), run_case(&rounded, reference));
        compare_runs(&mut report, case, got, want, TF32_ROUNDING);
    }
    report.finish()
}

/// Kinds of cases whose ops multiply matrices.
const MATMUL_KINDS: [&str; 5] = ["attention", "linear", "linear_add", "head_train", "head_eval"];

/// TF32 keeps 10 bits of the fraction.
const TF32_ROUNDING: f64 = 1.0 / (1u64 << 11) as f64;

/// To nearest, ties away from zero, as the GPU's conversion does.
fn tf32(x: f32) -> f32 {
    const DROPPED: u32 = 13;
    if !x.is_finite() {
        return x;
    }
    f32::from_bits((x.to_bits() + (1 << (DROPPED - 1))) >> DROPPED << DROPPED)
}

/// Compares what was read after two runs of a case; `rounding` is that of the format.
fn compare_runs(
    report: &mut Report,
    case: &Case,
    got: Result<Vec<Measured>, RunError>,
    want: Result<Vec<Measured>, RunError>,
    rounding: f64,
) {
    report.summary.cases += 1;
    let (got, want) = match (got, want) {
        (Ok(got), Ok(want)) => (got, want),
        (Err(error), _) | (_, Err(error)) => return report.fail(&case.name, Problem::Run(error)),
    };
    for (got, want) in got.iter().zip(&want) {
        let tolerance = tolerance(case, &want.elements, rounding);
        match compare(&got.elements, &want.elements, &tolerance) {
            Ok(used) => report.pass(&case.name, &got.label, want.elements.len(), used),
            Err(difference) => {
                let label = got.label.clone();
                report.fail(&case.name, Problem::Value { label, difference, tolerance });
            }
        }
    }
}

/// Half the distance between 1 and the next number.
fn rounding(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::Bf16 => f64::powi(2.0, -9),
        Dtype::F16 => f64::powi(2.0, -12),
        Dtype::F32 | Dtype::I32 | Dtype::U32 | Dtype::U16 => f64::powi(2.0, -24),
    }
}

fn tolerance(case: &Case, want: &[f32], rounding: f64) -> Tolerance {
    let largest = want.iter().filter(|x| x.is_finite()).fold(0f32, |most, x| most.max(x.abs()));
    let roundings = if case.kind == "attention" { ROUNDINGS_OF_ATTENTION } else { ROUNDINGS };
    let allowed = roundings * rounding;
    Tolerance { absolute: allowed * f64::from(largest) + 1e-7, relative: 0.0, reason: REASON }
}

/// The case with inputs rounded to the format.
fn with_rounded_inputs(case: &Case, round: impl Fn(&mut Vec<f32>)) -> Case {
    let mut rounded = case.clone();
    for input in &mut rounded.inputs {
        if let Values::F32(numbers) = &mut input.values {
            round(numbers);
        }
    }
    rounded
}

/// The case with every float operand in the format, except those that are f32 in every model. None
/// if there is no such operand, or if it shares bytes.
fn in_format(case: &Case, dtype: Dtype) -> Result<Option<Case>, PlanError> {
    let mut narrow = case.clone();
    let mut changed = false;
    let ids: Vec<TensorId> = case.schedule.tensors.ids().collect();
    if ids.iter().any(|&id| case.schedule.tensors.get(id).view.is_some()) {
        return Ok(None);
    }
    for id in ids {
        let tensor = case.schedule.tensors.get(id);
        let is_float = tensor.dtype == Dtype::F32 && !tensor.role.is_scratch();
        if is_float && is_free(case, id) {
            narrow.schedule.tensors.set_dtype(id, dtype)?;
            changed = true;
        }
    }
    let is_read = |action: &Action| matches!(action, Action::Read(_));
    Ok((changed && narrow.script.iter().any(is_read)).then_some(narrow))
}

/// Whether every op that uses a tensor permits any float format for it.
fn is_free(case: &Case, id: TensorId) -> bool {
    let steps = case.schedule.segments.iter().flat_map(|segment| &segment.steps);
    let mut uses = steps.flat_map(|step| step.operands()).filter(|operand| operand.tensor == id);
    uses.all(|operand| operand.elements == Elements::Float)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tf32_keeps_ten_bits_and_rounds_halves_away_from_zero() {
        let step = f32::powi(2.0, -10);
        for (x, want) in [
            (1.0, 1.0),
            (1.0 + 0.49 * step, 1.0),
            (1.0 + 0.5 * step, 1.0 + step),
            (-1.0 - 0.5 * step, -1.0 - step),
            (1.0 + 1.4 * step, 1.0 + step),
            (2.0 - 0.25 * step, 2.0),
            (f32::INFINITY, f32::INFINITY),
        ] {
            assert_eq!(tf32(x), want, "{x}");
        }
        assert!(tf32(f32::NAN).is_nan());
    }
}
