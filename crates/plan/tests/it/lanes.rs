//! Lanes: waits follow from operands and are as few as possible, bytes are reused only if waits
//! order their users, and a missing or invalid wait is a defect.

use crate::fixture::shape;
use fitgpt_plan::ops::{Gelu, GeluBackward, GeluKind, Transfer};
use fitgpt_plan::report::{Bill, hash, listing, steps_hash};
use fitgpt_plan::verify::defects;
use fitgpt_plan::{
    Defect, Dtype, Lane, NoScratch, Phase, Plan, PlanError, Role, Schedule, ScheduleBuilder, Scope,
    SegmentBuilder, TensorId,
};

/// A segment over state in host memory. Windows of it are copied in, updated and copied out, and
/// the next window is copied in while one is updated.
fn windows(windows: usize, lane: Lane) -> Result<Schedule, PlanError> {
    let mut builder = ScheduleBuilder::new();
    let line = shape(&[64]);
    let mut kept = Vec::new();
    for _ in 0..windows {
        kept.push(builder.held_tensor("kept", Dtype::F32, line, Role::Moment, Scope::Host)?);
    }
    let x = builder.run_tensor("x", Dtype::F32, line, Role::Gradient)?;
    let mut segment = builder.segment("update", Phase::Train);
    let arrive = |segment: &mut SegmentBuilder<'_>, from: TensorId| {
        let to = segment.local("here", Dtype::F32, line, Role::Moment)?;
        segment.push_on(lane, Transfer { from, to })?;
        Ok::<TensorId, PlanError>(to)
    };
    let mut here = arrive(&mut segment, kept[0])?;
    for (index, &home) in kept.iter().enumerate() {
        let next = kept.get(index + 1).map(|&from| arrive(&mut segment, from)).transpose()?;
        segment.push(GeluBackward { x, d: here, kind: GeluKind::Erf, again: false })?;
        segment.push_on(lane, Transfer { from: here, to: home })?;
        here = next.unwrap_or(here);
    }
    segment.finish();
    Ok(builder.finish())
}

fn waits(schedule: &Schedule) -> Vec<Vec<usize>> {
    schedule.segments[0].steps.iter().map(|step| step.waits.clone()).collect()
}

#[test]
fn waits_are_those_that_operands_need() {
    // 0 in, 1 in, 2 update, 3 out, 4 in, 5 update, 6 out, 7 update, 8 out.
    let schedule = windows(3, Lane::Upload).unwrap();
    let want: [&[usize]; 9] = [&[], &[], &[0], &[2], &[], &[1], &[5], &[4], &[7]];
    assert_eq!(waits(&schedule), want);
    let plan = Plan::new(schedule).unwrap();
    assert_eq!(defects(&plan, &NoScratch), []);
    let text = listing(&plan);
    assert!(text.contains("3 forward  transfer here =kept  on upload  after 2\n"), "{text}");
    assert!(text.contains("2 forward  gelu_backward x +here  [kind=erf]  after 0\n"), "{text}");
    assert!(waits(&windows(3, Lane::Compute).unwrap()).iter().all(Vec::is_empty));
}

/// The hash that a checkpoint compares does not depend on lanes; the plan's hash does.
#[test]
fn lanes_change_the_plan_and_not_what_is_computed() {
    let [one, two] = [Lane::Compute, Lane::Upload].map(|lane| windows(3, lane).unwrap());
    assert_eq!(steps_hash(&one, Phase::Train, &[]), steps_hash(&two, Phase::Train, &[]));
    let [one, two] = [one, two].map(|schedule| Plan::new(schedule).unwrap());
    assert_ne!(hash(&one), hash(&two));
}

