//! The bill of a small plan; and the hash, which must change with everything that changes what an
//! executor does.

use crate::fixture::{self, bytes, shape};
use fitgpt_plan::op_times::key;
use fitgpt_plan::ops::{Gelu, GeluKind, GradNorm};
use fitgpt_plan::report::{Bill, Implied, hash, listing, steps_hash};
use fitgpt_plan::{
    Bytes, Dtype, Io, Phase, Plan, PlanError, Role, Schedule, ScheduleBuilder, StepState,
};

#[test]
fn roles_and_tensors_add_up_to_the_peak() {
    let plan = fixture::plan();
    let bill = Bill::new(&plan);
    assert_eq!(bill.arena_bytes, plan.arena_bytes);
    assert_eq!(bill.lower_bound, plan.lower_bound());
    assert_eq!(bill.segments.len(), 3);
    for (segment, layout) in bill.segments.iter().zip(&plan.layouts) {
        let name = &segment.name;
        let roles = Bytes::sum(segment.by_role.iter().map(|(_, bytes)| *bytes));
        let tensors = Bytes::sum(segment.tensors.iter().map(|tensor| tensor.bytes));
        assert_eq!(roles, Some(segment.peak), "{name}");
        assert_eq!(tensors, Some(segment.peak), "{name}");
        // The bill walks the steps; the layout sums over lifetimes.
        assert_eq!(segment.peak, layout.lower_bound, "{name}");
        assert_eq!(segment.top, layout.top, "{name}");
        assert!(segment.tensors.is_sorted_by(|a, b| a.bytes >= b.bytes), "{name}");
    }
    // Five run-wide tensors of 512, 256, 256, 256 bytes; at step 2 also late, h, g, sum and n of
    // 512, mean and rstd of 256.
    let train = &bill.segments[0];
    assert_eq!(train.peak_step, (2, "layernorm"));
    assert_eq!(train.peak.get(), 512 + 3 * 256 + 5 * 512 + 2 * 256);
    let roles: Vec<_> = train.by_role.iter().map(|(r, b)| (r.name(), b.get())).collect();
    let rest = [("workspace", 256), ("state", 256)];
    let want =
        [[("weight", 512), ("moment", 256), ("activation", 5 * 512 + 2 * 256)].as_slice(), &rest];
    assert_eq!(roles, want.concat());
    assert_eq!((train.steps, train.phase), (5, "train"));
    assert_eq!(train.flops, 2 * 5 * 13 * 6 + 65 * (20 + 8 + 30 + 20));
}

/// A plan of one step with these names.
fn named(segment_name: &str, tensor: &str) -> Result<Plan, PlanError> {
    let mut builder = ScheduleBuilder::new();
    let mut segment = builder.segment(segment_name, Phase::Train);
    let four = shape(&[4]);
    let x = segment.host_tensor(tensor, Dtype::F32, four, Role::Activation, Io::Input)?;
    let out = segment.host_tensor("out", Dtype::F32, four, Role::Activation, Io::Output)?;
    segment.push(Gelu { x, out, kind: GeluKind::Erf })?;
    Plan::new(builder.finish())
}

#[test]
fn a_plan_of_nothing_has_a_bill() {
    let mut builder = ScheduleBuilder::new();
    let nothing = Bill::new(&Plan::new(ScheduleBuilder::new().finish()).unwrap());
    assert!(nothing.segments.is_empty());
    builder.segment("empty", Phase::Eval).finish();
    let empty = Bill::new(&Plan::new(builder.finish()).unwrap());
    assert_eq!((empty.segments[0].peak, empty.segments[0].peak_step.1), (Bytes::ZERO, "empty"));
}

#[test]
fn the_listing_has_every_place_and_step() {
    let plan = fixture::plan();
    let listing = listing(&plan);
    let places: usize = plan.layouts.iter().map(|layout| layout.placements.len()).sum();
    let steps: usize = plan.schedule.segments.iter().map(|segment| segment.steps.len()).sum();
    assert_eq!(listing.lines().filter(|line| line.starts_with("  @")).count(), places);
    let tensors = &plan.schedule.tensors;
    let windows = tensors.ids().filter(|&id| tensors.get(id).view.is_some()).count();
    // The rest: the arena, and for each segment an empty line and its name.
    assert_eq!(listing.lines().count(), windows + places + steps + 1 + 2 * 3);
    for want in [
        "segment prefill (generate)",
        "     0 forward  linear x w bias =h =workspace",
        "     3 forward  gelu_backward h +n  [kind=erf]",
        "  weights+320      bias                     f32 [13]\n",
        "f32 [117] weight run\n",
        "f32 [2, 1, 2, 5, 3] cache phase generate\n",
        "f32 [1, 5, 13] activation steps 1-4 output\n",
        "f32 [1, 5, 13] activation steps 0-2 input\n",
    ] {
        assert!(listing.contains(want), "{want:?}\nis not in\n{listing}");
    }
}

