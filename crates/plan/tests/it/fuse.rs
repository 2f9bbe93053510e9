//! Which ops are joined, what the joined op still writes, and what becomes of waits.
#![expect(clippy::unwrap_used, reason = "what tests share may end the test")]

use crate::fixture::shape;
use fitgpt_plan::fuse::fuse;
use fitgpt_plan::ops::{
    Branch, Dropout, DropoutSite, Gelu, GeluKind, GeluOfSums, LayerNorm, Linear, Op, Transfer,
};
use fitgpt_plan::verify::defects;
use fitgpt_plan::{
    Bytes, Dtype, GpuScratch, Io, Lane, NoScratch, Phase, Plan, Role, Schedule, ScheduleBuilder,
    Scope, Scratch, SegmentBuilder, SegmentId, TensorId, Tensors,
};
use std::collections::BTreeMap;

const KIND: GeluKind = GeluKind::Erf;

/// No scratch, and everything that can be joined is.
#[derive(Debug)]
struct Joins;

impl Scratch for Joins {
    fn bytes(&self, op: &Op, tensors: &Tensors) -> Option<Bytes> {
        NoScratch.bytes(op, tensors)
    }

    fn computes_joined(&self, _: &Op, _: &Tensors) -> bool {
        true
    }
}

/// The tensors of `layer`.
struct Layer {
    x: TensorId,
    w: TensorId,
    sums: TensorId,
    out: TensorId,
}

fn local(segment: &mut SegmentBuilder<'_>, name: &str) -> TensorId {
    segment.local(name, Dtype::F32, shape(&[8, 8]), Role::Activation).unwrap()
}

