//! How long segments take whose steps run on several lanes, beside hand arithmetic.
#![expect(clippy::unwrap_used, reason = "what tests share may end the test")]

use crate::fixture::{bytes, shape};
use fitgpt_plan::hardware::{Hardware, Network};
use fitgpt_plan::op_times::OpTimes;
use fitgpt_plan::ops::{Gelu, GeluKind, Transfer};
use fitgpt_plan::overlap::{SegmentTime, segment_time, step_ends};
use fitgpt_plan::{Dtype, Lane, Phase, Role, Schedule, ScheduleBuilder, Scope, TensorId};

/// Elements of a tensor whose copy takes a second alone, and whose GELU takes a second.
const SECOND: u64 = 64;

/// What a kernel loses when it waits for a copy.
const WAIT: f64 = 0.25;

/// When a copy of a second ends that has a copy in the other direction beside it all the time: both
/// together have 1.57 times the rate of one.
const BESIDE_ANOTHER: f64 = 2.0 / 1.57;

fn hardware() -> Hardware {
    Hardware {
        name: "a second for everything".to_string(),
        memory: bytes(1 << 20),
        context: bytes(0),
        matmul: f64::INFINITY,
        attention: f64::INFINITY,
        bandwidth: (SECOND * 4 * 2) as f64,
        link: (SECOND * 4) as f64,
        network: Network::NONE,
        launch: 0.0,
        copy_wait: WAIT,
        multiprocessors: 0,
        warpgroups: false,
        times: OpTimes::default(),
    }
}

/// A step on a lane. Kernels and copies both read the first tensor and write the second.
#[derive(Clone, Copy)]
struct On(Lane, &'static str, &'static str);

/// A schedule of one segment. Names tell tensors apart; `seconds` is how long a step takes alone.
fn schedule(steps: &[(On, u64)]) -> Schedule {
    let mut builder = ScheduleBuilder::new();
    let mut names: Vec<(&str, TensorId)> = Vec::new();
    for &(On(_, from, to), seconds) in steps {
        for name in [from, to] {
            if !names.iter().any(|(known, _)| *known == name) {
                let line = shape(&[seconds * SECOND]);
                let id = builder.held_tensor(name, Dtype::F32, line, Role::Moment, Scope::Run);
                names.push((name, id.unwrap()));
            }
        }
    }
    let id = |name: &str| names.iter().find(|(known, _)| *known == name).unwrap().1;
    let mut segment = builder.segment("s", Phase::Train);
    for &(On(lane, from, to), _) in steps {
        let (from, to) = (id(from), id(to));
        match lane {
            Lane::Compute => segment.push(Gelu { x: from, out: to, kind: GeluKind::Erf }).unwrap(),
            _ => segment.push_on(lane, Transfer { from, to }).unwrap(),
        }
    }
    segment.finish();
    builder.finish()
}

#[track_caller]
fn assert_ends(steps: &[(On, u64)], want: &[f64]) {
    let schedule = schedule(steps);
    let ends = step_ends(&schedule, schedule.segment_ids().next().unwrap(), &hardware());
    let differs = ends.iter().zip(want).any(|(end, want)| (end - want).abs() > 1e-9);
    assert!(ends.len() == want.len() && !differs, "{ends:?}, not {want:?}");
}

fn time(steps: &[(On, u64)]) -> SegmentTime {
    let schedule = schedule(steps);
    segment_time(&schedule, schedule.segment_ids().next().unwrap(), &hardware())
}

#[test]
fn a_lane_runs_its_steps_in_order() {
    let one = |from, to| (On(Lane::Compute, from, to), 1);
    assert_ends(
        &[one("a", "b"), (On(Lane::Compute, "c", "d"), 2), one("e", "f")],
        &[1.0, 3.0, 4.0],
    );
}

#[test]
fn a_kernel_waits_for_the_copy_that_it_reads() {
    let copy = (On(Lane::Upload, "host", "here"), 3);
    let [other, reader, behind] =
        [("a", "b"), ("here", "there"), ("c", "d")].map(|(x, out)| On(Lane::Compute, x, out));
    // The reader starts a little after the copy's end, and what is behind it on its lane waits too.
    assert_ends(&[copy, (other, 1), (reader, 3), (behind, 1)], &[3.0, 1.0, 6.0 + WAIT, 7.0 + WAIT]);
}

#[test]
fn copies_in_both_directions_share_the_link_while_both_run() {
    let up = |seconds| (On(Lane::Upload, "a", "b"), seconds);
    let down = |seconds| (On(Lane::Download, "c", "d"), seconds);
    assert_ends(&[up(1), down(1)], &[BESIDE_ANOTHER, BESIDE_ANOTHER]);
    // The second that is left of the longer one has the link to itself.
    assert_ends(&[up(2), down(1)], &[BESIDE_ANOTHER + 1.0, BESIDE_ANOTHER]);
    // A kernel beside them changes nothing.
    let kernel = (On(Lane::Compute, "e", "f"), 1);
    assert_ends(&[up(1), kernel, down(1)], &[BESIDE_ANOTHER, 1.0, BESIDE_ANOTHER]);
}

/// One after the other, because of a wait, they do not share it.
#[test]
fn a_copy_that_waits_for_the_other_direction_has_the_full_rate() {
    let steps = [(On(Lane::Download, "a", "b"), 1), (On(Lane::Upload, "b", "c"), 1)];
    assert_ends(&steps, &[1.0, 2.0]);
}

#[test]
fn communication_counts_as_far_as_it_is_waited_for() {
    let wire = (On(Lane::Communication, "a", "b"), 1);
    let beside = (On(Lane::Compute, "c", "d"), 3);
    let hidden = SegmentTime { seconds: 3.0, communication: 1.0, exposed: 0.0 };
    assert_eq!(time(&[wire, beside]), hidden);
    let reader = (On(Lane::Compute, "b", "e"), 1);
    let exposed = SegmentTime { seconds: 2.0, communication: 1.0, exposed: 1.0 };
    assert_eq!(time(&[wire, reader]), exposed);
    // Three of four seconds have a kernel beside them.
    let wire = (On(Lane::Communication, "a", "b"), 4);
    let reader = (On(Lane::Compute, "b", "e"), 4);
    let partly = SegmentTime { seconds: 8.0, communication: 4.0, exposed: 1.0 };
    assert_eq!(time(&[wire, beside, reader]), partly);
    assert_eq!(time(&[]), SegmentTime::default());
}
