//! Sizes and work of GPT-2 124M that can be computed by hand.

use crate::specs::{GPT2, model, scratch, train};
use fitgpt_model::{Draft, Program};
use plan::{Live, Plan, PlanError, Role};
use std::collections::{BTreeMap, BTreeSet};

const ROWS: u64 = 3;
const TOKENS: u64 = ROWS * 1024;
const WIDTH: u64 = 768;
const LAYERS: u64 = 12;
const HEADS: u64 = 12;
/// Parameters of two dimensions: wte, wpe and 12 width² for each layer.
const DECAYED: u64 = (50304 + 1024) * WIDTH + LAYERS * 12 * WIDTH * WIDTH;
/// Gains of 25 layer norms.
const GAINS: u64 = 25 * WIDTH;

fn plan() -> Result<(Program, Plan), PlanError> {
    let mut spec = model(GPT2, 0.1);
    spec.train = Some(train(&GPT2, &[ROWS], 1024));
    let Draft { program, schedule, .. } = Draft::new(&spec, scratch())?;
    let plan = Plan::new(schedule)?;
    Ok((program, plan))
}

#[test]
fn four_flat_arrays_are_all_that_a_parameter_costs() {
    let (program, plan) = plan().unwrap();
    let tensors = &plan.schedule.tensors;
    for name in ["weights", "gradients", "m", "v"] {
        let bytes = tensors.bytes(tensors.find(name).unwrap()).get();
        assert_eq!(bytes, 497_495_040, "{name}");
    }
    let held = |id: &plan::TensorId| {
        let tensor = tensors.get(*id);
        tensor.view.is_none() && tensor.scope == plan::Scope::Run
    };
    let run_wide: u64 = tensors.ids().filter(held).map(|id| tensors.bytes(id).get()).sum();
    // The state's 16 words, three losses, tokens and targets, a workspace of a mebibyte.
    let tokens = 2 * 3 * 1024 * 4;
    assert_eq!(run_wide, 4 * 497_495_040 + 64 + 12 + tokens + (1 << 20));
    let update = plan.layout(program.update.unwrap());
    let partials = (DECAYED + GAINS).div_ceil(65_536) * 8;
    assert_eq!(
        update.lower_bound.get(),
        4 * 497_495_040 + 512 + tokens + (1 << 20) + partials.next_multiple_of(256)
    );
}

/// Names of what is alive at the head step, by layer, without the layer's prefix.
fn alive_at_head(program: &Program, plan: &Plan) -> BTreeMap<Option<u32>, BTreeSet<String>> {
    let segment = program.train[0].segment;
    let steps = &plan.schedule.segment(segment).steps;
    let is_head = |step: &plan::Step| step.op.operation().name() == "head_train";
    let head = steps.iter().position(is_head).expect("training has a head");
    let mut alive: BTreeMap<Option<u32>, BTreeSet<String>> = BTreeMap::new();
    for place in plan.layout(segment).placements.iter().filter(|p| p.live.contains(head)) {
        let tensor = plan.schedule.tensors.get(place.tensor);
        if tensor.scope == plan::Scope::Segment(segment) {
            let name = tensor.name.rsplit('.').next().unwrap_or_default().to_string();
            alive.entry(tensor.layer).or_default().insert(name);
        }
    }
    alive
}

#[test]
fn what_a_training_slice_keeps_until_its_head() {
    let (program, plan) = plan().unwrap();
    let block = [
        "ln_1",
        "ln_1_mean",
        "ln_1_rstd",
        "qkv",
        "att",
        "lse",
        "x_mid",
        "ln_2",
        "ln_2_mean",
        "ln_2_rstd",
        "fch",
        "gelu",
        "x",
    ];
    let outside = ["x", "ln_f", "ln_f_mean", "ln_f_rstd", "token_loss", "logits"];
    let set =
        |names: &[&str]| -> BTreeSet<String> { names.iter().map(|n| n.to_string()).collect() };
    let mut want = BTreeMap::from([(None, set(&outside))]);
    for layer in 0..12 {
        want.insert(Some(layer), set(&block));
    }
    // Neither att_proj nor mlp_proj: they end in the residual sum.
    assert_eq!(alive_at_head(&program, &plan), want);
}

#[test]
fn bytes_alive_at_the_head() {
    let (program, plan) = plan().unwrap();
    let segment = program.train[0].segment;
    let bill = plan::report::Bill::new(&plan);
    let train = &bill.segments[segment.index()];
    assert_eq!(train.peak_step.1, "head_train");
    // Per token 16 widths, the statistics of two norms and one lse for each head; then x, ln_f
    // and its statistics.
    let block = TOKENS * 4 * (16 * WIDTH + 4 + HEADS);
    let activations = LAYERS * block + TOKENS * 4 * (2 * WIDTH + 2);
    let of = |role: Role| train.by_role.iter().find(|(r, _)| *r == role).unwrap().1.get();
    assert_eq!(of(Role::Activation), activations);
    assert_eq!(of(Role::Logits), 1024 * 50304 * 4);
    assert_eq!(of(Role::Tokens), 2 * TOKENS * 4);
    assert_eq!(of(Role::Weight), 497_495_040);
    assert_eq!(of(Role::Moment), 2 * 497_495_040);
    // Losses of tokens; state and losses of rows, each in its 256 bytes.
    assert_eq!(of(Role::State), TOKENS * 4 + 512);
    assert_eq!(plan.arena_bytes, train.peak);
}

/// Each residual sum outlives its branch: `x_out` of a layer lives until its norm's backward.
#[test]
fn branches_die_in_the_sum() {
    let (program, plan) = plan().unwrap();
    let layout = plan.layout(program.train[0].segment);
    let live = |name: String| -> Live {
        layout.placement(plan.schedule.tensors.find(&name).unwrap()).unwrap().live
    };
    for layer in 0..LAYERS {
        for branch in ["att_proj", "mlp_proj"] {
            let life = live(format!("h.{layer}.{branch}"));
            assert_eq!(life.last, life.first + 1, "{branch} of layer {layer}");
        }
        let (fch, gelu) = (live(format!("h.{layer}.fch")), live(format!("h.{layer}.gelu")));
        assert!(gelu.first == fch.first + 1 && gelu.last < fch.last);
    }
}

/// Six operations for each matmul weight and token, as everybody counts; and attention's seven
/// causal matmuls.
#[test]
fn work_of_a_training_slice() {
    let (program, plan) = plan().unwrap();
    let schedule = &plan.schedule;
    let of = |prefix: &[&str]| -> u64 {
        let steps = schedule.segment(program.train[0].segment).steps.iter();
        let wanted = |name: &str| prefix.iter().any(|prefix| name.starts_with(prefix));
        let ops = steps.map(|step| step.op.operation()).filter(|op| wanted(op.name()));
        ops.map(|op| op.flops(&schedule.tensors)).sum()
    };
    assert_eq!(of(&["linear", "head"]), 6 * TOKENS * (DECAYED - 1024 * WIDTH));
    assert_eq!(of(&["attention"]), LAYERS * 7 * TOKENS * 1024 * WIDTH);
    let total = schedule.flops(program.train[0].segment);
    let rest = total - of(&["linear", "head", "attention"]);
    assert!(rest < total / 100, "{rest} of {total}");
}