#[test]
fn every_wait_is_needed() {
    let plan = Plan::new(windows(6, Lane::Upload).unwrap()).unwrap();
    for step in 0..plan.schedule.segments[0].steps.len() {
        if plan.schedule.segments[0].steps[step].waits.is_empty() {
            continue;
        }
        let mut broken = plan.clone();
        broken.schedule.segments[0].steps[step].waits.clear();
        let found = defects(&broken, &NoScratch);
        assert!(found.iter().any(|defect| matches!(defect, Defect::Race { .. })), "{step}");
        assert!(found.iter().all(|defect| matches!(defect, Defect::Race { .. })), "{found:?}");
    }
    let mut broken = plan;
    broken.schedule.segments[0].steps[2].waits.clear();
    let said = defects(&broken, &NoScratch)[0].to_string();
    let want = "update step 0 (transfer) and update step 2 (gelu_backward) race: here and here \
                share bytes";
    assert_eq!(said, want);
}

#[test]
fn waits_that_point_nowhere() {
    let plan = Plan::new(windows(3, Lane::Upload).unwrap()).unwrap();
    for wait in [2, 5, 4, 99, usize::MAX] {
        let mut broken = plan.clone();
        broken.schedule.segments[0].steps[2].waits.push(wait);
        let said: Vec<String> =
            defects(&broken, &NoScratch).iter().map(ToString::to_string).collect();
        let want = "which is not an earlier step of another lane";
        let want = format!("update step 2 (gelu_backward) waits for step {wait}, {want}");
        assert_eq!(said, [want]);
    }
    let mut same_lane = plan;
    same_lane.schedule.segments[0].steps[4].waits.push(1);
    assert_eq!(defects(&same_lane, &NoScratch).len(), 1);
}

/// Two tensors whose users have no order do not share bytes; if the second waits, they do.
#[test]
fn bytes_are_used_again_only_after_a_wait() {
    let arena = |join: bool| {
        let mut builder = ScheduleBuilder::new();
        let line = shape(&[64]);
        let mut kept = |name: &str, scope: Scope| {
            builder.held_tensor(name, Dtype::F32, line, Role::Moment, scope).unwrap()
        };
        let (host, x, y) =
            (kept("host", Scope::Host), kept("x", Scope::Run), kept("y", Scope::Run));
        let mut segment = builder.segment("s", Phase::Train);
        let mut local = || segment.local("t", Dtype::F32, line, Role::Activation).unwrap();
        let (first, second) = (local(), local());
        segment.push(Gelu { x, out: first, kind: GeluKind::Erf }).unwrap();
        segment.push(Gelu { x: first, out: y, kind: GeluKind::Erf }).unwrap();
        if join {
            segment.join(Lane::Upload);
        }
        segment.push_on(Lane::Upload, Transfer { from: host, to: second }).unwrap();
        segment.push(Gelu { x: second, out: y, kind: GeluKind::Erf }).unwrap();
        segment.finish();
        let plan = Plan::new(builder.finish()).unwrap();
        assert_eq!(defects(&plan, &NoScratch), []);
        // The bill counts steps one by one: what overlaps is in `top` alone.
        let bill = &Bill::new(&plan).segments[0];
        assert_eq!((bill.peak.get(), bill.top), (768, plan.arena_bytes));
        (plan.arena_bytes.get(), waits(&plan.schedule))
    };
    let (x_and_y, line) = (512, 256);
    let apart: [&[usize]; 4] = [&[], &[], &[], &[2]];
    assert_eq!(arena(false), (x_and_y + 2 * line, apart.map(<[usize]>::to_vec).to_vec()));
    let ordered: [&[usize]; 4] = [&[], &[], &[1], &[2]];
    assert_eq!(arena(true), (x_and_y + line, ordered.map(<[usize]>::to_vec).to_vec()));
}

/// Two windows are alive at the same time on two lanes as on one, so the plan is as large.
#[test]
fn windows_take_no_more_on_two_lanes() {
    for count in [1, 2, 3, 9, 40] {
        let [one, two] = [Lane::Compute, Lane::Upload]
            .map(|lane| Plan::new(windows(count, lane).unwrap()).unwrap());
        assert_eq!(two.arena_bytes, one.arena_bytes, "{count}");
        assert_eq!(two.arena_bytes.get(), 256 * (1 + count.min(2) as u64), "{count}");
    }
}
