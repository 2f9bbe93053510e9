//! When layers keep activations in host memory, and when they do not.

use crate::machines::card;
use crate::typing::run_of;
use fitgpt_search::{
    Cut, Machine, Planned, best_plans, plan_again, plan_for, schedule_without_host, suggestions,
};
use model::{Dims, Level};
use plan::ranks::Rank;
use plan::report::steps_hash;
use plan::verify::defects;
use plan::{Bytes, Dtype, Lane, Phase};
use spec::RunSpec;

const XL: [&str; 6] = [
    "--dataset=x",
    "--n_layer=48",
    "--n_head=25",
    "--n_embd=1600",
    "--batch_size=4",
    "--gradient_accumulation_steps=16",
];

/// 1558M with further arguments.
fn xl(arguments: &[&str]) -> RunSpec {
    run_of(&[&XL[..], arguments].concat()).unwrap()
}

fn plan(run: &RunSpec, machine: &Machine) -> Planned {
    let planned = plan_for(run, run.dims(50304).unwrap(), machine).unwrap();
    assert_eq!(defects(&planned.plan, &*machine.scratch), []);
    assert!(planned.device_bytes(machine) <= machine.budget.get());
    assert!(planned.host_bytes() <= machine.host.unwrap().get());
    planned
}

fn bytes(count: u64) -> Bytes {
    Bytes::new(count).unwrap()
}

fn cut(planned: &Planned) -> Cut {
    planned.cut().unwrap()
}

/// Seconds for which the link is busy in one direction during the first slice.
fn copied(planned: &Planned, machine: &Machine) -> f64 {
    let schedule = &planned.plan.schedule;
    let steps = &schedule.segment(planned.program.train[0].segment).steps;
    let copies = steps.iter().filter(|step| step.lane == Lane::Download);
    let seconds = |step| plan::cost::step_seconds(step, &schedule.tensors, &machine.hardware);
    copies.map(|step| seconds(&step.op)).sum()
}

/// 1558M in 12 GB: weights and gradients leave so little that a fifth of the work is repeated.
#[test]
fn activations_travel_if_that_is_faster() {
    let machine = card("H200", 11.69, Dtype::Bf16);
    let without = plan(&xl(&["--offload=optimizer", "--optimizer_state=auto"]), &machine);
    let with = plan(&xl(&["--offload=auto", "--optimizer_state=auto"]), &machine);
    assert_eq!(cut(&without).layers_on_host(), 0);
    let layers = cut(&with).layers_on_host();
    assert!((4..=20).contains(&layers), "{:?}", cut(&with).levels);
    assert!(with.seconds < without.seconds * 0.99, "{} {}", with.seconds, without.seconds);
    assert!(with.host_bytes() > without.host_bytes());
    // The link has time left: a slice spends more than four times as long on kernels.
    let slices = with.program.train_slices.len() as f64;
    assert!(copied(&with, &machine) * 4.0 < with.seconds / slices);
}

#[test]
fn layers_that_travel_stand_apart_and_none_is_last() {
    let machine = card("H200", 11.69, Dtype::Bf16);
    let found = cut(&plan(&xl(&["--offload=auto", "--optimizer_state=auto"]), &machine));
    let at: Vec<usize> = (0..48).filter(|&layer| found.levels[layer] == Level::R2h).collect();
    let gaps: Vec<usize> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().max().unwrap() - gaps.iter().min().unwrap() <= 1, "{at:?}");
    assert!(*at.last().unwrap() < 45, "{at:?}");
}

/// On a small card, where little is left beside the optimizer's state.
#[test]
fn activations_alone_may_travel() {
    let run = |offload: &str| {
        let sizes = ["--n_layer=24", "--n_head=16", "--n_embd=1024", "--batch_size=12"];
        run_of(&[&["--dataset=x", offload][..], &sizes].concat()).unwrap()
    };
    let machine = card("RTX 3060", 6.2, Dtype::Bf16);
    let without = plan(&run("--offload=False"), &machine);
    let with = plan(&run("--offload=activations"), &machine);
    assert!(!cut(&with).state_options.offload);
    assert!(cut(&with).layers_on_host() > 0, "{:?}", cut(&with).levels);
    assert!(with.seconds < without.seconds * 0.99, "{} {}", with.seconds, without.seconds);
}

