//! Joins a matmul and what stands next to it, where the backend computes both in one pass: a GELU,
//! or the residual addition with which the norm behind it begins. The numbers between them are then
//! not read back from memory. It comes after `recompute`, so neither recompute nor gradients need
//! to know the joined forms.

use crate::backend::Scratch;
use crate::lanes::derive_waits;
use crate::ops::{GeluBefore, GeluOfSums, LayerNorm, Linear, LinearBackwardInput, Op};
use crate::schedule::{Schedule, SegmentId, Step};
use crate::tensor::{Io, Scope, TensorId, Tensors};

/// Joins what can be joined in a segment.
pub fn fuse(schedule: &mut Schedule, segment: SegmentId, scratch: &dyn Scratch) {
    let tensors = &schedule.tensors;
    let steps = &schedule.segment(segment).steps;
    let mut out: Vec<Step> = Vec::with_capacity(steps.len());
    // For each step before the rewrite, its index in `out`.
    let mut moved = Vec::with_capacity(steps.len());
    let mut has_changed = false;
    let last_uses = last_uses(tensors, steps);
    for (index, step) in steps.iter().enumerate() {
        let needed = |id: TensorId| {
            let tensor = tensors.get(id);
            let is_local = tensor.scope == Scope::Segment(segment) && tensor.io != Io::Output;
            !is_local || last_uses[tensors.root(id).0.index()] > Some(index)
        };
        let on_lane = out.last_mut().filter(|before| before.lane == step.lane);
        let pair = on_lane.and_then(|first| {
            let pair = joined(tensors, &first.op, &step.op, needed)?;
            scratch.computes_joined(&pair.op, tensors).then_some((first, pair))
        });
        match pair {
            Some((first, Joined { op, rest })) => {
                first.op = op;
                first.joins.extend(&step.joins);
                out.extend(rest.map(|op| Step { op, joins: Vec::new(), ..step.clone() }));
                has_changed = true;
            }
            None => out.push(step.clone()),
        }
        moved.push(out.len() - 1);
    }
    if !has_changed {
        return;
    }
    for step in &mut out {
        step.joins.iter_mut().for_each(|join| *join = moved[*join]);
    }
    derive_waits(tensors, &mut out);
    schedule.segment_mut(segment).steps = out;
}

/// What becomes of two ops.
struct Joined {
    /// The first, with what it now computes of the second.
    op: Op,
    /// What is left of the second.
    rest: Option<Op>,
}

/// Two ops joined. `needed` says whether a tensor must be in memory after both.
fn joined(
    tensors: &Tensors,
    first: &Op,
    second: &Op,
    needed: impl Fn(TensorId) -> bool,
) -> Option<Joined> {
    let whole = |op: Op| Some(Joined { op, rest: None });
    match (first, second) {
        (Op::Linear(linear), Op::Gelu(gelu))
            if gelu.x == linear.out && linear.gelu.is_none() && linear.residual.is_none() =>
        {
            let sums = Some(gelu.x).filter(|&sums| needed(sums));
            let of = GeluOfSums { kind: gelu.kind, sums };
            whole(Linear { out: gelu.out, gelu: Some(of), ..linear.clone() }.into())
        }
        (Op::LinearBackwardInput(linear), Op::GeluBackward(gelu))
            if gelu.d == linear.d_x && linear.gelu.is_none() =>
        {
            let before = GeluBefore { kind: gelu.kind, x: gelu.x, again: gelu.again };
            whole(LinearBackwardInput { gelu: Some(before), ..linear.clone() }.into())
        }
        (Op::Linear(linear), Op::LayerNorm(norm)) => {
            with_residual(tensors, linear, norm).filter(|_| !needed(linear.out))
        }
        _ => None,
    }
}

/// A branch's last matmul, which also adds the branch to the residual stream, and the norm of the
/// sum. Only if nothing comes between them: no GELU, no dropout, no change of format.
fn with_residual(tensors: &Tensors, linear: &Linear, norm: &LayerNorm) -> Option<Joined> {
    let add = norm.add.as_ref().filter(|add| add.branch == linear.out && add.dropout.is_none())?;
    let has_one_format = tensors.get(add.sum).dtype == tensors.get(linear.out).dtype;
    let is_plain = linear.gelu.is_none() && linear.residual.is_none();
    let op = Linear { out: add.sum, residual: Some(norm.x), ..linear.clone() };
    let rest = LayerNorm { x: add.sum, add: None, ..norm.clone() };
    (has_one_format && is_plain).then(|| Joined { op: op.into(), rest: Some(rest.into()) })
}

/// The last step that touches any of a tensor's memory, by the tensor that owns it; None if no step
/// does.
fn last_uses(tensors: &Tensors, steps: &[Step]) -> Vec<Option<usize>> {
    let mut last = vec![None; tensors.len()];
    for (index, step) in steps.iter().enumerate() {
        for operand in step.operands() {
            last[tensors.root(operand.tensor).0.index()] = Some(index);
        }
    }
    last
}
