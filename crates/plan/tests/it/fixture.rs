//! A small sound plan of three segments and two phases with everything that a plan can contain:
//! views of a run-wide tensor, a run-wide tensor that no step touches, a phase-wide cache, inputs,
//! outputs, in-place work, and tensors whose sizes are not multiples of the alignment.

use fitgpt_plan::ops::{
    AttentionDecode, Branch, CacheStore, Gelu, GeluBackward, GeluKind, LayerNorm, Linear,
};
use fitgpt_plan::{
    Bytes, Dtype, Io, Phase, Plan, PlanError, Role, Schedule, ScheduleBuilder, Scope, Shape,
    Tensor, TensorId,
};

/// What norms add to the variance.
pub const EPSILON: f64 = 1e-3;

/// A shape that is known to be valid.
pub fn shape(dims: &[u64]) -> Shape {
    Shape::new(dims).expect("a test's shapes are valid")
}

/// A size that is known to be valid.
pub fn bytes(count: u64) -> Bytes {
    Bytes::new(count).expect("a test's sizes are valid")
}

/// The sound plan.
pub fn plan() -> Plan {
    let schedule = schedule(GeluKind::Erf).expect("the fixture's steps obey their shape rules");
    Plan::new(schedule).expect("the fixture is small")
}

/// Tensors that several segments use.
struct Held {
    w: TensorId,
    bias: TensorId,
    gain: TensorId,
    workspace: TensorId,
    cache: TensorId,
}

/// The schedule behind [`plan`].
pub fn schedule(kind: GeluKind) -> Result<Schedule, PlanError> {
    let mut builder = ScheduleBuilder::new();
    let flat = builder.run_tensor("weights", Dtype::F32, shape(&[117]), Role::Weight)?;
    let kept = builder.run_tensor("kept", Dtype::F32, shape(&[50]), Role::Moment)?;
    builder.run_tensor("state", Dtype::U32, shape(&[16]), Role::State)?;
    // Shares bytes with `gain`. No step of the sound plan touches it or the next one.
    builder.window("near_gain", shape(&[13]), flat, bytes(416), None)?;
    builder.window("near_kept", shape(&[13]), kept, bytes(0), None)?;
    let cache = Tensor {
        name: "cache".to_string(),
        dtype: Dtype::F32,
        shape: shape(&[2, 1, 2, 5, 3]),
        role: Role::Cache,
        scope: Scope::Phase(Phase::Generate),
        layer: None,
        io: Io::Device,
        view: None,
    };
    let held = Held {
        w: builder.window("w", shape(&[13, 6]), flat, bytes(0), None)?,
        bias: builder.window("bias", shape(&[13]), flat, bytes(320), None)?,
        gain: builder.window("gain", shape(&[13]), flat, bytes(384), None)?,
        workspace: builder.run_tensor("workspace", Dtype::F32, shape(&[1]), Role::Workspace)?,
        cache: builder.tensor(cache)?,
    };
    train(&mut builder, &held, kind)?;
    prefill(&mut builder, &held, kind)?;
    decode(&mut builder, &held)?;
    Ok(builder.finish())
}

/// Five steps; `h` is read three steps after it was written, `g` is an output that is also read.
fn train(b: &mut ScheduleBuilder, held: &Held, kind: GeluKind) -> Result<(), PlanError> {
    let mut segment = b.segment("train", Phase::Train);
    let wide = shape(&[1, 5, 13]);
    let mut tensor = |name: &str, shape: Shape, io: Io| {
        segment.host_tensor(name, Dtype::F32, shape, Role::Activation, io)
    };
    let x = tensor("x", shape(&[1, 5, 6]), Io::Input)?;
    let late = tensor("late", wide, Io::Input)?;
    let h = tensor("h", wide, Io::Device)?;
    let g = tensor("g", wide, Io::Output)?;
    let sum = tensor("sum", wide, Io::Device)?;
    let n = tensor("n", wide, Io::Device)?;
    let mean = tensor("mean", shape(&[5]), Io::Device)?;
    let rstd = tensor("rstd", shape(&[5]), Io::Device)?;
    let y = tensor("y", wide, Io::Output)?;
    let &Held { w, bias, gain, workspace, .. } = held;
    segment.push(Linear {
        x,
        w,
        bias: Some(bias),
        out: h,
        gelu: None,
        residual: None,
        workspace,
    })?;
    segment.push(Gelu { x: h, out: g, kind })?;
    let add = Some(Branch { branch: late, dropout: None, sum });
    segment.push(LayerNorm {
        x: g,
        add,
        gain,
        bias: None,
        out: n,
        mean,
        rstd,
        epsilon: EPSILON,
    })?;
    segment.push(GeluBackward { x: h, d: n, kind, again: false })?;
    segment.push(Gelu { x: n, out: y, kind })?;
    segment.finish();
    Ok(())
}

fn prefill(b: &mut ScheduleBuilder, held: &Held, kind: GeluKind) -> Result<(), PlanError> {
    let mut segment = b.segment("prefill", Phase::Generate);
    let wide = shape(&[1, 3, 18]);
    let qkv = segment.host_tensor("qkv", Dtype::F32, wide, Role::Activation, Io::Input)?;
    let echo = segment.host_tensor("echo", Dtype::F32, wide, Role::Activation, Io::Output)?;
    segment.push(CacheStore { qkv, cache: held.cache })?;
    segment.push(Gelu { x: qkv, out: echo, kind })?;
    segment.finish();
    Ok(())
}

fn decode(b: &mut ScheduleBuilder, held: &Held) -> Result<(), PlanError> {
    let mut segment = b.segment("decode", Phase::Generate);
    let (one, logits) = (shape(&[1, 1, 18]), shape(&[1, 1, 13]));
    let qkv = segment.host_tensor("qkv_1", Dtype::F32, one, Role::Activation, Io::Input)?;
    let att = segment.local("att", Dtype::F32, shape(&[1, 1, 6]), Role::Activation)?;
    let out = segment.host_tensor("logits", Dtype::F32, logits, Role::Logits, Io::Output)?;
    let &Held { w, bias, workspace, cache, .. } = held;
    segment.push(AttentionDecode { qkv, cache, out: att, workspace })?;
    segment.push(Linear {
        x: att,
        w,
        bias: Some(bias),
        out,
        gelu: None,
        residual: None,
        workspace,
    })?;
    segment.finish();
    Ok(())
}
