//! Layers that keep activations in the host's memory: what travels, when, and that the plan is
//! proved. That no bit changes is a test of each backend.
#![expect(clippy::unwrap_used, reason = "what tests share may end the test")]

use crate::specs::{dims, model, scratch, train};
use fitgpt_model::{Dims, Draft, Level};
use plan::ops::Op;
use plan::verify::defects;
use plan::{Defect, Lane, Pass, Plan, Schedule, Step, TensorId};
use std::collections::BTreeSet;

const LAYERS: usize = 8;
/// Long contexts: activations take more memory than weights.
const WIDE: Dims = dims([LAYERS as u64, 2, 64], 256, 65, false);

fn draft(slices: &[u64], levels: &[Level]) -> Draft {
    let mut spec = model(WIDE, 0.1);
    let mut train = train(&WIDE, slices, 256);
    train.levels = levels.to_vec();
    spec.train = Some(train);
    Draft::new(&spec, scratch()).unwrap()
}

fn levels(on_host: &[usize]) -> Vec<Level> {
    let level = |layer| if on_host.contains(&layer) { Level::R2h } else { Level::R4 };
    (0..LAYERS).map(level).collect()
}

/// The copies of a segment, each with its step.
fn copies(steps: &[Step], lane: Lane) -> Vec<(usize, TensorId, TensorId)> {
    let copy = |(index, step): (usize, &Step)| match &step.op {
        Op::Transfer(op) if step.lane == lane => Some((index, op.from, op.to)),
        _ => None,
    };
    steps.iter().enumerate().filter_map(copy).collect()
}

fn name(schedule: &Schedule, id: TensorId) -> &str {
    &schedule.tensors.get(id).name
}

#[test]
fn two_tensors_of_each_such_layer_leave_and_return() {
    for on_host in [&[0][..], &[4], &[7], &[1, 4], &[0, 1, 2, 3], &[0, 1, 2, 3, 4, 5, 6, 7]] {
        let Draft { program, schedule } = draft(&[3], &levels(on_host));
        let steps = &schedule.segment(program.train[0].segment).steps;
        let left = copies(steps, Lane::Download);
        let want: Vec<String> = on_host
            .iter()
            .flat_map(|layer| ["qkv", "fch"].map(|tensor| format!("h.{layer}.{tensor}")))
            .collect();
        let names: Vec<&str> = left.iter().map(|&(_, from, _)| name(&schedule, from)).collect();
        assert_eq!(names, want);
        let returned = copies(steps, Lane::Upload);
        let away: BTreeSet<TensorId> = left.iter().map(|&(_, _, to)| to).collect();
        assert_eq!(returned.iter().map(|&(_, from, _)| from).collect::<BTreeSet<_>>(), away);
        for &(index, from, to) in &returned {
            let (first, sent, _) = *left.iter().find(|(_, _, away)| *away == from).unwrap();
            assert!(first < index, "{} returns before it has left", name(&schedule, to));
            let backward = steps.iter().filter(|step| step.pass == Pass::Backward);
            let uses = |id| {
                let used = |step: &&Step| step.operands().iter().any(|o| o.tensor == id);
                backward.clone().filter(used).count()
            };
            assert_eq!(uses(sent), 0, "{} is used after it has left", name(&schedule, sent));
            assert!(uses(to) > 1, "{} returns for nothing", name(&schedule, to));
        }
    }
}

/// With layers between those that travel, the copies of one have the time of the layers up to the
/// next; and they return while the layers above compute.
#[test]
fn copies_have_the_time_of_the_layers_between() {
    let Draft { program, schedule } = draft(&[3], &levels(&[1, 4]));
    let steps = &schedule.segment(program.train[0].segment).steps;
    let layer_that_waits = |copies: &[usize]| {
        let waits = |step: &&Step| step.waits.iter().any(|wait| copies.contains(wait));
        let on = steps.iter().filter(|step| step.lane == Lane::Compute).find(waits).unwrap();
        (on.pass, on.layer)
    };
    let left = copies(steps, Lane::Download);
    let of = |layer: &str| {
        let own = left.iter().filter(|&&(_, from, _)| name(&schedule, from).starts_with(layer));
        own.map(|&(index, ..)| index).collect::<Vec<_>>()
    };
    assert_eq!(layer_that_waits(&of("h.1.")), (Pass::Forward, Some(4)));
    assert_eq!(layer_that_waits(&of("h.4.")), (Pass::Forward, Some(7)));
    for (first, want) in [(0, Some(6)), (2, Some(3))] {
        let (index, _, to) = copies(steps, Lane::Upload)[first];
        let next = steps[index..].iter().find(|step| step.lane == Lane::Compute).unwrap();
        assert_eq!((next.pass, next.layer), (Pass::Backward, want), "{}", name(&schedule, to));
    }
}

