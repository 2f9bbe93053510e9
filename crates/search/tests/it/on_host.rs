//! When layers keep activations in host memory, and when they do not.

use crate::machines::{card, gib};
use crate::typing::run_of;
use fitgpt_search::{Cut, Machine, Planned, plan_again, plan_for};
use model::Level;
use plan::verify::defects;
use plan::{Dtype, Lane};
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

/// A host that has room for the optimizer's state alone.
#[test]
fn a_small_host_keeps_state_before_activations() {
    let run = xl(&["--offload=auto", "--optimizer_state=auto"]);
    let machine = Machine { host: Some(gib(9.5)), ..card("H200", 11.69, Dtype::Bf16) };
    let planned = plan(&run, &machine);
    assert!(cut(&planned).state_options.offload);
    assert_eq!(cut(&planned).layers_on_host(), 0);
}

/// A run that began with such a plan keeps it, unless the key now excludes it.
#[test]
fn a_resumed_run_keeps_them() {
    let machine = card("H200", 11.69, Dtype::Bf16);
    let run = xl(&["--offload=auto", "--optimizer_state=auto"]);
    let first = plan(&run, &machine);
    let again = |run: &RunSpec| plan_again(run, run.dims(50304).unwrap(), &machine, &cut(&first));
    assert_eq!(again(&run).unwrap().unwrap().hash(), first.hash());
    let excluded = again(&xl(&["--offload=optimizer", "--optimizer_state=auto"]));
    assert_eq!(excluded.unwrap().unwrap_err(), "it has layers at R2h, which offload excludes");
}
