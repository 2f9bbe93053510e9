//! Values that the kernels do not check: ids below the vocabulary, positions and rows inside their
//! tensors. The host checks each of them before it reaches the device.

use plan::ops::{Access, Op, PositionFrom};
use plan::{BackendError, Io, Plan, Scope, SegmentId, StepInputs, TensorId};
use std::collections::BTreeMap;

/// More sequences than any iteration has. It keeps rows times heads times positions far below 2^64.
const MOST_ROWS: u64 = 1 << 24;

/// The limits of a plan's inputs.
pub(crate) struct InputLimits {
    /// By the tensor whose bytes they are: what ops read as ids.
    ids: BTreeMap<TensorId, Vec<Ids>>,
    /// By segment: the smallest `first_row` and the smallest `position` that are too large.
    segments: Vec<(u64, u64)>,
}

/// Which ids a tensor may contain.
#[derive(Clone, Copy)]
struct Ids {
    /// Whether -1 is allowed, for "no target".
    with_none: bool,
    /// The smallest id that is too large.
    limit: u64,
    /// Where they begin among the bytes.
    start: u64,
    /// Their bytes.
    bytes: u64,
}

impl InputLimits {
    pub(crate) fn new(plan: &Plan) -> Result<InputLimits, BackendError> {
        let mut limits = InputLimits { ids: BTreeMap::new(), segments: Vec::new() };
        for segment in plan.schedule.segment_ids() {
            let mut bounds = (MOST_ROWS, u64::MAX);
            for step in &plan.schedule.segment(segment).steps {
                limits.add(plan, &step.op, &mut bounds);
            }
            limits.segments.push(bounds);
        }
        limits.are_inputs(plan)?;
        Ok(limits)
    }

    /// Whether ids come from the host alone, which is where they are checked. What a run keeps is 0
    /// until the host writes it, and 0 is an id of every vocabulary; what a phase keeps is not.
    fn are_inputs(&self, plan: &Plan) -> Result<(), BackendError> {
        let tensors = &plan.schedule.tensors;
        let refusal = |id: TensorId, why: &str| {
            let what = format!("ids in {}, {why}", tensors.get(id).name);
            Err(BackendError::Unsupported { what })
        };
        for &id in self.ids.keys() {
            let tensor = tensors.get(id);
            let is_input = match tensor.scope {
                Scope::Run => true,
                Scope::Segment(_) => tensor.io == Io::Input,
                Scope::Phase(_) | Scope::Host => false,
            };
            if !is_input {
                return refusal(id, "which is not an input");
            }
        }
        let steps = plan.schedule.segments.iter().flat_map(|segment| &segment.steps);
        for operand in steps.flat_map(|step| step.operands()) {
            let (root, _) = tensors.root(operand.tensor);
            if operand.access != Access::Read && self.ids.contains_key(&root) {
                return refusal(root, "which a step writes");
            }
        }
        Ok(())
    }

    /// Where several ops read the same ids, the tightest bounds count.
    fn add_ids(&mut self, plan: &Plan, tensor: TensorId, with_none: bool, limit: u64) {
        let tensors = &plan.schedule.tensors;
        let ((root, start), bytes) = (tensors.root(tensor), tensors.bytes(tensor).get());
        let all = self.ids.entry(root).or_default();
        let start = start.get();
        match all.iter_mut().find(|ids| (ids.start, ids.bytes) == (start, bytes)) {
            Some(ids) => {
                ids.limit = ids.limit.min(limit);
                ids.with_none &= with_none;
            }
            None => all.push(Ids { with_none, limit, start, bytes }),
        }
    }

