//! Recompute as a rewrite of the schedule. The forward does not keep some tensors that the backward
//! reads. Instead, the steps that compute them are inserted again, before the first backward step
//! that reads them. The same op on the same inputs gives the same bits, so only memory and time
//! change. One case is cheaper: only a weight's gradient reads the tensor, and the step after the
//! input's gradient passes over the same numbers anyway. Then that step also recomputes the tensor
//! (the re-emitting form), and the weight's gradient runs after it.

use crate::error::PlanError;
use crate::lanes::derive_waits;
use crate::ops::{
    Access, GeluBackward, LayerNormBackward, LinearBackwardWeight, NormalisedAgain, Op,
};
use crate::schedule::{Pass, Schedule, SegmentId, Step, start_of_backward};
use crate::tensor::{Role, Scope, TensorId};
use std::collections::{BTreeMap, BTreeSet};

/// Rewrites a segment so that the backward recomputes the `dropped` tensors. Tensors that the
/// inserted steps need and that were not kept are recomputed too.
pub fn recompute(
    schedule: &mut Schedule,
    segment: SegmentId,
    dropped: &BTreeSet<TensorId>,
) -> Result<(), PlanError> {
    if dropped.is_empty() {
        return Ok(());
    }
    let steps = schedule.segment(segment).steps.clone();
    let split = start_of_backward(&steps);
    let (forward, backward) = steps.split_at(split);
    let kept = kept(schedule, segment, backward, dropped);
    let (made, out) = (BTreeMap::new(), forward.to_vec());
    let moved = (0..split).collect();
    let mut rewrite = Rewrite { schedule, segment, forward, kept, made, out, moved };
    let mut rest = backward;
    while let [step, behind @ ..] = rest {
        let start = rewrite.out.len();
        rest = if rewrite.re_emit(rest)? {
            &behind[2..]
        } else {
            rewrite.put(step)?;
            rewrite.moved.push(rewrite.out.len() - 1);
            behind
        };
        // A join holds for the next step of the lane, and that is now the first inserted one.
        let first = rewrite.out[start..].iter_mut().find(|other| other.lane == step.lane);
        if let Some(first) = first {
            let is_new = |join: &&usize| !first.joins.contains(join);
            let joins: Vec<usize> = step.joins.iter().filter(is_new).copied().collect();
            first.joins.extend(joins);
        }
    }
    let Rewrite { mut out, moved, .. } = rewrite;
    for step in &out {
        step.op.check(&schedule.tensors)?;
    }
    for step in &mut out {
        step.joins.iter_mut().for_each(|join| *join = moved_wait(&steps, &moved, *join));
    }
    derive_waits(&schedule.tensors, &mut out);
    schedule.segment_mut(segment).steps = out;
    Ok(())
}

/// A wait for a step is also one for all steps before it on its lane. Returns the new index of
/// whichever of them is now the last; `moved` has the new index of every step.
fn moved_wait(steps: &[Step], moved: &[usize], step: usize) -> usize {
    let on_lane = |&other: &usize| steps[other].lane == steps[step].lane;
    (0..=step).filter(on_lane).map(|other| moved[other]).max().unwrap_or(step)
}

/// The segment's tensors that the backward finds as the forward left them: those that it reads or
/// writes itself, except the dropped ones.
fn kept(
    schedule: &Schedule,
    segment: SegmentId,
    backward: &[Step],
    dropped: &BTreeSet<TensorId>,
) -> BTreeSet<TensorId> {
    let local = |tensor: &TensorId| schedule.tensors.get(*tensor).scope == Scope::Segment(segment);
    let touched = backward.iter().flat_map(Step::operands).map(|operand| operand.tensor);
    touched.filter(local).filter(|tensor| !dropped.contains(tensor)).collect()
}

fn reads(op: &Op) -> Vec<TensorId> {
    let operands = op.operation().operands().into_iter();
    operands.filter(|operand| operand.access != Access::Write).map(|o| o.tensor).collect()
}

/// Whether an op writes a tensor.
fn writes(op: &Op, tensor: TensorId) -> bool {
    let operands = op.operation().operands();
    operands.iter().any(|operand| operand.tensor == tensor && operand.access == Access::Write)
}

/// Whether a step reads or changes a tensor.
fn touches(step: &Step, tensor: TensorId) -> bool {
    step.operands().iter().any(|o| o.tensor == tensor && o.access != Access::Write)
}

/// A segment during the rewrite.
struct Rewrite<'a> {
    schedule: &'a mut Schedule,
    segment: SegmentId,
    forward: &'a [Step],
    kept: BTreeSet<TensorId>,
    /// For each dropped tensor that was recomputed, the tensor that now holds it.
    made: BTreeMap<TensorId, TensorId>,
    out: Vec<Step>,
    /// For each step before the rewrite, its index in `out`.
    moved: Vec<usize>,
}

