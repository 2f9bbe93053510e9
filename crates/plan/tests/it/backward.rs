//! The backward walk: which steps it emits for a small net, and what it refuses to differentiate.

use crate::fixture::{EPSILON, shape};
use fitgpt_plan::ops::{
    Access, Branch, Dropout, DropoutSite, Elements, Embed, Gelu, GeluKind, LayerNorm, Linear,
    PositionFrom, SelectPosition,
};
use fitgpt_plan::verify::defects;
use fitgpt_plan::{
    Dtype, Io, NoScratch, Pass, Phase, Plan, PlanError, Role, ScheduleBuilder, SegmentBuilder,
    TensorId,
};
use std::collections::BTreeMap;

/// `y = layernorm(x + dropout(linear(gelu(linear(layernorm(x))))))`: a branch and its residual.
struct Net<'a> {
    segment: SegmentBuilder<'a>,
    y: TensorId,
    gain: TensorId,
    weights: [TensorId; 2],
    bias: TensorId,
}

fn net(builder: &mut ScheduleBuilder, dropout: Option<Dropout>) -> Result<Net<'_>, PlanError> {
    let mut parameter =
        |name: &str, dims: &[u64]| builder.run_tensor(name, Dtype::F32, shape(dims), Role::Weight);
    let gain = parameter("gain", &[4])?;
    let weights = [parameter("w0", &[6, 4])?, parameter("w1", &[4, 6])?];
    let bias = parameter("bias", &[6])?;
    let workspace = builder.run_tensor("workspace", Dtype::F32, shape(&[1]), Role::Workspace)?;
    let mut segment = builder.segment("net", Phase::Train);
    let mut local = |name: &str, dims: &[u64], io: Io| {
        segment.host_tensor(name, Dtype::F32, shape(dims), Role::Activation, io)
    };
    let x = local("x", &[3, 4], Io::Input)?;
    let [n, sum, branch, y] = ["n", "sum", "branch", "y"].map(|s| local(s, &[3, 4], Io::Device));
    let [up, act] = ["up", "act"].map(|name| local(name, &[3, 6], Io::Device));
    let stats = ["m0", "r0", "m1", "r1"].map(|name| local(name, &[3], Io::Device));
    let [mean0, rstd0, mean1, rstd1] = stats;
    let (n, sum, branch, y, up, act) = (n?, sum?, branch?, y?, up?, act?);
    let first = LayerNorm {
        x,
        add: None,
        gain,
        bias: None,
        out: n,
        mean: mean0?,
        rstd: rstd0?,
        epsilon: EPSILON,
    };
    segment.push(first)?;
    let gelu = None;
    segment.push(Linear {
        x: n,
        w: weights[0],
        bias: Some(bias),
        out: up,
        gelu,
        residual: None,
        workspace,
    })?;
    segment.push(Gelu { x: up, out: act, kind: GeluKind::Erf })?;
    segment.push(Linear {
        x: act,
        w: weights[1],
        bias: None,
        out: branch,
        gelu,
        residual: None,
        workspace,
    })?;
    let add = Some(Branch { branch, dropout, sum });
    let second = LayerNorm {
        x,
        add,
        gain,
        bias: None,
        out: y,
        mean: mean1?,
        rstd: rstd1?,
        epsilon: EPSILON,
    };
    segment.push(second)?;
    Ok(Net { segment, y, gain, weights, bias })
}