/// Two views of one root are the operands; `second` is where the second one starts.
fn windows(second: u64, dims: &[u64]) -> Result<Schedule, PlanError> {
    let mut builder = ScheduleBuilder::new();
    let root = builder.run_tensor("root", Dtype::F32, shape(&[64]), Role::Weight)?;
    let x = builder.window("x", shape(dims), root, bytes(0), None)?;
    let out = builder.window("out", shape(dims), root, bytes(second), None)?;
    let mut segment = builder.segment("s", Phase::Train);
    segment.push(Gelu { x, out, kind: GeluKind::Erf })?;
    Ok(builder.finish())
}

#[test]
fn the_hash_sees_what_an_executor_sees() {
    let of = |schedule: Result<Schedule, PlanError>| hash(&Plan::new(schedule.unwrap()).unwrap());
    let of_name = |name: &str| hash(&named("s", name).unwrap());
    let erf = hash(&fixture::plan());
    assert_eq!(erf, hash(&fixture::plan()), "the same twice");
    let mut moved = fixture::plan();
    moved.layouts[0].placements[0].offset = bytes(1 << 20);
    let mut larger = fixture::plan();
    larger.arena_bytes = bytes(1 << 20);
    let windowed = of(windows(128, &[4, 4]));
    for (what, a, b) in [
        ("an attribute", erf, of(fixture::schedule(GeluKind::Tanh))),
        ("a place", erf, hash(&moved)),
        ("the arena", erf, hash(&larger)),
        ("a name", of_name("a"), of_name("b")),
        ("a window's offset", windowed, of(windows(64, &[4, 4]))),
        ("a window's shape", windowed, of(windows(128, &[2, 8]))),
    ] {
        assert_ne!(a, b, "{what}");
    }
    assert_eq!(windowed, of(windows(128, &[4, 4])));
}

/// An attribute that one op implied says nothing about the same word of another.
#[test]
fn the_hash_of_steps_leaves_out_implied_attributes_of_one_op() {
    let schedule = fixture::schedule(GeluKind::Erf).unwrap();
    let hash = |implied: &[Implied]| steps_hash(&schedule, Phase::Train, implied);
    let implied = |op| hash(&[Implied { op, attribute: "kind=erf".to_string() }]);
    let (gelu, backward, linear) = (implied("gelu"), implied("gelu_backward"), implied("linear"));
    assert_eq!(linear, hash(&[]), "no linear says it");
    assert!(gelu != hash(&[]) && backward != hash(&[]) && gelu != backward);
}

/// Partial sums are an op's own and no workspace, but the bill counts all scratch as one role.
#[test]
fn partials_are_billed_as_workspace() {
    let schedule = |name: &str| {
        let mut builder = ScheduleBuilder::new();
        let words = shape(&[StepState::WORDS as u64]);
        let state = builder.run_tensor("state", Dtype::U32, words, Role::State)?;
        let gradients =
            builder.run_tensor("gradients", Dtype::F32, shape(&[64]), Role::Gradient)?;
        let mut segment = builder.segment("s", Phase::Train);
        let partials = segment.local(name, Dtype::U32, shape(&[1, 2]), Role::Partials)?;
        segment.push(GradNorm { gradients, partials, state })?;
        segment.finish();
        Ok::<Schedule, PlanError>(builder.finish())
    };
    let [one, other] = ["one", "other"].map(|name| schedule(name).unwrap());
    let hash = |schedule: &Schedule| steps_hash(schedule, Phase::Train, &[]);
    assert_eq!(hash(&one), hash(&other), "scratch is not part of what is computed");
    let key = |schedule: &Schedule| key(&schedule.segments[0].steps[0].op, &schedule.tensors);
    assert_eq!(key(&one), "grad_norm f32x64 u32x16");
    let plan = Plan::new(one).unwrap();
    let roles = &Bill::new(&plan).segments[0].by_role;
    let roles: Vec<_> = roles.iter().map(|(role, bytes)| (role.name(), bytes.get())).collect();
    assert_eq!(roles, [("gradient", 256), ("workspace", 256), ("state", 256)]);
    assert!(listing(&plan).contains("u32 [1, 2] partials steps 0-0\n"));
}