impl Rewrite<'_> {
    /// Whether a tensor is available: it is kept, outlives the segment, or was recomputed.
    fn is_there(&self, tensor: TensorId) -> bool {
        let outlives = self.schedule.tensors.get(tensor).scope != Scope::Segment(self.segment);
        outlives || self.kept.contains(&tensor) || self.made.contains_key(&tensor)
    }

    /// Appends a step of the backward, after the steps that recompute what it reads.
    fn put(&mut self, step: &Step) -> Result<(), PlanError> {
        for tensor in reads(&step.op) {
            self.make(tensor, 0)?;
        }
        let mut step = step.clone();
        self.redirect(&mut step.op);
        self.out.push(step);
        Ok(())
    }

    /// Inserts the step that recomputes a tensor, after the steps that recompute its inputs.
    fn make(&mut self, tensor: TensorId, depth: usize) -> Result<(), PlanError> {
        if self.is_there(tensor) {
            return Ok(());
        }
        let makes = |step: &&Step| writes(&step.op, tensor);
        let Some(producer) = self.forward.iter().find(makes).filter(|_| depth < self.forward.len())
        else {
            let name = self.schedule.tensors.get(tensor).name.clone();
            let problem = format!("no forward step computes {name}");
            return Err(PlanError::Attribute { op: "recompute", problem });
        };
        let mut step = producer.clone();
        step.op = step.op.again(&|tensor| self.is_there(tensor));
        step.pass = Pass::Backward;
        step.joins.clear();
        for input in reads(&step.op) {
            self.make(input, depth + 1)?;
        }
        for operand in step.operands() {
            let is_result = operand.access == Access::Write;
            if is_result && self.schedule.tensors.get(operand.tensor).role != Role::Workspace {
                self.copy_of(operand.tensor)?;
            }
        }
        self.redirect(&mut step.op);
        self.out.push(step);
        Ok(())
    }

    /// Rewrites three steps where possible: a weight's gradient, the input's gradient, and the next
    /// step on that gradient, if the input was dropped and the third step can recompute it.
    /// Returns whether it appended these three.
    fn re_emit(&mut self, rest: &[Step]) -> Result<bool, PlanError> {
        let [weight, input, next, behind @ ..] = rest else {
            return Ok(false);
        };
        let (Op::LinearBackwardWeight(weight_op), Op::LinearBackwardInput(input_op)) =
            (&weight.op, &input.op)
        else {
            return Ok(false);
        };
        // The three change their order, which is safe for steps of one lane.
        if weight.lane != input.lane || weight.lane != next.lane {
            return Ok(false);
        }
        let dropped = weight_op.x;
        let read_behind = |tensor: TensorId| behind.iter().any(|step| touches(step, tensor));
        if self.is_there(dropped) || weight_op.d_out != input_op.d_out || read_behind(dropped) {
            return Ok(false);
        }
        let Some((stands_at, op)) = self.re_emitting(dropped, input_op.d_x, &next.op, behind)?
        else {
            return Ok(false);
        };
        let weight_op = LinearBackwardWeight { x: stands_at, ..weight_op.clone() };
        let [input, next, weight] = [
            input.clone(),
            Step { op, ..next.clone() },
            Step { op: weight_op.into(), ..weight.clone() },
        ];
        let mut places = [0; 3];
        for (before, step) in [(1, input), (2, next), (0, weight)] {
            self.put(&step)?;
            places[before] = self.out.len() - 1;
        }
        self.moved.extend(places);
        Ok(true)
    }

    /// The form of a backward step that recomputes the dropped tensor while it reads `gradient`,
    /// the tensor's gradient; and the tensor in which the dropped one then stands. None if the op
    /// that made it has no such form, or if something it needs is missing or overwritten too early.
    fn re_emitting(
        &mut self,
        dropped: TensorId,
        gradient: TensorId,
        next: &Op,
        behind: &[Step],
    ) -> Result<Option<(TensorId, Op)>, PlanError> {
        let producer = self.forward.iter().map(|step| &step.op).find(|op| writes(op, dropped));
        let read_behind = |tensor: TensorId| behind.iter().any(|step| touches(step, tensor));
        match producer {
            Some(Op::Gelu(made)) => match next {
                Op::GeluBackward(next)
                    if next.d == gradient && next.x == made.x && !read_behind(made.x) =>
                {
                    self.make(made.x, 0)?;
                    let op = GeluBackward { again: true, ..next.clone() };
                    Ok(Some((made.x, op.into())))
                }
                _ => Ok(None),
            },
            Some(Op::LayerNorm(made)) => match next {
                Op::LayerNormBackward(next)
                    if next.d_out == gradient
                        && [next.x, next.mean, next.rstd].iter().all(|t| self.is_there(*t))
                        && !read_behind(gradient) =>
                {
                    let again = Some(NormalisedAgain { bias: made.bias });
                    let op = LayerNormBackward { again, ..next.clone() };
                    Ok(Some((gradient, op.into())))
                }
                _ => Ok(None),
            },
            Some(
                Op::Embed(_)
                | Op::EmbedBackward(_)
                | Op::LayerNormBackward(_)
                | Op::Linear(_)
                | Op::LinearBackwardInput(_)
                | Op::LinearBackwardWeight(_)
                | Op::Attention(_)
                | Op::AttentionBackward(_)
                | Op::GeluBackward(_)
                | Op::HeadTrain(_)
                | Op::HeadEval(_)
                | Op::CacheStore(_)
                | Op::AttentionDecode(_)
                | Op::SelectPosition(_)
                | Op::GradNorm(_)
                | Op::LossScaler(_)
                | Op::AdamW(_)
                | Op::Transfer(_)
                | Op::Clear(_)
                | Op::SquareSums(_)
                | Op::NormOfSums(_)
                | Op::ReduceScatter(_)
                | Op::AllGather(_),
            )
            | None => Ok(None),
        }
    }

    /// Adds a tensor like the dropped one.
    fn copy_of(&mut self, tensor: TensorId) -> Result<(), PlanError> {
        let mut copy = self.schedule.tensors.get(tensor).clone();
        copy.name = format!("{} again", copy.name);
        let copy = self.schedule.tensors.add(copy)?;
        self.made.insert(tensor, copy);
        Ok(())
    }

    /// Replaces dropped tensors in an op by the recomputed ones.
    fn redirect(&self, op: &mut Op) {
        for tensor in op.operation_mut().tensors_mut() {
            if let Some(copy) = self.made.get(tensor) {
                *tensor = *copy;
            }
        }
    }
}