/// Differentiates the net; the parameter `missing` has no accumulator. Returns the backward steps
/// as text.
fn differentiate(dropout: Option<Dropout>, missing: &str) -> Result<Vec<String>, PlanError> {
    let mut builder = ScheduleBuilder::new();
    let mut gradients = Vec::new();
    for (name, dims) in [("gain", &[4][..]), ("w0", &[6, 4]), ("w1", &[4, 6]), ("bias", &[6])] {
        let shape = shape(dims);
        gradients.push((name, builder.run_tensor(name, Dtype::F32, shape, Role::Gradient)?));
    }
    let mut net = net(&mut builder, dropout)?;
    let like_y = shape(&[3, 4]);
    let d_y = net.segment.host_tensor("d_y", Dtype::F32, like_y, Role::Activation, Io::Input)?;
    let parameters = [net.gain, net.weights[0], net.weights[1], net.bias];
    let accumulators: BTreeMap<TensorId, TensorId> = parameters
        .into_iter()
        .zip(gradients)
        .filter(|(_, (name, _))| *name != missing)
        .map(|(parameter, (_, gradient))| (parameter, gradient))
        .collect();
    let delivered = match missing {
        "y" => BTreeMap::new(),
        _ => BTreeMap::from([(net.y, d_y)]),
    };
    net.segment.backward(&accumulators, delivered)?;
    net.segment.finish();
    let plan = Plan::new(builder.finish())?;
    assert_eq!(defects(&plan, &NoScratch), []);
    let backward = |step: &&fitgpt_plan::Step| step.pass == Pass::Backward;
    let text = |step: &fitgpt_plan::Step| {
        let name = |id: TensorId| plan.schedule.tensors.get(id).name.clone();
        let operands: Vec<String> = step
            .operands()
            .iter()
            .filter(|operand| operand.elements != Elements::Workspace)
            .map(|operand| {
                let mark = match operand.access {
                    Access::Read => "=",
                    Access::Write => ":=",
                    Access::Update => "+=",
                };
                // Accumulators have the names of their parameters here, so they get a number.
                format!("{}{mark}{}", operand.name, name(operand.tensor).replace("#2", ""))
            })
            .collect();
        format!("{} {}", step.op.operation().name(), operands.join(" "))
    };
    Ok(plan.schedule.segments[0].steps.iter().filter(backward).map(text).collect())
}

#[test]
fn the_residual_gradient_is_walked_in_place() {
    // Without dropout, the branch's gradient is that of the residual stream.
    let want = [
        "layernorm_backward d_out=d_y x=sum mean=m1 rstd=r1 gain=gain d_gain+=gain d_x:=d_sum",
        "linear_backward_weight d_out=d_sum x=act d_w+=w1",
        "linear_backward_input d_out=d_sum w=w1 d_x:=d_act",
        "gelu_backward x=up d+=d_act",
        "linear_backward_weight d_out=d_act x=n d_w+=w0 d_bias+=bias",
        "linear_backward_input d_out=d_act w=w0 d_x:=d_n",
        "layernorm_backward d_out=d_n x=x mean=m0 rstd=r0 gain=gain d_gain+=gain d_x+=d_sum",
    ];
    assert_eq!(differentiate(None, "").unwrap(), want);
}

#[test]
fn a_dropped_out_branch_has_its_own_gradient() {
    let site = DropoutSite::MlpProjection;
    let steps = differentiate(Some(Dropout { probability: 0.1, layer: 0, site }), "").unwrap();
    assert!(steps[0].ends_with("d_x:=d_sum d_branch:=d_branch"), "{}", steps[0]);
    assert!(steps[1].starts_with("linear_backward_weight d_out=d_branch"), "{}", steps[1]);
    assert!(steps[6].ends_with("d_x+=d_sum"), "{}", steps[6]);
}

#[test]
fn what_is_missing_is_named() {
    let cases = [
        ("y", "layernorm cannot be differentiated: the gradient of y is missing"),
        ("gain", "layernorm cannot be differentiated: an accumulator for gain is missing"),
        ("w1", "linear cannot be differentiated: an accumulator for w1 is missing"),
        ("w0", "linear cannot be differentiated: an accumulator for w0 is missing"),
        ("bias", "linear cannot be differentiated: an accumulator for bias is missing"),
    ];
    for (missing, want) in cases {
        let said = differentiate(None, missing).unwrap_err().to_string();
        assert_eq!(said.replace("#2", ""), want);
    }
}

