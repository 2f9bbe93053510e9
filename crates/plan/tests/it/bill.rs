//! The bill of a small plan, as text, as JSON and as numbers; and the hash, which must see every
//! difference that an executor would.

use crate::fixture::{self, bytes, shape};
use crate::json::Json;
use fitgpt_plan::ops::{Gelu, GeluKind};
use fitgpt_plan::report::{Bill, hash, listing};
use fitgpt_plan::{Bytes, Dtype, Io, Phase, Plan, PlanError, Role, Schedule, ScheduleBuilder};

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
        // Found by walking the steps here, by sums over lifetimes there.
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

#[test]
fn text_has_the_figures() {
    let bill = Bill::new(&fixture::plan());
    let text = bill.to_text();
    let arena = bill.arena_bytes.get();
    for want in [
        format!("arena {} ({arena} bytes, 0 B above the lower bound)", bill.arena_bytes),
        format!("plan {:016x}", bill.hash),
        "train (train): peak 4.25 KiB at step 2 of 5 (layernorm), 0.000 GFLOP".to_string(),
        "  activation     3.00 KiB   70.6 %".to_string(),
        "decode (generate): peak".to_string(),
    ] {
        assert!(text.contains(&want), "{want}\nis not in\n{text}");
    }
}

#[test]
fn json_says_the_same() {
    let bill = Bill::new(&fixture::plan());
    let json = Json::parse(&bill.to_json()).unwrap();
    assert_eq!(json.at("schema").text(), "fitgpt.bill/1");
    assert_eq!(json.at("arena_bytes").number(), bill.arena_bytes.get());
    assert_eq!(json.at("lower_bound_bytes").number(), bill.lower_bound.get());
    assert_eq!(json.at("plan_hash").text(), format!("{:016x}", bill.hash));
    let segments = json.at("segments").items();
    assert_eq!(segments.len(), 3);
    for (json, segment) in segments.iter().zip(&bill.segments) {
        assert_eq!(json.at("name").text(), segment.name);
        assert_eq!(json.at("phase").text(), segment.phase);
        assert_eq!(json.at("peak_bytes").number(), segment.peak.get());
        assert_eq!(json.at("top_bytes").number(), segment.top.get());
        assert_eq!(json.at("peak_step").number(), segment.peak_step.0 as u64);
        assert_eq!(json.at("peak_op").text(), segment.peak_step.1);
        assert_eq!(json.at("steps").number(), segment.steps as u64);
        assert_eq!(json.at("flops").number(), segment.flops);
        let roles: u64 = json.at("by_role").fields().iter().map(|(_, bytes)| bytes.number()).sum();
        assert_eq!(roles, segment.peak.get());
        let tensors = json.at("tensors_at_peak").items();
        assert_eq!(tensors.len(), segment.tensors.len());
        for (json, tensor) in tensors.iter().zip(&segment.tensors) {
            assert_eq!(json.at("name").text(), tensor.name);
            assert_eq!(json.at("role").text(), tensor.role.name());
            assert_eq!(json.at("bytes").number(), tensor.bytes.get());
        }
    }
}

/// A plan of one step whose names are given.
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
fn json_survives_every_name_and_an_empty_plan() {
    let name = "a\"b\\c\n\t\u{1}\u{7f}é\u{10348}";
    let json = Json::parse(&Bill::new(&named(name, name).unwrap()).to_json()).unwrap();
    let segment = &json.at("segments").items()[0];
    assert_eq!(segment.at("name").text(), name);
    assert_eq!(segment.at("tensors_at_peak").items()[0].at("name").text(), name);

    let mut builder = ScheduleBuilder::new();
    let nothing = Bill::new(&Plan::new(ScheduleBuilder::new().finish()).unwrap());
    assert_eq!(Json::parse(&nothing.to_json()).unwrap().at("segments").items().len(), 0);
    builder.segment("empty", Phase::Eval).finish();
    let empty = Bill::new(&Plan::new(builder.finish()).unwrap());
    let json = Json::parse(&empty.to_json()).unwrap();
    assert_eq!(json.at("segments").items()[0].at("peak_bytes").number(), 0);
    assert_eq!(json.at("segments").items()[0].at("peak_op").text(), "empty");
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
        "  weights+312      bias                     f32 [13]\n",
        "f32 [110] weight run\n",
        "f32 [2, 1, 2, 5, 3] cache phase generate\n",
        "f32 [1, 5, 13] activation steps 1-4 output\n",
        "f32 [1, 5, 13] activation steps 0-2 input\n",
    ] {
        assert!(listing.contains(want), "{want:?}\nis not in\n{listing}");
    }
}

/// Two windows of one root are the operands; `second` is where the other one starts.
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
