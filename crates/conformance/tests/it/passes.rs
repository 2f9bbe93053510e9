//! A backend that follows the formulas passes every check; one with errors fails every case.

use crate::naive::{Sabotage, load, load_with};
use fitgpt_conformance::{
    Failure, Problem, Summary, check_agreement, check_finite_differences, check_formats,
    check_models, check_ops,
};
use plan::{Backend, BackendError, Dtype, NoScratch, Plan, Scratch};
use std::collections::BTreeSet;
use std::rc::Rc;

fn scratch() -> Rc<dyn Scratch> {
    Rc::new(NoScratch)
}

fn expect(what: &str, result: Result<Summary, Vec<Failure>>) {
    match result {
        Ok(summary) => println!("{what}: {summary}"),
        Err(failures) => {
            let shown: Vec<String> = failures.iter().map(ToString::to_string).collect();
            panic!("{what}:\n{}", shown.join("\n"));
        }
    }
}

fn erring(
    relative: f64,
    op: Option<&'static str>,
) -> impl Fn(Plan) -> Result<Box<dyn Backend>, BackendError> {
    move |plan| load_with(plan, Sabotage { relative, op })
}

#[test]
fn formulas_pass() {
    expect("ops", check_ops(&load, &scratch()));
    expect("finite differences", check_finite_differences(&load, &scratch()));
    expect("models", check_models(&load, &scratch()));
    expect("agreement", check_agreement(&load, &load, &scratch()));
}

/// As if every result were off by two units in the last place.
#[test]
fn rounding_passes() {
    let rounding = erring(2.4e-7, None);
    expect("ops", check_ops(&rounding, &scratch()));
    expect("finite differences", check_finite_differences(&rounding, &scratch()));
    expect("models", check_models(&rounding, &scratch()));
}

#[test]
fn errors_fail_every_case_that_computes() {
    let failures = check_ops(&erring(1e-3, None), &scratch()).unwrap_err();
    let failed: BTreeSet<&str> = failures.iter().map(|failure| failure.case.as_str()).collect();
    let all = fitgpt_conformance::cases::cases(&scratch()).unwrap();
    for case in &all {
        // These write only a state, which the errors leave alone.
        let state_only = case.kind == "grad_norm";
        assert_eq!(failed.contains(case.name.as_str()), !state_only, "{}", case.name);
    }
    let failures = check_models(&erring(1e-3, None), &scratch()).unwrap_err();
    let failed: BTreeSet<&str> = failures.iter().map(|failure| failure.case.as_str()).collect();
    assert_eq!(failed.len(), fitgpt_conformance::models::cases(&scratch()).unwrap().len());
}

#[test]
fn a_wrong_op_is_named_with_its_numbers() {
    let failures = check_ops(&erring(0.01, Some("gelu_backward")), &scratch()).unwrap_err();
    for failure in &failures {
        let shown = failure.to_string();
        let Problem::Value { label, .. } = &failure.problem else { panic!("{shown}") };
        // In the re-emitting form, the gradient also writes the function.
        let is_its_own = label == "d_x" || (label == "again" && failure.case.ends_with("_again"));
        assert!(failure.case.starts_with("gelu_") && is_its_own, "{shown}");
        for part in
            [&format!(": {label}["), " instead of ", ": off by ", ", allowed ", " elements are off"]
        {
            assert!(shown.contains(part), "{shown}");
        }
    }
    assert_eq!(failures.len(), 8);
}

#[test]
fn finite_differences_see_wrong_gradients() {
    for (op, kind) in [
        ("linear_backward_input", "linear"),
        ("linear_backward_weight", "linear"),
        ("layernorm_backward", "layernorm"),
        ("attention_backward", "attention"),
        ("gelu_backward", "gelu"),
        ("embed_backward", "embed"),
    ] {
        let wrong = erring(0.1, Some(op));
        let failures = check_finite_differences(&wrong, &scratch()).unwrap_err();
        for failure in failures {
            let shown = failure.to_string();
            assert!(failure.case.starts_with(kind), "{shown}");
            assert!(shown.contains("the loss changes by"), "{shown}");
        }
    }
}

#[test]
fn a_backend_that_cannot_load_fails_every_case() {
    let refuse = |_: Plan| Err(BackendError::Unsupported { what: "everything".into() });
    let failures = check_ops(&refuse, &scratch()).unwrap_err();
    assert_eq!(failures.len(), fitgpt_conformance::cases::cases(&scratch()).unwrap().len());
    assert!(failures[0].to_string().ends_with("not supported here: everything"));
}

/// A backend does not get out of a check by refusing it, unless it said which cases it refuses; and
/// it refuses those that it said.
#[test]
fn refusals_in_a_format_are_those_that_were_named() {
    let refuse = |_: Plan| Err(BackendError::Unsupported { what: "everything".into() });
    let format = Dtype::Bf16;
    let failures = check_formats(&refuse, &load, format, &[], &scratch()).unwrap_err();
    assert!(failures.len() >= 50, "{}", failures.len());
    let names: Vec<&str> = failures.iter().map(|failure| failure.case.as_str()).collect();
    let fewer = check_formats(&refuse, &load, format, &names[1..], &scratch()).unwrap_err();
    assert_eq!(fewer, failures[..1]);
    let summary = check_formats(&refuse, &load, format, &names, &scratch()).unwrap();
    assert_eq!(summary.cases, 0);
    let ran = check_formats(&load, &load, Dtype::F32, &names[..1], &scratch()).unwrap_err();
    let shown: Vec<String> = ran.iter().map(ToString::to_string).collect();
    assert_eq!(shown, [format!("{}: it ran, and was expected to be refused", names[0])]);
}
