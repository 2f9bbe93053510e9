//! Values that the kernels do not check: ids below the vocabulary, positions and rows inside their
//! tensors. The host checks each of them before it reaches the device.

use plan::ops::{Op, PositionFrom};
use plan::{BackendError, Plan, SegmentId, StepInputs, TensorId};
use std::collections::BTreeMap;

/// More sequences than any iteration has. It keeps rows times heads times positions far below 2^64.
const MOST_ROWS: u64 = 1 << 24;

/// The limits of a plan's inputs.
pub(crate) struct InputLimits {
    /// By tensor of ids.
    ids: BTreeMap<TensorId, Ids>,
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
    /// Bytes of the tensor.
    bytes: u64,
}

impl InputLimits {
    pub(crate) fn new(plan: &Plan) -> InputLimits {
        let mut limits = InputLimits { ids: BTreeMap::new(), segments: Vec::new() };
        for segment in plan.schedule.segment_ids() {
            let mut bounds = (MOST_ROWS, u64::MAX);
            for step in &plan.schedule.segment(segment).steps {
                limits.add(plan, &step.op, &mut bounds);
            }
            limits.segments.push(bounds);
        }
        limits
    }

    fn add(&mut self, plan: &Plan, op: &Op, (rows, positions): &mut (u64, u64)) {
        let shape = |id: TensorId| plan.schedule.tensors.get(id).shape;
        let mut limit = |tensor: TensorId, with_none: bool, limit: u64| {
            let bytes = plan.schedule.tensors.bytes(tensor).get();
            self.ids.insert(tensor, Ids { with_none, limit, bytes });
        };
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
                limit(op.targets, true, shape(op.w).rows());
                let room =
                    (shape(op.row_loss).width() + 1).saturating_sub(shape(op.targets).rows());
                *rows = (*rows).min(room);
            }
            Op::HeadEval(op) => {
                limit(op.targets, true, shape(op.w).rows());
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
            | Op::Transfer(_) => {}
        }
    }

    /// Checks ids that the host writes. A tensor must be written whole, or kernels would also read
    /// old, unchecked content.
    pub(crate) fn check_ids(
        &self,
        tensor: TensorId,
        offset: u64,
        content: &[u8],
    ) -> Result<(), BackendError> {
        let Some(&Ids { with_none, limit, bytes }) = self.ids.get(&tensor) else {
            return Ok(());
        };
        if offset != 0 || content.len() as u64 != bytes {
            let what = format!("ids are written whole: {bytes} bytes, not {}", content.len());
            return Err(BackendError::HostAccess { what });
        }
        let lowest = if with_none { -1 } else { 0 };
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        for id in content.as_chunks::<4>().0 {
            let given = i64::from(i32::from_le_bytes(*id));
            if given < lowest || given >= limit {
                let what = if with_none { "target" } else { "token id" };
                return Err(BackendError::BadInput { what, given, limit });
            }
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

fn below(what: &'static str, given: u64, limit: u64) -> Result<(), BackendError> {
    if given < limit {
        return Ok(());
    }
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    Err(BackendError::BadInput { what, given: signed(given), limit: signed(limit) })
}
