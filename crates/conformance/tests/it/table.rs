//! What holds for every case, whichever backend runs it.

use fitgpt_conformance::{Action, Case, Goldens, cases, models, run};
use plan::ops::Op;
use plan::{Bytes, NoScratch, Scratch, Tensors};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;

/// A backend that needs a page of scratch for every op.
#[derive(Debug)]
struct MuchScratch;

impl Scratch for MuchScratch {
    fn bytes(&self, _: &Op, _: &Tensors) -> Option<Bytes> {
        Bytes::new(4096)
    }
}

fn scratch() -> Rc<dyn Scratch> {
    Rc::new(NoScratch)
}

fn all() -> Vec<Case> {
    let mut all = cases::cases(&scratch()).unwrap();
    all.extend(models::cases(&scratch()).unwrap());
    all
}

/// A transfer computes nothing, and the others need several ranks: backends compare offloaded runs,
/// and runs on several ranks with runs on one.
const WITHOUT_CASE: &[&str] =
    &["Transfer", "Clear", "SquareSums", "NormOfSums", "ReduceScatter", "AllGather"];

/// Ops that no architecture uses yet.
const IN_NO_MODEL: &[&str] = &[];

/// The ops that no case has.
fn missing(cases: &[Case], exempt: &[&str]) -> Vec<&'static str> {
    let segments = cases.iter().flat_map(|case| &case.schedule.segments);
    let steps = segments.flat_map(|segment| &segment.steps);
    let found: BTreeSet<&str> = steps.map(|step| step.op.variant()).collect();
    let is_missing = |variant: &&str| !found.contains(variant) && !exempt.contains(variant);
    Op::VARIANTS.iter().copied().filter(is_missing).collect()
}

#[test]
fn every_op_has_a_case_of_its_own_and_one_in_a_model() {
    let missing_cases = missing(&cases::cases(&scratch()).unwrap(), WITHOUT_CASE);
    assert!(missing_cases.is_empty(), "src/cases has none for {missing_cases:?}");
    let exempt = [WITHOUT_CASE, IN_NO_MODEL].concat();
    let in_no_model = missing(&models::cases(&scratch()).unwrap(), &exempt);
    assert!(in_no_model.is_empty(), "used by no model, and not in IN_NO_MODEL: {in_no_model:?}");
}

/// The re-emitting gradients, which only recompute emits.
#[test]
fn the_re_emitting_forms_have_cases_of_their_own_and_in_models() {
    let is_again = |op: &Op| match op {
        Op::GeluBackward(op) => op.again,
        Op::LayerNormBackward(op) => op.again.is_some(),
        _ => false,
    };
    for cases in [cases::cases(&scratch()).unwrap(), models::cases(&scratch()).unwrap()] {
        let segments = cases.iter().flat_map(|case| &case.schedule.segments);
        let ops = segments.flat_map(|segment| &segment.steps).map(|step| &step.op);
        let found: BTreeSet<&str> = ops.filter(|op| is_again(op)).map(Op::variant).collect();
        assert_eq!(found, BTreeSet::from(["GeluBackward", "LayerNormBackward"]));
    }
}

#[test]
fn names_are_unique_and_plain() {
    let mut names = BTreeSet::new();
    for case in all() {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(case.name.chars().all(plain), "{}", case.name);
        let inputs: BTreeSet<&str> = case.inputs.iter().map(|i| i.name.as_str()).collect();
        assert_eq!(inputs.len(), case.inputs.len(), "{}", case.name);
        let labels: BTreeSet<&str> = case.readings().map(|r| r.label.as_str()).collect();
        assert_eq!(labels.len(), case.readings().count(), "{}", case.name);
        assert!(!labels.is_empty() && labels.iter().all(|l| !l.contains(' ')), "{}", case.name);
        assert!(names.insert(case.name.clone()), "{}", case.name);
    }
}

#[test]
fn every_plan_is_sound_and_every_write_fits() {
    for case in all() {
        run::placed(&case).unwrap_or_else(|error| panic!("{}: {error}", case.name));
        for action in &case.script {
            if let Action::Write { tensor, input } = action {
                let (row, input) = (case.schedule.tensors.get(*tensor), &case.inputs[*input]);
                let at = format!("{} {}", case.name, input.name);
                assert_eq!(row.dtype, input.values.dtype(), "{at}");
                assert_eq!(row.shape.elements(), input.values.len() as u64, "{at}");
            }
        }
        for input in &case.inputs {
            let elements: u64 = input.shape.iter().product();
            assert_eq!(elements, input.values.len() as u64, "{} {}", case.name, input.name);
        }
    }
}

#[test]
fn inputs_depend_on_nothing() {
    let prints = |cases: &[Case]| -> BTreeMap<String, u64> {
        cases.iter().map(|case| (case.name.clone(), case.fingerprint())).collect()
    };
    let first = prints(&all());
    assert_eq!(prints(&all()), first);
    // Nor on the backend's scratch.
    let much: Rc<dyn Scratch> = Rc::new(MuchScratch);
    let other = models::cases(&much).unwrap();
    assert!(prints(&other).iter().all(|(name, print)| first[name] == *print));
    let distinct: BTreeSet<u64> = first.values().copied().collect();
    assert_eq!(distinct.len(), first.len());
}

#[test]
fn derivatives_name_what_the_case_has() {
    let mut pairs = 0;
    for case in all() {
        let Some(derivative) = &case.derivative else { continue };
        for pair in &derivative.pairs {
            pairs += 1;
            let reading = case.readings().find(|r| r.label == pair.gradient).unwrap();
            let input = case.input(&pair.input).unwrap();
            assert_eq!(case.reading_shape(reading), input.shape, "{}", case.name);
            assert_eq!(pair.accumulated, case.input(&pair.gradient).is_some(), "{}", case.name);
        }
        assert!(!derivative.loss.is_empty(), "{}", case.name);
    }
    assert!(pairs > 60, "{pairs}");
}

#[test]
fn goldens_are_those_of_the_cases_and_small() {
    let goldens = Goldens::in_tree().unwrap();
    assert_eq!(goldens.precision, "float64");
    assert_eq!(goldens.seed, fitgpt_conformance::values::SEED);
    let mut names = BTreeSet::new();
    for case in all() {
        goldens.of(&case).unwrap_or_else(|error| panic!("{error}"));
        names.insert(case.name.clone());
    }
    assert_eq!(goldens.names().map(str::to_string).collect::<BTreeSet<_>>(), names);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/data");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
    let (count, bytes) = files.fold((0, 0), |(count, bytes), f| (count + 1, bytes + f.len()));
    assert_eq!(count, names.len() + 1, "a file that belongs to no case");
    assert!(bytes < 1_500_000, "{bytes}");
}

#[test]
fn a_golden_of_another_question_is_refused() {
    let goldens = Goldens::in_tree().unwrap();
    let mut case = all().swap_remove(0);
    case.attributes.push(("more".to_string(), fitgpt_conformance::case::Attribute::Int(1)));
    let error = goldens.of(&case).unwrap_err().to_string();
    assert!(error.contains("other inputs; run `cargo xtask golden`"), "{error}");
    case.name = "nobody".to_string();
    let error = goldens.of(&case).unwrap_err().to_string();
    assert!(error.contains("nobody does not exist"), "{error}");
}
