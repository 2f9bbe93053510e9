//! The textual plans of two tiny models, so that a reviewer sees a change of the planner as a
//! diff. `UPDATE_SNAPSHOTS=1 cargo test -p fitgpt-model` rewrites them.

use crate::specs::{dims, eval, generate, model, no_scratch, train};
use fitgpt_model::{Draft, ProgramSpec, implied_attributes};
use plan::report::{Implied, steps_hash};
use plan::{Phase, Plan};
use std::path::Path;

/// Lines of a difference that are shown.
const SHOWN: usize = 8;

fn check(file: &str, spec: &ProgramSpec) {
    let draft = Draft::new(spec, no_scratch()).expect("the model is tiny");
    let plan = Plan::new(draft.schedule).expect("the model is tiny");
    let found = plan::report::listing(&plan);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/snapshots");
    let path = folder.join(file);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &found).expect("the snapshot can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let message = "UPDATE_SNAPSHOTS=1 cargo test -p fitgpt-model rewrites it";
    assert!(kept == found, "{file} differs ({message}):\n{}", difference(&kept, &found));
}

/// The lines between the common beginning and the common end.
fn difference(kept: &str, found: &str) -> String {
    let (mut kept, mut found): (Vec<&str>, Vec<&str>) =
        (kept.lines().collect(), found.lines().collect());
    let same = |(a, b): &(&&str, &&str)| a == b;
    let beginning = kept.iter().zip(&found).take_while(same).count();
    kept.drain(..beginning);
    found.drain(..beginning);
    let end = kept.iter().rev().zip(found.iter().rev()).take_while(same).count();
    kept.truncate(kept.len() - end);
    found.truncate(found.len() - end);
    let mut text = format!("from line {}\n", beginning + 1);
    for (mark, lines) in [("-", kept), ("+", found)] {
        for line in lines.iter().take(SHOWN) {
            text += &format!("{mark}{line}\n");
        }
        if lines.len() > SHOWN {
            text += &format!("{mark} … {} more lines\n", lines.len() - SHOWN);
        }
    }
    text
}

#[test]
fn one_layer_with_bias_and_dropout_trains_and_evaluates() {
    let dims = dims([1, 2, 4], 6, 11, true);
    let mut spec = model(dims, 0.1);
    spec.train = Some(train(&dims, &[2], 256));
    spec.eval = Some(eval(&dims, &[2], 256));
    check("train_eval.txt", &spec);
}

/// The epsilon of norms became an attribute of the op later. Runs saved before must still match
/// their plan.
#[test]
fn a_saved_run_keeps_the_hash_of_its_steps() {
    let dims = dims([1, 2, 4], 6, 11, true);
    let mut spec = model(dims, 0.1);
    spec.train = Some(train(&dims, &[2], 256));
    let schedule = Draft::new(&spec, no_scratch()).expect("the model is tiny").schedule;
    let hash = |unsaid: &[Implied]| steps_hash(&schedule, Phase::Train, unsaid);
    let kept = hash(&implied_attributes());
    assert_eq!(format!("{kept:016x}"), "59624c8b88d0d788");
    assert_ne!(kept, hash(&[]), "any other epsilon is seen");
}

#[test]
fn two_layers_without_bias_generate() {
    let dims = dims([2, 2, 6], 8, 65, false);
    let mut spec = model(dims, 0.1);
    spec.generate = Some(generate(2, &[8, 3]));
    check("generate.txt", &spec);
}

#[test]
fn differences_are_short_and_in_place() {
    for (kept, found, want) in [
        ("a\nb\nc\n", "a\nx\nc\n", "from line 2\n-b\n+x\n"),
        ("a\nc\n", "a\nb\nc\n", "from line 2\n+b\n"),
        ("", "a\n", "from line 1\n+a\n"),
        ("a\na\n", "a\n", "from line 2\n-a\n"),
    ] {
        assert_eq!(difference(kept, found), want);
    }
    let long = difference("", &"x\n".repeat(20));
    assert!(long.ends_with("+x\n+ … 12 more lines\n"), "{long}");
}
