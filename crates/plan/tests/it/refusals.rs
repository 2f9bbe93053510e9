//! What builders and placement refuse: operands that break an op's rule, attributes outside their
//! range, and sizes that do not fit any machine.

use crate::every_op::{OPS, Operands};
use crate::fixture::{bytes, shape};
use fitgpt_plan::ops::{Elements, Gelu, GeluKind, LayerNorm, Linear, Op, Operand};
use fitgpt_plan::{Dtype, Io, Phase, Plan, PlanError, Role, ScheduleBuilder, Scope, Tensor};
use std::collections::BTreeSet;

/// Builds the op with one broken operand and a changed attribute, and returns the builder's
/// message.
fn push(op: &str, broken: Option<(&str, Dtype, &[u64])>, edit: fn(&mut Op)) -> String {
    let (_, make) = OPS.iter().find(|(name, _)| *name == op).expect("the op is in the list");
    let mut builder = ScheduleBuilder::new();
    let mut operands = Operands { segment: builder.segment("s", Phase::Train), broken };
    let mut op = make(&mut operands);
    edit(&mut op);
    match operands.segment.push(op) {
        Ok(()) => "accepted".to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_op_is_accepted_under_its_own_name() {
    let mut found = BTreeSet::new();
    for &(name, make) in OPS {
        let mut builder = ScheduleBuilder::new();
        let mut operands = Operands { segment: builder.segment("s", Phase::Train), broken: None };
        let op = make(&mut operands);
        assert_eq!(op.operation().name(), name);
        found.insert(op.variant());
        assert_eq!(operands.segment.push(op), Ok(()), "{name}");
    }
    let missing: Vec<_> = Op::VARIANTS.iter().filter(|variant| !found.contains(*variant)).collect();
    assert!(missing.is_empty(), "crates/plan/tests/it/every_op.rs has no example of {missing:?}");
}

/// A rewrite can redirect every operand and nothing else: both lists name the same tensors.
#[test]
fn every_operand_can_be_redirected() {
    for &(name, make) in OPS {
        let mut builder = ScheduleBuilder::new();
        let mut operands = Operands { segment: builder.segment("s", Phase::Train), broken: None };
        let mut op = make(&mut operands);
        let mut listed: Vec<_> = op.operation().operands().iter().map(|o| o.tensor).collect();
        let mut found: Vec<_> =
            op.operation_mut().tensors_mut().into_iter().map(|tensor| *tensor).collect();
        listed.sort();
        found.sort();
        assert_eq!(found, listed, "{name}");
    }
}

/// Only a tensor with the role of a workspace can be one.
#[test]
fn a_workspace_has_its_role() {
    let mut builder = ScheduleBuilder::new();
    let mut segment = builder.segment("s", Phase::Train);
    let mut tensor = |role: Role| segment.local("t", Dtype::F32, shape(&[4, 4]), role).unwrap();
    let [x, w, out] = [Role::Activation, Role::Weight, Role::Activation].map(&mut tensor);
    let [gradient, workspace] = [Role::Gradient, Role::Workspace].map(&mut tensor);
    let linear =
        |workspace| Linear { x, w, bias: None, out, gelu: None, residual: None, workspace };
    let refused = segment.push(linear(gradient)).unwrap_err().to_string();
    assert!(refused.contains("an f32 workspace"), "{refused}");
    segment.push(linear(workspace)).unwrap();
    let op = Op::from(linear(workspace));
    assert_eq!(op.workspace(), Some(workspace));
    assert_eq!(Op::from(Gelu { x, out, kind: GeluKind::Erf }).workspace(), None);
}

/// Every operand of every op, one element wider and with one more dimension.
#[test]
fn every_operand_is_checked() {
    // Sizes that an op cannot know: the backend's scratch, and how many sequences an iteration has.
    let free = ["workspace", "row_loss"];
    for &(name, make) in OPS {
        let mut builder = ScheduleBuilder::new();
        let mut operands = Operands { segment: builder.segment("s", Phase::Train), broken: None };
        let op = make(&mut operands);
        for operand in op.operation().operands() {
            let tensor = builder.tensors().get(operand.tensor);
            assert_eq!(operand.name, tensor.name, "{name}");
            if free.contains(&operand.name) || name == "clear" {
                continue; // anything can be cleared
            }
            let mut wider = tensor.shape.dims().to_vec();
            if let Some(last) = wider.last_mut() {
                *last += 1;
            }
            let deeper = [&[1], tensor.shape.dims()].concat();
            for dims in [wider, deeper].iter().filter(|dims| dims.len() <= 5) {
                let broken = Some((operand.name, tensor.dtype, &dims[..]));
                let said = push(name, broken, |_| ());
                assert!(said.starts_with(&format!("{name}: ")), "{name} {operand:?}: {said}");
            }
        }
    }
}

/// Every operand of every op, with a type that it cannot have.
#[test]
fn every_operand_has_its_type_checked() {
    for &(name, make) in OPS {
        let mut builder = ScheduleBuilder::new();
        let mut operands = Operands { segment: builder.segment("s", Phase::Train), broken: None };
        let op = make(&mut operands);
        let typed = |operand: &Operand| operand.elements != Elements::Any;
        for operand in op.operation().operands().into_iter().filter(typed) {
            let tensor = builder.tensors().get(operand.tensor);
            let wrong = match tensor.dtype {
                Dtype::I32 => [Dtype::F32, Dtype::U32],
                Dtype::U32 => [Dtype::F32, Dtype::I32],
                Dtype::F32 | Dtype::Bf16 | Dtype::F16 | Dtype::U16 => [Dtype::I32, Dtype::U32],
            };
            for dtype in wrong {
                let broken = Some((operand.name, dtype, tensor.shape.dims()));
                let said = push(name, broken, |_| ());
                let found = format!("{name}: operand {0} ({0}) is {dtype}", operand.name);
                assert!(said.starts_with(&found), "{name} {operand:?}: {said}");
            }
        }
    }
}

/// Every float operand alone in 16 bits beside f32: kernels read operands together as one type, so
/// the op's rule refuses all but those that have a type of their own.
#[test]
fn every_operand_has_the_type_that_others_have() {
    let own = [
        ("embed", "out"),
        ("embed_backward", "d_out"),
        ("linear_backward_input", "d_x"),
        ("adamw", "copy"),
        ("clear", "tensor"),
    ];
    let mut accepted = Vec::new();
    for &(name, make) in OPS {
        let mut builder = ScheduleBuilder::new();
        let mut operands = Operands { segment: builder.segment("s", Phase::Train), broken: None };
        let op = make(&mut operands);
        for operand in op.operation().operands() {
            let tensor = builder.tensors().get(operand.tensor);
            let is_float = tensor.dtype == Dtype::F32;
            let broken = Some((operand.name, Dtype::Bf16, tensor.shape.dims()));
            if is_float && push(name, broken, |_| ()) == "accepted" {
                accepted.push((name, operand.name));
            }
        }
    }
    assert_eq!(accepted, own);
    let said = push("head_eval", Some(("w", Dtype::Bf16, &[11, 4])), |_| ());
    assert_eq!(said, "head_eval: operand w (w) is bf16 [11, 4], the op needs f32");
}

/// The message has the operand, what it is, and what the op needs.
#[test]
fn refusals_name_the_operand_and_both_shapes() {
    use Dtype::{Bf16, F32, I32, U32};
    let cases: [(&str, &str, Dtype, &[u64], &str); 34] = [
        ("embed", "tokens", I32, &[6], "2 dimensions"),
        ("embed", "tokens", F32, &[2, 3], "i32"),
        ("embed", "wpe", F32, &[8, 5], "[8, 4]"),
        ("embed", "out", F32, &[2, 4, 4], "[2, 3, 4]"),
        ("embed_backward", "d_out", F32, &[2, 3], "[2, 3, 4]"),
        ("embed_backward", "d_wpe", F32, &[8, 5], "[8, 4]"),
        ("layernorm", "x", I32, &[2, 3, 4], "a float type"),
        ("layernorm", "branch", F32, &[6, 4], "[2, 3, 4]"),
        ("layernorm", "gain", F32, &[3], "[4]"),
        ("layernorm", "rstd", F32, &[5], "[6]"),
        ("layernorm", "mean", Bf16, &[6], "f32"),
        ("layernorm_backward", "d_x", F32, &[2, 3, 5], "[2, 3, 4]"),
        ("layernorm_backward", "bias", F32, &[5], "[4]"),
        ("linear", "w", F32, &[4, 5], "[5, 4]"),
        ("linear", "out", F32, &[3, 2, 5], "[2, 3, 5]"),
        ("linear", "bias", F32, &[4], "[5]"),
        ("linear", "w", U32, &[5, 4], "a float type"),
        ("linear_backward_input", "w", F32, &[5, 5], "[5, 4]"),
        ("linear_backward_weight", "d_w", F32, &[4, 5], "[5, 4]"),
        ("linear_backward_weight", "d_bias", F32, &[1, 5], "[5]"),
        ("attention", "qkv", F32, &[2, 3, 8], "[2, 3, 12]"),
        ("attention", "lse", F32, &[2, 3, 2], "[2, 2, 3]"),
        ("attention_backward", "delta", F32, &[6], "[2, 2, 3]"),
        ("gelu", "out", F32, &[6, 4], "[2, 3, 4]"),
        ("gelu_backward", "d", F32, &[2, 3, 3], "[2, 3, 4]"),
        ("head_train", "d_w", F32, &[10, 4], "[11, 4]"),
        ("head_train", "slab", F32, &[6, 12], "[6, 11]"),
        ("head_eval", "targets", I32, &[6], "[2, 3]"),
        ("cache_store", "cache", F32, &[2, 3, 2, 8, 2], "[2, 2, 2, 8, 2]"),
        ("attention_decode", "qkv", F32, &[2, 2, 12], "[2, 1, 12]"),
        ("select_position", "out", F32, &[2, 4], "[2, 1, 4]"),
        ("grad_norm", "partials", U32, &[2], "[2, 2]"),
        ("loss_scaler", "state", F32, &[16], "u32"),
        ("adamw", "v", F32, &[99], "[100]"),
    ];
    for (op, operand, dtype, dims, wanted) in cases {
        let said = push(op, Some((operand, dtype, dims)), |_| ());
        let found = format!("operand {operand} ({operand}) is {dtype} {dims:?}");
        assert_eq!(said, format!("{op}: {found}, the op needs {wanted}"));
    }
}

#[test]
fn attributes_outside_their_range_are_refused() {
    type Edit = fn(&mut Op);
    let cases: [(&str, Edit, &str); 14] = [
        ("embed", |op| dropout(op, 1.0), "outside [0, 1)"),
        ("embed_backward", |op| dropout(op, 1.0), "outside [0, 1)"),
        ("layernorm_backward", |op| dropout(op, 7.0), "outside [0, 1)"),
        ("attention_backward", |op| dropout(op, -1.0), "outside [0, 1)"),
        ("layernorm", |op| dropout(op, -0.1), "outside [0, 1)"),
        ("attention", |op| dropout(op, f32::NAN), "outside [0, 1)"),
        ("attention", |op| heads(op, 3), "attention: width 4 cannot be split into 3 heads"),
        ("attention_backward", |op| heads(op, 0), "width 4 cannot be split into 0 heads"),
        ("layernorm", |op| epsilon(op, 0.0), "layernorm: epsilon 0 is not above 0 and finite"),
        ("adamw", |op| epsilon(op, -1.0), "adamw: eps -1 and weight decay 0.1 must be ≥ 0"),
        ("adamw", |op| epsilon(op, f64::NAN), "adamw: eps NaN and weight decay 0.1 must be ≥ 0"),
        ("adamw", |op| betas(op, 1.0, 0.5), "adamw: betas 1 and 0.5 must lie in [0, 1)"),
        ("adamw", |op| betas(op, 0.5, -0.5), "adamw: betas 0.5 and -0.5 must lie in [0, 1)"),
        ("adamw", |op| decay(op, -1.0), "weight decay -1 must be ≥ 0"),
    ];
    for (op, edit, want) in cases {
        let said = push(op, None, edit);
        assert!(said.contains(want), "{said}\nwanted: {want}");
    }
    let sizes: [(&str, &str, &[u64], &str); 7] = [
        ("embed", "wpe", &[2, 4], "embed: 3 positions, but only 2 are embedded"),
        ("head_train", "row_loss", &[1], "head_train: 2 sequences, but row_loss holds 1"),
        ("head_eval", "slab", &[5, 11], "head_eval: a chunk of 5 tokens is not a multiple of 256"),
        ("head_eval", "slab", &[256, 11], "accepted"),
        ("head_train", "row_loss", &[480], "accepted"),
        ("cache_store", "cache", &[2, 2, 2, 2, 2], "3 positions, but the cache holds 2"),
        ("cache_store", "qkv", &[2, 3, 9], "qkv is 9 wide, 2 heads of 2 need 12"),
    ];
    for (op, operand, dims, want) in sizes {
        let said = push(op, Some((operand, Dtype::F32, dims)), |_| ());
        assert!(said.contains(want), "{said}\nwanted: {want}");
    }
}

fn dropout(op: &mut Op, probability: f32) {
    let place = match op {
        Op::Embed(op) => op.dropout.as_mut(),
        Op::LayerNorm(op) => op.add.as_mut().and_then(|add| add.dropout.as_mut()),
        Op::Attention(op) => op.dropout.as_mut(),
        Op::EmbedBackward(op) => op.dropout.as_mut(),
        Op::AttentionBackward(op) => op.dropout.as_mut(),
        Op::LayerNormBackward(op) => op.branch.as_mut().and_then(|branch| branch.dropout.as_mut()),
        _ => None,
    };
    place.expect("the op drops out").probability = probability;
}

fn heads(op: &mut Op, count: u64) {
    match op {
        Op::Attention(op) => op.heads = count,
        Op::AttentionBackward(op) => op.heads = count,
        _ => {}
    }
}

fn epsilon(op: &mut Op, epsilon: f64) {
    match op {
        Op::LayerNorm(op) => op.epsilon = epsilon,
        Op::AdamW(op) => op.eps = epsilon,
        _ => {}
    }
}

fn betas(op: &mut Op, beta1: f64, beta2: f64) {
    if let Op::AdamW(op) = op {
        (op.beta1, op.beta2) = (beta1, beta2);
    }
}

fn decay(op: &mut Op, weight_decay: f64) {
    if let Op::AdamW(op) = op {
        op.weight_decay = weight_decay;
    }
}

/// A tensor of 2^exp bytes.
fn held(exp: u32, scope: Scope) -> Tensor {
    Tensor {
        name: format!("2^{exp}"),
        dtype: Dtype::F32,
        shape: shape(&[1 << (exp - 2)]),
        role: Role::Weight,
        scope,
        layer: None,
        io: Io::Device,
        view: None,
    }
}

#[test]
fn absurd_tensors_are_refused_by_the_builder() {
    let mut builder = ScheduleBuilder::new();
    for dims in [&[u64::MAX][..], &[1 << 40, 1 << 40], &[1 << 61], &[(1 << 61) - 1], &[3, 1 << 62]]
    {
        let error = builder.run_tensor("huge", Dtype::F32, shape(dims), Role::Weight);
        let said = error.expect_err("it is absurd").to_string();
        assert_eq!(said, format!("tensor huge {dims:?} f32 is larger than 2^63 bytes"));
        let mut segment = builder.segment("s", Phase::Train);
        let error = segment.local("huge", Dtype::F32, shape(dims), Role::Activation);
        assert!(matches!(error, Err(PlanError::TooLarge { .. })), "{error:?}");
    }
    let root = builder.run_tensor("root", Dtype::F32, shape(&[8]), Role::Weight).unwrap();
    for (elements, offset) in [(8, 4), (9, 0), (1, i64::MAX as u64), (1, 32)] {
        let window = builder.window("window", shape(&[elements]), root, bytes(offset), None);
        let said = window.expect_err("it is outside").to_string();
        assert!(said.starts_with("view window ends"), "{said}");
    }
    assert!(builder.window("window", shape(&[7]), root, bytes(4), None).is_ok());
}

/// Tensors that fit one by one, but whose sum does not.
#[test]
fn absurd_sums_are_refused_by_placement() {
    const TRAIN: Scope = Scope::Phase(Phase::Train);
    const EVAL: Scope = Scope::Phase(Phase::Eval);
    // Held tensors; the exponent of both tensors of a segment of phase train; the message.
    type Case = (&'static [(u32, Scope)], u32, &'static str);
    let cases: [Case; 7] = [
        (&[(62, Scope::Run)], 10, ""),
        (&[(62, Scope::Run), (62, Scope::Run)], 10, "the arena passes 2^63 bytes at 2^62#2"),
        (&[(62, Scope::Run), (62, TRAIN)], 10, "the arena passes 2^63 bytes at 2^62#2"),
        (&[(61, Scope::Run), (61, EVAL), (61, TRAIN)], 10, ""),
        (&[], 62, "the arena passes 2^63 bytes at s"),
        (&[(62, Scope::Run)], 61, "the arena passes 2^63 bytes at s"),
        (&[(61, Scope::Run)], 61, ""),
    ];
    for (tensors, exp, want) in cases {
        let mut builder = ScheduleBuilder::new();
        for &(exp, scope) in tensors {
            builder.tensor(held(exp, scope)).unwrap();
        }
        let mut segment = builder.segment("s", Phase::Train);
        let side = shape(&[1 << (exp - 2)]);
        let x = segment.host_tensor("x", Dtype::F32, side, Role::Activation, Io::Input).unwrap();
        let out = segment.local("out", Dtype::F32, side, Role::Activation).unwrap();
        segment.push(Gelu { x, out, kind: GeluKind::Erf }).unwrap();
        let said = Plan::new(builder.finish()).map_or_else(|e| e.to_string(), |_| String::new());
        assert_eq!(said, want, "{tensors:?} {exp}");
    }
}

/// Kernels add an epsilon in f32: one that is 0 or infinite there is refused.
#[test]
fn an_epsilon_must_be_a_number_in_f32() {
    let mut builder = ScheduleBuilder::new();
    let mut segment = builder.segment("s", Phase::Train);
    let mut tensor =
        |dims: &[u64]| segment.local("t", Dtype::F32, shape(dims), Role::Activation).unwrap();
    let [x, out] = [tensor(&[3, 4]), tensor(&[3, 4])];
    let [gain, mean, rstd] = [tensor(&[4]), tensor(&[3]), tensor(&[3])];
    let mut push = |epsilon: f64| {
        segment.push(LayerNorm { x, add: None, gain, bias: None, out, mean, rstd, epsilon })
    };
    for epsilon in [1e-5, 1e-12, 1.0] {
        push(epsilon).unwrap();
    }
    for epsilon in [0.0, -1e-5, 1e-50, 1e300, f64::NAN, f64::INFINITY] {
        let said = push(epsilon).unwrap_err().to_string();
        let want = format!("layernorm: epsilon {epsilon} is not above 0 and finite as f32");
        assert_eq!(said, want);
    }
}
