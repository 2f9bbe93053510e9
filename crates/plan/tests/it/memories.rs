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
