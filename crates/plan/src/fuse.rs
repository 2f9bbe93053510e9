//! Joins a matmul and the GELU next to it into one op, where the backend computes both in one
//! pass: the numbers between them are then not read back from memory. It comes after `recompute`,
//! so neither recompute nor gradients need to know the joined forms.

use crate::backend::Scratch;
use crate::lanes::derive_waits;
use crate::ops::{GeluBefore, GeluOfSums, Linear, LinearBackwardInput, Op};
use crate::schedule::{Schedule, SegmentId, Step};
use crate::tensor::{Io, Scope, TensorId, Tensors};

/// Joins what can be joined in a segment.
pub fn fuse(schedule: &mut Schedule, segment: SegmentId, scratch: &dyn Scratch) {
    let tensors = &schedule.tensors;
    let steps = &schedule.segment(segment).steps;
    let mut out: Vec<Step> = Vec::with_capacity(steps.len());
    // For each step before the rewrite, its index in `out`.
    let mut moved = Vec::with_capacity(steps.len());
    for (index, step) in steps.iter().enumerate() {
        let needed = |id: TensorId| {
            let tensor = tensors.get(id);
            let is_local = tensor.scope == Scope::Segment(segment) && tensor.io != Io::Output;
            !is_local || steps[index + 1..].iter().any(|step| touches(tensors, step, id))
        };
        let on_lane = out.last_mut().filter(|before| before.lane == step.lane);
        let pair = on_lane.and_then(|first| {
            let op = joined(&first.op, &step.op, needed)?;
            scratch.computes_with_gelu(&op, tensors).then_some((first, op))
        });
        match pair {
            Some((first, op)) => {
                first.op = op;
                first.joins.extend(&step.joins);
            }
            None => out.push(step.clone()),
        }
        moved.push(out.len() - 1);
    }
    if out.len() == steps.len() {
        return;
    }
    for step in &mut out {
        step.joins.iter_mut().for_each(|join| *join = moved[*join]);
    }
    derive_waits(tensors, &mut out);
    schedule.segment_mut(segment).steps = out;
}

/// Two ops as one. `needed` says whether a tensor must be in memory after both.
fn joined(first: &Op, second: &Op, needed: impl Fn(TensorId) -> bool) -> Option<Op> {
    match (first, second) {
        (Op::Linear(linear), Op::Gelu(gelu)) if gelu.x == linear.out && linear.gelu.is_none() => {
            let sums = Some(gelu.x).filter(|&sums| needed(sums));
            let of = GeluOfSums { kind: gelu.kind, sums };
            Some(Linear { out: gelu.out, gelu: Some(of), ..linear.clone() }.into())
        }
        (Op::LinearBackwardInput(linear), Op::GeluBackward(gelu))
            if gelu.d == linear.d_x && linear.gelu.is_none() =>
        {
            let before = GeluBefore { kind: gelu.kind, x: gelu.x, again: gelu.again };
            Some(LinearBackwardInput { gelu: Some(before), ..linear.clone() }.into())
        }
        _ => None,
    }
}

/// Whether a step touches any of a tensor's memory.
fn touches(tensors: &Tensors, step: &Step, id: TensorId) -> bool {
    let root = tensors.root(id).0;
    step.operands().iter().any(|operand| tensors.root(operand.tensor).0 == root)
}
