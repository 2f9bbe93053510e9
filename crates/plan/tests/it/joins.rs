//! Explicit waits: a join reaches the next step of its lane, whether the backward walk emits that
//! step or a rewrite moves it.
#![expect(clippy::unwrap_used, reason = "what tests share may end the test")]

use crate::fixture::shape;
use fitgpt_plan::ops::{Gelu, GeluBackward, GeluKind, Linear, Transfer};
use fitgpt_plan::recompute::recompute;
use fitgpt_plan::verify::defects;
use fitgpt_plan::{
    Dtype, Lane, NoScratch, Pass, Phase, Plan, Role, Schedule, ScheduleBuilder, Scope, SegmentId,
    TensorId,
};
use std::collections::{BTreeMap, BTreeSet};

const KIND: GeluKind = GeluKind::Erf;

/// Each step's op and waits.
fn steps(schedule: &Schedule) -> Vec<(&'static str, Vec<usize>)> {
    let steps = schedule.segments[0].steps.iter();
    steps.map(|step| (step.op.operation().name(), step.waits.clone())).collect()
}

fn want(steps: &[(&'static str, &[usize])]) -> Vec<(&'static str, Vec<usize>)> {
    steps.iter().map(|(op, waits)| (*op, waits.to_vec())).collect()
}

/// A run-wide tensor or one on the host, of 64 elements.
fn held(builder: &mut ScheduleBuilder, name: &str, scope: Scope) -> TensorId {
    builder.held_tensor(name, Dtype::F32, shape(&[64]), Role::Moment, scope).unwrap()
}

#[test]
fn a_join_before_the_backward_reaches_its_first_step() {
    let mut builder = ScheduleBuilder::new();
    let [x, y, d_a, d_b] = ["x", "y", "d_a", "d_b"].map(|n| held(&mut builder, n, Scope::Run));
    let mut segment = builder.segment("s", Phase::Train);
    let [a, b, c] = ["a", "b", "c"]
        .map(|name| segment.local(name, Dtype::F32, shape(&[64]), Role::Activation).unwrap());
    segment.push_on(Lane::Upload, Gelu { x, out: a, kind: KIND }).unwrap();
    segment.push(Gelu { x: y, out: b, kind: KIND }).unwrap();
    segment.join(Lane::Compute);
    segment.join(Lane::Upload);
    let delivered = BTreeMap::from([(a, d_a), (b, d_b)]);
    segment.backward(&BTreeMap::new(), delivered).unwrap();
    segment.push_on(Lane::Upload, Gelu { x, out: c, kind: KIND }).unwrap();
    segment.finish();
    // No operand of step 2 or 4 needs its wait.
    let want = want(&[
        ("gelu", &[]),
        ("gelu", &[]),
        ("gelu_backward", &[0]),
        ("gelu_backward", &[]),
        ("gelu", &[1]),
    ]);
    assert_eq!(steps(&builder.finish()), want);
}

/// A copy arrives, an activation is made, its gradient is computed, and a second copy has the bytes
/// of what is free by then. Returns the schedule, its segment and the activation.
fn with_copies() -> (Schedule, SegmentId, TensorId) {
    let mut builder = ScheduleBuilder::new();
    let [x, y, side, d] = ["x", "y", "side", "d"].map(|n| held(&mut builder, n, Scope::Run));
    let host = held(&mut builder, "host", Scope::Host);
    let mut segment = builder.segment("s", Phase::Train);
    let [a, here] = ["a", "here"]
        .map(|name| segment.local(name, Dtype::F32, shape(&[64]), Role::Activation).unwrap());
    segment.push_on(Lane::Upload, Transfer { from: host, to: side }).unwrap();
    segment.push(Gelu { x, out: a, kind: KIND }).unwrap();
    segment.push(Gelu { x: a, out: y, kind: KIND }).unwrap();
    segment.set_pass(Pass::Backward);
    segment.join(Lane::Compute);
    segment.push(GeluBackward { x: a, d, kind: KIND, again: false }).unwrap();
    segment.join(Lane::Upload);
    segment.push_on(Lane::Upload, Transfer { from: host, to: here }).unwrap();
    segment.push(Gelu { x: here, out: y, kind: KIND }).unwrap();
    let id = segment.finish();
    (builder.finish(), id, a)
}

#[test]
fn a_rewrite_keeps_joins() {
    let (mut schedule, segment, a) = with_copies();
    let kept = want(&[
        ("transfer", &[]),
        ("gelu", &[]),
        ("gelu", &[]),
        ("gelu_backward", &[0]),
        ("transfer", &[3]),
        ("gelu", &[4]),
    ]);
    assert_eq!(steps(&schedule), kept);
    recompute(&mut schedule, segment, &BTreeSet::from([a])).unwrap();
    // What was made again is now the first step behind the join.
    let rewritten = want(&[
        ("transfer", &[]),
        ("gelu", &[]),
        ("gelu", &[]),
        ("gelu", &[0]),
        ("gelu_backward", &[]),
        ("transfer", &[4]),
        ("gelu", &[5]),
    ]);
    assert_eq!(steps(&schedule), rewritten);
    let plan = Plan::new(schedule).unwrap();
    assert_eq!(defects(&plan, &NoScratch), []);
    let line = 256;
    assert_eq!(plan.arena_bytes.get(), (4 + 1) * line, "`here` has the bytes of `a again`");
}

/// The re-emitting form moves the weight's gradient behind the steps that followed it. A copy that
/// waited for all of them waits for the one that is last now.
#[test]
fn a_join_behind_steps_that_change_their_order() {
    let mut builder = ScheduleBuilder::new();
    let mut held = |name: &str, scope: Scope| {
        let square = shape(&[8, 8]);
        builder.held_tensor(name, Dtype::F32, square, Role::Moment, scope).unwrap()
    };
    let [x, w, d_w, d_out] = ["x", "w", "d_w", "d_out"].map(|name| held(name, Scope::Run));
    let host = held("host", Scope::Host);
    let mut segment = builder.segment("s", Phase::Train);
    let [a, out, here] = ["a", "out", "here"]
        .map(|name| segment.local(name, Dtype::F32, shape(&[8, 8]), Role::Activation).unwrap());
    segment.push(Gelu { x, out: a, kind: KIND }).unwrap();
    let linear =
        |workspace| Linear { x: a, w, bias: None, out, gelu: None, residual: None, workspace };
    segment.push_with_workspace(linear).unwrap();
    let (gradients, delivered) = (BTreeMap::from([(w, d_w)]), BTreeMap::from([(out, d_out)]));
    segment.backward(&gradients, delivered).unwrap();
    segment.set_pass(Pass::Backward);
    segment.join(Lane::Upload);
    segment.push_on(Lane::Upload, Transfer { from: host, to: here }).unwrap();
    let id = segment.finish();
    let mut schedule = builder.finish();
    let backward = |schedule: &Schedule| steps(schedule)[2..].to_vec();
    let (weight, input) = ("linear_backward_weight", "linear_backward_input");
    let in_order: [(_, &[usize]); 4] =
        [(weight, &[]), (input, &[]), ("gelu_backward", &[]), ("transfer", &[4])];
    assert_eq!(backward(&schedule), want(&in_order));
    recompute(&mut schedule, id, &BTreeSet::from([a])).unwrap();
    let moved: [(_, &[usize]); 4] =
        [(input, &[]), ("gelu_backward", &[]), (weight, &[]), ("transfer", &[4])];
    assert_eq!(backward(&schedule), want(&moved));
}