    fn add(&mut self, plan: &Plan, op: &Op, (rows, positions): &mut (u64, u64)) {
        let shape = |id: TensorId| plan.schedule.tensors.get(id).shape;
        let mut limit = |tensor, with_none, limit| self.add_ids(plan, tensor, with_none, limit);
        match op {
            Op::Embed(op) => {
                limit(op.tokens, false, shape(op.wte).rows());
                if let (PositionFrom::Step, Some(wpe)) = (op.position, op.wpe) {
                    let last = shape(wpe).rows() + 1 - shape(op.tokens).width();
                    *positions = (*positions).min(last);
                }
            }
            Op::EmbedBackward(op) => limit(op.tokens, false, shape(op.d_wte).rows()),
            Op::HeadTrain(op) => {
                limit(op.targets, true, op.vocabulary(&plan.schedule.tensors));
                let room =
                    (shape(op.row_loss).width() + 1).saturating_sub(shape(op.targets).rows());
                *rows = (*rows).min(room);
            }
            Op::HeadEval(op) => {
                limit(op.targets, true, op.vocabulary(&plan.schedule.tensors));
                let room =
                    (shape(op.row_loss).width() + 1).saturating_sub(shape(op.targets).rows());
                *rows = (*rows).min(room);
            }
            Op::AttentionDecode(op) => {
                let block = shape(op.cache).dims().get(3).copied().unwrap_or(0);
                *positions = (*positions).min(block);
            }
            Op::SelectPosition(op) => {
                let length = shape(op.x).dims().get(1).copied().unwrap_or(0);
                *positions = (*positions).min(length);
            }
            Op::LayerNorm(_)
            | Op::LayerNormBackward(_)
            | Op::Linear(_)
            | Op::LinearBackwardInput(_)
            | Op::LinearBackwardWeight(_)
            | Op::Attention(_)
            | Op::AttentionBackward(_)
            | Op::Gelu(_)
            | Op::GeluBackward(_)
            | Op::CacheStore(_)
            | Op::GradNorm(_)
            | Op::LossScaler(_)
            | Op::AdamW(_)
            | Op::Transfer(_)
            | Op::Clear(_)
            | Op::SquareSums(_)
            | Op::NormOfSums(_)
            | Op::ReduceScatter(_)
            | Op::AllGather(_) => {}
        }
    }

    /// Checks ids that the host writes, through whichever tensor. They must be written whole, or
    /// kernels would also read old, unchecked content.
    pub(crate) fn check_ids(
        &self,
        plan: &Plan,
        tensor: TensorId,
        offset: u64,
        content: &[u8],
    ) -> Result<(), BackendError> {
        let (root, start) = plan.schedule.tensors.root(tensor);
        let first = start.get().saturating_add(offset);
        let end = first.saturating_add(content.len() as u64);
        for ids in self.ids.get(&root).into_iter().flatten() {
            if ids.start >= end || first >= ids.start + ids.bytes {
                continue;
            }
            if ids.start < first || ids.start + ids.bytes > end {
                let (bytes, given) = (ids.bytes, content.len());
                let what = format!("ids are written whole: {bytes} bytes, not {given}");
                return Err(BackendError::HostAccess { what });
            }
            let from = (ids.start - first) as usize;
            ids.check(&content[from..from + ids.bytes as usize])?;
        }
        Ok(())
    }

    /// Checks the inputs of a run.
    pub(crate) fn check_step(
        &self,
        segment: SegmentId,
        inputs: &StepInputs,
    ) -> Result<(), BackendError> {
        let count = self.segments.len();
        let Some(&(rows, positions)) = self.segments.get(segment.index()) else {
            let (given, limit) = (segment.index() as i64, count as i64);
            return Err(BackendError::BadInput { what: "segment", given, limit });
        };
        below("first_row", inputs.first_row, rows)?;
        below("position", inputs.position, positions)
    }
}

impl Ids {
    fn check(&self, content: &[u8]) -> Result<(), BackendError> {
        let lowest = if self.with_none { -1 } else { 0 };
        let limit = i64::try_from(self.limit).unwrap_or(i64::MAX);
        for id in content.as_chunks::<4>().0 {
            let given = i64::from(i32::from_le_bytes(*id));
            if given < lowest || given >= limit {
                let what = if self.with_none { "target" } else { "token id" };
                return Err(BackendError::BadInput { what, given, limit });
            }
        }
        Ok(())
    }
}