#[test]
fn slices_of_all_sizes_share_the_host_memory() {
    let host = |slices: &[u64], on_host: &[usize]| {
        Plan::new(draft(slices, &levels(on_host)).schedule).unwrap().host_bytes.get()
    };
    let tokens = 3 * WIDE.block_size;
    // Query, key and value, and the four times wider MLP, in f32.
    let of_layer = tokens * WIDE.n_embd * (3 + 4) * 4;
    assert_eq!(host(&[3], &[]), 0);
    assert_eq!(host(&[3], &[2]), of_layer);
    assert_eq!(host(&[3, 2, 2], &[2, 5]), 2 * of_layer);
}

#[test]
fn plans_are_proved_and_need_less() {
    let arena = |slices: &[u64], levels: &[Level]| {
        let plan = Plan::new(draft(slices, levels).schedule).unwrap();
        assert_eq!(defects(&plan, &*scratch()), [], "{levels:?}");
        plan.arena_bytes
    };
    for slices in [&[3][..], &[3, 2]] {
        let kept = arena(slices, &[Level::R2; LAYERS]);
        let spread = levels(&[1, 4]);
        let as_r2 = |&level: &Level| if level == Level::R2h { Level::R2 } else { level };
        let without: Vec<Level> = spread.iter().map(as_r2).collect();
        assert!(arena(slices, &spread) < arena(slices, &without), "{slices:?}");
        assert!(arena(slices, &[Level::R2h; LAYERS]) < kept, "{slices:?}");
    }
}

/// Where memory is fullest, at the head, no tensor waits for its copy, however many layers travel
/// and in whatever distance. Only the last layer, if it travels, has nothing to hide behind.
#[test]
fn whatever_travels_has_left_before_the_head() {
    let below_last = LAYERS - 1;
    for set in 1_usize..1 << below_last {
        let on_host: Vec<usize> = (0..below_last).filter(|layer| set >> layer & 1 == 1).collect();
        let Draft { program, schedule } = draft(&[3], &levels(&on_host));
        let steps = &schedule.segment(program.train[0].segment).steps;
        let head = steps.iter().position(|step| matches!(step.op, Op::HeadTrain(_))).unwrap();
        let kernels = || steps[..head].iter().filter(|step| step.lane == Lane::Compute);
        for (index, sent, _) in copies(steps, Lane::Download) {
            // A wait for a later copy of the lane is one for this copy as well.
            let is_late = |wait: &usize| *wait >= index && steps[*wait].lane == Lane::Download;
            let left = kernels().any(|step| step.waits.iter().any(is_late));
            assert!(left, "{} of {on_host:?}", name(&schedule, sent));
        }
    }
}

/// A copy that goes where another one goes leaves its own place empty, and that is read later.
#[test]
fn a_copy_to_the_wrong_place_is_a_defect() {
    let Draft { program, mut schedule } = draft(&[3], &levels(&[1, 4]));
    let steps = &mut schedule.segments[program.train[0].segment.index()].steps;
    let left = copies(steps, Lane::Download);
    let Op::Transfer(copy) = &mut steps[left[0].0].op else { panic!("a copy") };
    copy.to = left[2].2; // both are query, key and value
    let found = defects(&Plan::new(schedule).unwrap(), &*scratch());
    let early = |defect: &Defect| matches!(defect, Defect::ReadBeforeWrite { .. });
    assert!(found.iter().any(early), "{found:?}");
}