#[test]
fn nothing_travels_where_everything_fits_or_the_user_decides() {
    let levers = ["--offload=auto", "--optimizer_state=auto"];
    let roomy = card("H200", 139.0, Dtype::Bf16);
    assert_eq!(cut(&plan(&xl(&levers), &roomy)).layers_on_host(), 0);
    let narrow = card("H200", 11.69, Dtype::Bf16);
    let always = xl(&[&levers[..], &["--grad_checkpoint=True"]].concat());
    assert!(cut(&plan(&always, &narrow)).levels.iter().all(|level| *level == Level::R6));
}

/// Bytes of the largest slice's activations that one layer keeps on the host.
fn of_layer(planned: &Planned, dims: &Dims) -> u64 {
    let rows = planned.program.train_slices[0];
    // Query, key and value, and the four times wider MLP, in bf16.
    rows * dims.block_size * dims.n_embd * (3 + 4) * 2
}

/// The optimizer's state comes first, then as many layers as have room.
#[test]
fn as_many_layers_travel_as_have_room_on_the_host() {
    let run = xl(&["--offload=auto", "--optimizer_state=auto"]);
    let dims = run.dims(50304).unwrap();
    let roomy = card("H200", 11.69, Dtype::Bf16);
    let most = plan(&run, &roomy);
    let layers = cut(&most).layers_on_host() as u64;
    let state = most.host_bytes() - layers * of_layer(&most, &dims);
    for room in [0, layers - 1] {
        let host = bytes(state + room * of_layer(&most, &dims) + (1 << 20));
        let planned = plan(&run, &Machine { host: Some(host), ..roomy.clone() });
        assert!(cut(&planned).state_options.offload);
        assert_eq!(
            (cut(&planned).slices, cut(&planned).layers_on_host() as u64),
            (cut(&most).slices, room)
        );
    }
}

/// Ranks of one host share its link, and each would see another amount of free memory.
#[test]
fn no_layer_travels_in_a_run_of_several_ranks() {
    let machine = card("H200", 11.69, Dtype::Bf16);
    let levers = ["--offload=auto", "--optimizer_state=auto"];
    let one = xl(&levers);
    let two = RunSpec { rank: Rank { rank: 0, ranks: 2 }, ..one.clone() };
    assert!(machine.may_offload_activations(&one));
    assert!(!machine.may_offload_activations(&two));
    assert_eq!(cut(&plan(&two, &machine)).layers_on_host(), 0);
}

/// The link is what the table of GPUs knows least about, so the best plan that sends no activations
/// over it is timed beside the best.
#[test]
fn the_best_plan_without_activations_on_the_host_is_second() {
    let machine = card("H200", 11.69, Dtype::Bf16);
    let run = xl(&["--offload=auto", "--optimizer_state=auto"]);
    let dims = run.dims(50304).unwrap();
    let best = best_plans(&run, dims, &machine, 3).unwrap();
    assert_eq!(best.len(), 3);
    assert!(cut(&best[0]).layers_on_host() > 0);
    let without = plan(&xl(&["--offload=optimizer", "--optimizer_state=auto"]), &machine);
    assert_eq!(best[1].hash(), without.hash());
}

/// `--rank N` and the choice by timing ask for lists of different lengths.
#[test]
fn a_longer_list_begins_with_the_shorter_one() {
    let machine = card("H200", 11.69, Dtype::Bf16);
    for run in
        [xl(&["--offload=auto", "--optimizer_state=auto"]), run_of(&["--dataset=x"]).unwrap()]
    {
        let dims = run.dims(50304).unwrap();
        let hashes = |count: usize| -> Vec<u64> {
            let best = best_plans(&run, dims, &machine, count).unwrap();
            best.iter().map(Planned::hash).collect()
        };
        let four = hashes(4);
        assert_eq!(four.len(), 4);
        (1..4).for_each(|count| assert_eq!(hashes(count), four[..count]));
    }
}