fn below(what: &'static str, given: u64, limit: u64) -> Result<(), BackendError> {
    if given < limit {
        return Ok(());
    }
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    Err(BackendError::BadInput { what, given: signed(given), limit: signed(limit) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::ops::Embed;
    use plan::{Bytes, Dtype, Phase, Role, ScheduleBuilder, Shape, Tensor};

    fn shape(dims: &[u64]) -> Shape {
        Shape::new(dims).unwrap()
    }

    /// The same tokens in tables of these vocabularies, the tokens a view or not.
    fn plan_of(scope: Scope, vocabularies: &[u64], viewed: bool) -> (Plan, TensorId) {
        let mut builder = ScheduleBuilder::new();
        let root = Tensor {
            name: "tokens".to_string(),
            dtype: Dtype::I32,
            shape: shape(&[2, 4]),
            role: Role::Tokens,
            scope,
            layer: None,
            io: Io::Device,
            view: None,
        };
        let root = builder.tensor(root).unwrap();
        let half = Bytes::new(16).unwrap();
        let view = builder.window("second", shape(&[1, 4]), root, half, None).unwrap();
        let tokens = if viewed { view } else { root };
        let rows = if viewed { 1 } else { 2 };
        let table = |builder: &mut ScheduleBuilder, rows: u64| {
            builder.run_tensor("wte", Dtype::F32, shape(&[rows, 8]), Role::Weight).unwrap()
        };
        let tables: Vec<_> = vocabularies.iter().map(|&rows| table(&mut builder, rows)).collect();
        let mut segment = builder.segment("train", Phase::Train);
        for wte in tables {
            let out = segment.local("out", Dtype::F32, shape(&[rows, 4, 8]), Role::Activation);
            let (out, position) = (out.unwrap(), PositionFrom::Zero);
            let op = Embed { tokens, wte, wpe: None, out, position, dropout: None };
            segment.push(op).unwrap();
        }
        segment.finish();
        (Plan::new(builder.finish()).unwrap(), root)
    }

    fn bytes(ids: &[i32]) -> Vec<u8> {
        ids.iter().flat_map(|id| id.to_le_bytes()).collect()
    }

    #[test]
    fn the_smallest_table_bounds_the_ids_that_all_share() {
        for vocabularies in [[3, 9], [9, 3]] {
            let (plan, tokens) = plan_of(Scope::Run, &vocabularies, false);
            let limits = InputLimits::new(&plan).unwrap();
            let check = |ids: &[i32]| limits.check_ids(&plan, tokens, 0, &bytes(ids));
            assert_eq!(check(&[2, 0, 1, 2, 0, 0, 0, 2]), Ok(()));
            let error = check(&[2, 0, 1, 2, 0, 0, 0, 3]);
            let wanted = BackendError::BadInput { what: "token id", given: 3, limit: 3 };
            assert_eq!(error, Err(wanted), "{vocabularies:?}");
        }
    }

    /// The tokens are the second half of a tensor that the host also knows whole.
    #[test]
    fn ids_are_checked_through_whichever_tensor_they_are_written() {
        let (plan, root) = plan_of(Scope::Run, &[5], true);
        let limits = InputLimits::new(&plan).unwrap();
        let check = |offset, ids: &[i32]| limits.check_ids(&plan, root, offset, &bytes(ids));
        assert_eq!(check(0, &[7, 7, 7, 7, 4, 4, 4, 4]), Ok(()));
        assert_eq!(check(0, &[7, 7, 7, 7]), Ok(()), "beside them");
        assert!(check(0, &[0, 0, 0, 0, 0, 0, 0, 5]).is_err());
        assert!(check(16, &[0, 0, 5, 0]).is_err());
        assert!(check(16, &[0, 0]).is_err(), "a part of them");
    }

    #[test]
    fn ids_that_the_host_does_not_write_are_refused() {
        for scope in [Scope::Phase(Phase::Train), Scope::Host] {
            let (plan, _) = plan_of(scope, &[5], false);
            let error = InputLimits::new(&plan).map(|_| ()).unwrap_err().to_string();
            assert!(error.ends_with("ids in tokens, which is not an input"), "{error}");
        }
    }
}