/// Only a residual sum adds gradients; any other tensor that is read twice would lose one.
#[test]
fn a_second_gradient_is_refused() {
    let mut builder = ScheduleBuilder::new();
    let mut segment = builder.segment("s", Phase::Train);
    let mut local =
        |name: &str| segment.local(name, Dtype::F32, shape(&[2, 4]), Role::Activation).unwrap();
    let [x, a, b, d_a, d_b] = ["x", "a", "b", "d_a", "d_b"].map(&mut local);
    for out in [a, b] {
        segment.push(Gelu { x, out, kind: GeluKind::Erf }).unwrap();
    }
    let delivered = BTreeMap::from([(a, d_a), (b, d_b)]);
    let error = segment.backward(&BTreeMap::new(), delivered).unwrap_err();
    let want = "gelu cannot be differentiated: the sum of two gradients of x is missing";
    assert_eq!(error.to_string(), want);
}

/// The gradient of a branch without dropout is the residual's own gradient, which must not be
/// changed in place.
#[test]
fn a_shared_gradient_is_not_changed_in_place() {
    let mut builder = ScheduleBuilder::new();
    let gain = builder.run_tensor("gain", Dtype::F32, shape(&[4]), Role::Weight).unwrap();
    let d_gain = builder.run_tensor("d_gain", Dtype::F32, shape(&[4]), Role::Gradient).unwrap();
    let mut segment = builder.segment("s", Phase::Train);
    let mut local = |name: &str, dims: &[u64]| {
        segment.local(name, Dtype::F32, shape(dims), Role::Activation).unwrap()
    };
    let [x, h, branch, sum, out, d_out] =
        ["x", "h", "branch", "sum", "out", "d_out"].map(|name| local(name, &[3, 4]));
    let (mean, rstd) = (local("mean", &[3]), local("rstd", &[3]));
    segment.push(Gelu { x: h, out: branch, kind: GeluKind::Erf }).unwrap();
    let add = Some(Branch { branch, dropout: None, sum });
    segment
        .push(LayerNorm { x, add, gain, bias: None, out, mean, rstd, epsilon: EPSILON })
        .unwrap();
    let accumulators = BTreeMap::from([(gain, d_gain)]);
    let error = segment.backward(&accumulators, BTreeMap::from([(out, d_out)])).unwrap_err();
    let want = "gelu cannot be differentiated: a gradient of its own for branch is missing";
    assert_eq!(error.to_string(), want);
}

#[test]
fn tokens_at_a_given_position_are_not_trained_on() {
    let mut builder = ScheduleBuilder::new();
    let mut run = |name: &str, dtype: Dtype, dims: &[u64]| {
        builder.run_tensor(name, dtype, shape(dims), Role::Activation).unwrap()
    };
    let (tokens, out) = (run("tokens", Dtype::I32, &[1, 1]), run("out", Dtype::F32, &[1, 1, 4]));
    let [wte, wpe] = ["wte", "wpe"].map(|name| run(name, Dtype::F32, &[5, 4]));
    let mut segment = builder.segment("s", Phase::Train);
    let (position, dropout) = (PositionFrom::Step, None);
    segment.push(Embed { tokens, wte, wpe: Some(wpe), out, position, dropout }).unwrap();
    let accumulators = BTreeMap::from([(wte, wte), (wpe, wpe)]);
    let error = segment.backward(&accumulators, BTreeMap::from([(out, out)])).unwrap_err();
    let want = "embed cannot be differentiated: only sequences from position 0 are trained on";
    assert_eq!(error.to_string(), want);
}

#[test]
fn ops_without_a_gradient_are_named() {
    let mut builder = ScheduleBuilder::new();
    let mut segment = builder.segment("s", Phase::Train);
    let mut local = |name: &str, dims: &[u64]| {
        segment.local(name, Dtype::F32, shape(dims), Role::Activation).unwrap()
    };
    let (x, out) = (local("x", &[2, 3, 4]), local("out", &[2, 1, 4]));
    segment.push(SelectPosition { x, out }).unwrap();
    let error = segment.backward(&BTreeMap::new(), BTreeMap::from([(out, x)])).unwrap_err();
    let want = "select_position cannot be differentiated: it has no backward";
    assert_eq!(error.to_string(), want);
}