/// A run that began with such a plan keeps it. Where host memory is no longer permitted or free,
/// the same slices compute those activations again.
#[test]
fn a_resumed_run_keeps_them_or_computes_them_again() {
    let machine = card("H200", 11.69, Dtype::Bf16);
    let run = xl(&["--offload=auto", "--optimizer_state=auto"]);
    let first = plan(&run, &machine);
    let again = |run: &RunSpec, machine: &Machine| {
        plan_again(run, run.dims(50304).unwrap(), machine, &cut(&first)).unwrap().unwrap()
    };
    assert_eq!(again(&run, &machine).hash(), first.hash());
    let excluded = xl(&["--offload=optimizer", "--optimizer_state=auto"]);
    let full = Machine { host: Some(bytes(first.host_bytes() - 1)), ..machine.clone() };
    for (run, machine) in [(&excluded, &machine), (&run, &full)] {
        let found = again(run, machine);
        let (was, now) = (cut(&first), cut(&found));
        assert_eq!((&now.slices, now.head_chunk), (&was.slices, was.head_chunk));
        for (was, now) in was.levels.iter().zip(&now.levels) {
            assert_eq!(*now, if *was == Level::R2h { Level::R4 } else { *was });
        }
    }
    let nothing = xl(&["--grad_checkpoint=False", "--optimizer_state=auto", "--offload=auto"]);
    let dims = run.dims(50304).unwrap();
    let all = Cut { levels: vec![Level::R2h; 48], ..cut(&first) };
    let refused = plan_again(&nothing, dims, &machine, &all).unwrap().unwrap_err();
    assert_eq!(refused, "it has layers at R2h, which grad_checkpoint excludes");
}

/// Evaluation batches that are larger than an iteration lengthen the row of losses.
#[test]
fn a_run_that_computes_them_again_is_recognised_by_its_steps() {
    let machine = card("H200", 11.69, Dtype::Bf16);
    for rows in ["--eval_batch_size=4", "--eval_batch_size=128"] {
        let run = xl(&["--offload=auto", "--optimizer_state=auto", rows]);
        let dims = run.dims(50304).unwrap();
        let first = plan(&run, &machine);
        let other = xl(&["--offload=optimizer", "--optimizer_state=auto", rows]);
        let again = plan_again(&other, dims, &machine, &cut(&first)).unwrap().unwrap();
        let without = schedule_without_host(&run, dims, &machine, &cut(&first)).unwrap();
        let steps = |schedule| steps_hash(schedule, Phase::Train, &[]);
        assert_eq!(steps(&without), steps(&again.plan.schedule));
        assert_ne!(steps(&without), steps(&first.plan.schedule));
    }
}

/// Activations stay permitted in what a refusal suggests, which says what host memory then holds.
#[test]
fn suggestions_say_what_host_memory_holds() {
    let machine = card("H200", 11.69, Dtype::Bf16);
    let run = xl(&["--offload=activations"]);
    let found = suggestions(&run, run.dims(50304).unwrap(), &machine, &machine.hardware);
    let moved = found.iter().filter(|one| one.arguments().contains("offload=auto"));
    let notes: Vec<&str> = moved.map(|one| one.note.as_str()).collect();
    let starts = |start: &str| notes.iter().any(|note| note.starts_with(start));
    assert!(starts("the optimizer's state and some activations in "), "{found:#?}");
    let never = xl(&["--offload=False"]);
    let found = suggestions(&never, never.dims(50304).unwrap(), &machine, &machine.hardware);
    let says = |text: &str| found.iter().any(|one| one.note.contains(text));
    assert!(says("the optimizer's state in ") && !says("activations in "), "{found:#?}");
}

/// Each level is either one of those that keep everything on the device, or uses the host.
#[test]
fn levels_are_on_the_device_or_use_the_host() {
    for level in Level::ALL {
        assert_eq!(Level::ON_DEVICE.contains(&level), !level.uses_host(), "{level}");
    }
}
