//! Which memory a step may touch: kernels the device's, transfers both, and no step may write a
//! run-wide input, which is the host's to write. Windows start where kernels can access them.
#![expect(clippy::unwrap_used, reason = "what tests share may end the test")]

use crate::fixture::{bytes, shape};
use fitgpt_plan::ops::{Gelu, GeluKind, Linear, Op, Transfer};
use fitgpt_plan::verify::defects;
use fitgpt_plan::{
    Dtype, NoScratch, OPERAND_ALIGNMENT, Phase, Plan, Role, ScheduleBuilder, Scope, TensorId,
};

/// What `verify` says of the schedule, all in one text.
fn said(builder: ScheduleBuilder) -> String {
    let plan = Plan::new(builder.finish()).unwrap();
    let defects = defects(&plan, &NoScratch);
    defects.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn gelu(x: TensorId, out: TensorId) -> Op {
    Gelu { x, out, kind: GeluKind::Erf }.into()
}

/// The same of one step over two tensors on the host, h0 and h1, and two on the device, d0 and d1.
fn said_of(make: impl FnOnce([TensorId; 4]) -> Op) -> String {
    let mut builder = ScheduleBuilder::new();
    let names = [("h0", Scope::Host), ("h1", Scope::Host), ("d0", Scope::Run), ("d1", Scope::Run)];
    let all = names.map(|(name, scope)| {
        builder.held_tensor(name, Dtype::F32, shape(&[64]), Role::Moment, scope).unwrap()
    });
    let mut segment = builder.segment("s", Phase::Train);
    segment.push(make(all)).unwrap();
    segment.finish();
    said(builder)
}

#[test]
fn kernels_do_not_touch_host_memory() {
    assert_eq!(said_of(|[_, _, x, out]| gelu(x, out)), "");
    let reads = said_of(|[x, _, out, _]| gelu(x, out));
    assert_eq!(reads, "s step 0 (gelu) touches h0, which is in host memory");
    let writes = said_of(|[_, out, x, _]| gelu(x, out));
    assert_eq!(writes, "s step 0 (gelu) touches h1, which is in host memory");
}

#[test]
fn a_transfer_has_one_side_in_host_memory() {
    assert_eq!(said_of(|[from, _, to, _]| Transfer { from, to }.into()), "");
    assert_eq!(said_of(|[to, _, from, _]| Transfer { from, to }.into()), "");
    let want = "exactly one of them must be on the host";
    let inside = said_of(|[_, _, from, to]| Transfer { from, to }.into());
    assert_eq!(inside, format!("s step 0 (transfer) copies d0 to d1: {want}"));
    let outside = said_of(|[from, to, ..]| Transfer { from, to }.into());
    assert_eq!(outside, format!("s step 0 (transfer) copies h0 to h1: {want}"));
}

/// Two activations leave for a tensor on the host, and return. Each has a window there, of 64 of
/// its 128 elements, that starts at so many bytes.
fn said_of_windows(starts: [u64; 2]) -> String {
    let mut builder = ScheduleBuilder::new();
    let role = Role::Activation;
    let host = builder.held_tensor("host", Dtype::F32, shape(&[128]), role, Scope::Host).unwrap();
    let there = ["there_0", "there_1"]
        .into_iter()
        .zip(starts)
        .map(|(name, start)| builder.window(name, shape(&[64]), host, bytes(start), None).unwrap());
    let there: Vec<TensorId> = there.collect();
    let x = builder.run_tensor("x", Dtype::F32, shape(&[64]), role).unwrap();
    let mut segment = builder.segment("s", Phase::Train);
    for &to in &there {
        segment.push(Transfer { from: x, to }).unwrap();
    }
    for (name, &from) in ["back_0", "back_1"].into_iter().zip(&there) {
        let to = segment.local(name, Dtype::F32, shape(&[64]), role).unwrap();
        segment.push(Transfer { from, to }).unwrap();
    }
    segment.finish();
    said(builder)
}

#[test]
fn activations_on_the_host_have_places_of_their_own() {
    assert_eq!(said_of_windows([0, 256]), "");
    let early = "s step 2 (transfer) reads there_0, which nothing has written";
    assert!(said_of_windows([0, 0]).starts_with(early), "{}", said_of_windows([0, 0]));
    let partly = said_of_windows([128, 256]);
    assert!(partly.starts_with(early), "{partly}");
}

/// What left in another segment is not there: slices share the bytes.
#[test]
fn activations_on_the_host_are_of_their_segment() {
    let mut builder = ScheduleBuilder::new();
    let mut held = |name: &str, role: Role, scope: Scope| {
        builder.held_tensor(name, Dtype::F32, shape(&[64]), role, scope).unwrap()
    };
    let moment = held("moment", Role::Moment, Scope::Host);
    let activation = held("away", Role::Activation, Scope::Host);
    let to = held("here", Role::Moment, Scope::Run);
    for (name, from) in [("moments", moment), ("activations", activation)] {
        let mut segment = builder.segment(name, Phase::Train);
        segment.push(Transfer { from, to }).unwrap();
        segment.finish();
    }
    let want = "activations step 0 (transfer) reads away, which nothing has written";
    let found = said(builder);
    assert!(found.starts_with(want), "{found}");
}

/// A run-wide input of 64 elements, a window of 8 into it, and tensors of both sizes.
#[derive(Clone, Copy)]
struct Inputs {
    input: TensorId,
    window: TensorId,
    like_input: TensorId,
    like_window: TensorId,
    other: TensorId,
}

/// What `verify` says of two segments, `first` and `second`, of one step each.
fn said_of_input(steps: [fn(Inputs) -> Op; 2]) -> String {
    let mut builder = ScheduleBuilder::new();
    let mut held = |name: &str, elements: u64| {
        builder.run_tensor(name, Dtype::F32, shape(&[elements]), Role::Activation).unwrap()
    };
    let (like_input, like_window, other) = (held("a", 64), held("b", 8), held("c", 8));
    let mut owner = builder.segment("owner", Phase::Train);
    let input = owner.run_input("input", Dtype::F32, shape(&[64]), Role::Activation).unwrap();
    owner.finish();
    let window = builder.window("window", shape(&[8]), input, bytes(32), None).unwrap();
    let inputs = Inputs { input, window, like_input, like_window, other };
    for (name, step) in ["first", "second"].into_iter().zip(steps) {
        let mut segment = builder.segment(name, Phase::Train);
        segment.push(step(inputs)).unwrap();
        segment.finish();
    }
    said(builder)
}

#[test]
fn no_step_writes_a_run_wide_input() {
    let idle: fn(Inputs) -> Op = |i| gelu(i.like_window, i.other);
    type Case = (fn(Inputs) -> Op, &'static str);
    let cases: [Case; 2] = [
        (|i| gelu(i.like_input, i.input), "input of owner"),
        (|i| gelu(i.like_window, i.window), "window"),
    ];
    for (step, tensor) in cases {
        let what = format!("writes {tensor}, an input that only the host writes");
        assert_eq!(said_of_input([idle, step]), format!("second step 0 (gelu) {what}"));
    }
}

#[test]
fn one_segment_uses_a_run_wide_input() {
    let idle: fn(Inputs) -> Op = |i| gelu(i.like_window, i.other);
    let whole: fn(Inputs) -> Op = |i| gelu(i.input, i.like_input);
    let part: fn(Inputs) -> Op = |i| gelu(i.window, i.like_window);
    assert_eq!(said_of_input([whole, idle]), "");
    assert_eq!(said_of_input([idle, part]), "");
    let want = "input of owner is an input of one segment, but first and second use it";
    assert_eq!(said_of_input([whole, whole]), want);
    assert_eq!(said_of_input([whole, part]), want);
}

/// Bytes between two elements of f32, and whole elements that an access of eight would straddle.
#[test]
fn windows_start_where_kernels_can_access_them() {
    let said_at = |offset: u64| {
        let mut builder = ScheduleBuilder::new();
        let mut held = |name: &str, elements: u64| {
            builder.run_tensor(name, Dtype::F32, shape(&[elements]), Role::Weight).unwrap()
        };
        let (root, out) = (held("root", 64), held("out", 8));
        let window = builder.window("window", shape(&[8]), root, bytes(offset), None).unwrap();
        let mut segment = builder.segment("s", Phase::Train);
        segment.push(gelu(window, out)).unwrap();
        segment.finish();
        said(builder)
    };
    for offset in [0, OPERAND_ALIGNMENT, 3 * OPERAND_ALIGNMENT] {
        assert_eq!(said_at(offset), "");
    }
    for offset in [4, 8, 16, OPERAND_ALIGNMENT + 4] {
        let what = format!("a window at byte {offset}, not a multiple of 32");
        assert_eq!(said_at(offset), format!("s step 0 (gelu) touches window, {what}"));
    }
}

/// Kernels cut a workspace up as they like, from an aligned address on.
#[test]
fn a_workspace_is_not_a_window() {
    let mut builder = ScheduleBuilder::new();
    let root = builder.run_tensor("root", Dtype::F32, shape(&[64]), Role::Workspace).unwrap();
    let window = builder.window("window", shape(&[16]), root, bytes(64), None).unwrap();
    let mut segment = builder.segment("s", Phase::Train);
    let mut tensor = || segment.local("t", Dtype::F32, shape(&[4, 4]), Role::Activation).unwrap();
    let [x, w, out] = [tensor(), tensor(), tensor()];
    let linear =
        |workspace| Linear { x, w, bias: None, out, gelu: None, residual: None, workspace };
    let refused = segment.push(linear(window)).unwrap_err().to_string();
    assert!(refused.contains("an f32 workspace"), "{refused}");
    segment.push(linear(root)).unwrap();
}