/// `out = gelu(x w)`, and what `more` adds to the segment behind it.
fn layer(more: impl FnOnce(&mut SegmentBuilder<'_>, &Layer)) -> (Schedule, SegmentId, Layer) {
    layer_with(Io::Device, more)
}

/// The same with sums that the host may read.
fn layer_with(
    io: Io,
    more: impl FnOnce(&mut SegmentBuilder<'_>, &Layer),
) -> (Schedule, SegmentId, Layer) {
    let mut builder = ScheduleBuilder::new();
    let mut held = |name: &str| {
        let square = shape(&[8, 8]);
        builder.held_tensor(name, Dtype::F32, square, Role::Moment, Scope::Run).unwrap()
    };
    let [x, w, out] = ["x", "w", "out"].map(&mut held);
    let mut segment = builder.segment("s", Phase::Train);
    let (square, role) = (shape(&[8, 8]), Role::Activation);
    let sums = segment.host_tensor("sums", Dtype::F32, square, role, io).unwrap();
    let linear =
        |workspace| Linear { x, w, bias: None, out: sums, gelu: None, residual: None, workspace };
    segment.push_with_workspace(linear).unwrap();
    segment.push(Gelu { x: sums, out, kind: KIND }).unwrap();
    let layer = Layer { x, w, sums, out };
    more(&mut segment, &layer);
    let id = segment.finish();
    (builder.finish(), id, layer)
}

fn names(schedule: &Schedule) -> Vec<&'static str> {
    let steps = schedule.segments[0].steps.iter();
    steps.map(|step| step.op.operation().name()).collect()
}

/// The sums that the first step writes, if it is joined.
fn kept(schedule: &Schedule) -> Option<GeluOfSums> {
    match &schedule.segments[0].steps[0].op {
        Op::Linear(linear) => linear.gelu,
        _ => None,
    }
}

fn proved(schedule: Schedule) {
    assert_eq!(defects(&Plan::new(schedule).unwrap(), &NoScratch), []);
}

#[test]
fn sums_that_nobody_reads_are_not_written() {
    let (mut schedule, id, Layer { out, .. }) = layer(|_, _| ());
    fuse(&mut schedule, id, &NoScratch);
    assert_eq!(names(&schedule), ["linear", "gelu"], "a backend that computes them one by one");
    fuse(&mut schedule, id, &Joins);
    assert_eq!(names(&schedule), ["linear_gelu"]);
    assert_eq!(kept(&schedule), Some(GeluOfSums { kind: KIND, sums: None }));
    let written = schedule.segments[0].steps[0].op.operation().operands();
    assert!(written.iter().any(|operand| operand.tensor == out), "{written:?}");
    proved(schedule);
}

#[test]
fn sums_that_a_later_step_reads_are_written() {
    let (mut schedule, id, Layer { sums, .. }) = layer(|segment, layer| {
        let again = local(segment, "again");
        segment.push(Gelu { x: layer.sums, out: again, kind: KIND }).unwrap();
    });
    fuse(&mut schedule, id, &Joins);
    assert_eq!(names(&schedule), ["linear_gelu", "gelu"]);
    assert_eq!(kept(&schedule), Some(GeluOfSums { kind: KIND, sums: Some(sums) }));
    proved(schedule);
}

/// The host reads the sums after the segment.
#[test]
fn sums_for_the_host_are_written() {
    let (mut schedule, id, Layer { sums, .. }) = layer_with(Io::Output, |_, _| ());
    fuse(&mut schedule, id, &Joins);
    assert_eq!(kept(&schedule), Some(GeluOfSums { kind: KIND, sums: Some(sums) }));
    proved(schedule);
}

#[test]
fn gradients_are_joined_and_read_what_gelu_was_computed_of() {
    let (mut schedule, id, _) = layer(|segment, layer| {
        let (w, second) = (layer.w, local(segment, "second"));
        let linear = |workspace| Linear {
            x: layer.out,
            w,
            bias: None,
            out: second,
            gelu: None,
            residual: None,
            workspace,
        };
        segment.push_with_workspace(linear).unwrap();
        let delivered = BTreeMap::from([(second, layer.x)]);
        segment.backward(&BTreeMap::from([(w, w)]), delivered).unwrap();
    });
    let before = names(&schedule);
    assert!(before.contains(&"gelu_backward"), "{before:?}");
    fuse(&mut schedule, id, &Joins);
    let after = names(&schedule);
    let count = |name| after.iter().filter(|&&found| found == name).count();
    assert_eq!(["gelu", "gelu_backward"].map(count), [0, 0], "{after:?}");
    assert_eq!(["linear_gelu", "linear_backward_gelu"].map(count), [1, 1], "{after:?}");
    assert!(kept(&schedule).unwrap().sums.is_some(), "the gradient reads the sums");
}

/// A copy waits for the GELU, then for the step that has become one with the layer.
#[test]
fn waits_follow_the_steps_that_are_joined() {
    let mut builder = ScheduleBuilder::new();
    let mut held = |name: &str, scope| {
        let square = shape(&[8, 8]);
        builder.held_tensor(name, Dtype::F32, square, Role::Moment, scope).unwrap()
    };
    let [x, w, out, here] = ["x", "w", "out", "here"].map(|name| held(name, Scope::Run));
    let host = held("host", Scope::Host);
    let mut segment = builder.segment("s", Phase::Train);
    let [before, sums] = ["before", "sums"].map(|name| local(&mut segment, name));
    segment.push(Gelu { x, out: before, kind: KIND }).unwrap();
    let linear = |workspace| Linear {
        x: before,
        w,
        bias: None,
        out: sums,
        gelu: None,
        residual: None,
        workspace,
    };
    segment.push_with_workspace(linear).unwrap();
    segment.push(Gelu { x: sums, out, kind: KIND }).unwrap();
    segment.join(Lane::Upload);
    segment.push_on(Lane::Upload, Transfer { from: host, to: here }).unwrap();
    let id = segment.finish();
    let mut schedule = builder.finish();
    let waits = |schedule: &Schedule| schedule.segments[0].steps.last().unwrap().waits.clone();
    assert_eq!(waits(&schedule), [2]);
    fuse(&mut schedule, id, &Joins);
    assert_eq!(names(&schedule), ["gelu", "linear_gelu", "transfer"]);
    assert_eq!(waits(&schedule), [1]);
    proved(schedule);
}

/// On Hopper, where sums are long enough to hide it.
#[test]
fn a_gpu_joins_wide_layers() {
    let joins = |inner: u64, warpgroups: bool| {
        let mut builder = ScheduleBuilder::new();
        let mut held = |dims: &[u64]| {
            let (dtype, role) = (Dtype::Bf16, Role::Activation);
            builder.held_tensor("t", dtype, shape(dims), role, Scope::Run).unwrap()
        };
        let (x, w) = (held(&[65_536, inner]), held(&[4 * inner, inner]));
        let (out, workspace) = (held(&[65_536, 4 * inner]), held(&[1]));
        let gelu = Some(GeluOfSums { kind: KIND, sums: None });
        let op = Op::Linear(Linear { x, w, bias: None, out, gelu, residual: None, workspace });
        GpuScratch { warpgroups }.computes_joined(&op, &builder.finish().tensors)
    };
    assert_eq!([376, 384, 768].map(|inner| joins(inner, true)), [false, true, true]);
    assert!(!joins(768, false));
}

/// A GELU on another lane is not next to the layer.
#[test]
fn lanes_are_not_joined() {
    let (mut schedule, id, _) = layer(|_, _| ());
    schedule.segments[0].steps[1].lane = Lane::Upload;
    fuse(&mut schedule, id, &Joins);
    assert_eq!(names(&schedule), ["linear", "gelu"]);
}

/// The residual stream `x`, a branch `x w`, their sum and its norm.
fn branch(sum: Dtype, dropout: Option<Dropout>, reads_branch: bool) -> (Schedule, SegmentId) {
    let mut builder = ScheduleBuilder::new();
    let mut held = |name: &str, dtype, dims: &[u64]| {
        builder.held_tensor(name, dtype, shape(dims), Role::Activation, Scope::Run).unwrap()
    };
    let [w, out] = ["w", "out"].map(|name| held(name, Dtype::Bf16, &[8, 8]));
    let [mean, rstd] = ["mean", "rstd"].map(|name| held(name, Dtype::F32, &[8]));
    let gain = held("gain", Dtype::Bf16, &[8]);
    let h = held("h", Dtype::Bf16, &[8, 8]);
    let [x, sum] = ["x", "sum"].map(|name| held(name, sum, &[8, 8]));
    let mut segment = builder.segment("s", Phase::Train);
    let role = Role::Activation;
    let branch = segment.local("branch", Dtype::Bf16, shape(&[8, 8]), role).unwrap();
    let linear = |workspace| Linear {
        x: h,
        w,
        bias: None,
        out: branch,
        gelu: None,
        residual: None,
        workspace,
    };
    segment.push_with_workspace(linear).unwrap();
    let add = Some(Branch { branch, dropout, sum });
    let norm = LayerNorm { x, add, gain, bias: None, out, mean, rstd, epsilon: 1e-5 };
    segment.push(norm).unwrap();
    if reads_branch {
        segment.push(Gelu { x: branch, out: h, kind: KIND }).unwrap();
    }
    let id = segment.finish();
    (builder.finish(), id)
}

#[test]
fn the_residual_stream_is_added_by_the_matmul() {
    let (mut schedule, id) = branch(Dtype::Bf16, None, false);
    fuse(&mut schedule, id, &NoScratch);
    assert_eq!(names(&schedule), ["linear", "layernorm"], "a backend that computes them apart");
    fuse(&mut schedule, id, &Joins);
    assert_eq!(names(&schedule), ["linear_add", "layernorm"]);
    let [Op::Linear(linear), Op::LayerNorm(norm)] =
        [0, 1].map(|step: usize| &schedule.segments[0].steps[step].op)
    else {
        panic!("other ops");
    };
    assert_eq!((norm.x, &norm.add), (linear.out, &None), "the norm reads the stored sum");
    let name = |id: TensorId| schedule.tensors.get(id).name.clone();
    assert_eq!((name(linear.out), name(linear.residual.unwrap())), ("sum".into(), "x".into()));
    proved(schedule.clone());
    fuse(&mut schedule, id, &Joins);
    assert_eq!(names(&schedule), ["linear_add", "layernorm"], "nothing is added twice");
}

/// The sum is computed from the branch in its own format, or after dropout; or a later step reads
/// the branch.
#[test]
fn a_branch_that_differs_from_the_stream_is_added_by_the_norm() {
    let dropout = Dropout { probability: 0.5, site: DropoutSite::MlpProjection, layer: 0 };
    for (dtype, dropout, reads_branch) in
        [(Dtype::F32, None, false), (Dtype::Bf16, Some(dropout), false), (Dtype::Bf16, None, true)]
    {
        let (mut schedule, id) = branch(dtype, dropout, reads_branch);
        let before = names(&schedule);
        fuse(&mut schedule, id, &Joins);
        assert_eq!(names(&schedule), before, "{dtype} {dropout:?} {reads_branch}");
    }
}
