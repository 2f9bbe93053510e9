//! When each tensor of a segment is alive: from its first access to its last. Inputs are alive from
//! the first step, outputs to the last. Accesses through a view count for the tensor that owns the
//! bytes.
//!
//! First and last mean the order of the list of steps. Steps of two lanes can run at the same time
//! whatever their positions in the list; `Extent` in `lanes.rs` says which tensors may share bytes.

use crate::bytes::Bytes;
use crate::schedule::{Schedule, SegmentId};
use crate::tensor::{Io, Scope, TensorId};
use std::collections::BTreeMap;

/// The first and last step of the list, both inclusive, at which no other tensor may use a tensor's
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Live {
    /// Index of the first step.
    pub first: usize,
    /// Index of the last step.
    pub last: usize,
}

impl Live {
    /// Whether there is a step at which both tensors are alive.
    pub fn meets(&self, other: &Live) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Whether the tensor is alive at a step.
    pub fn contains(&self, step: usize) -> bool {
        (self.first..=self.last).contains(&step)
    }
}

/// Lifetimes of the tensors that belong to this segment alone. Views count for the tensor that owns
/// the bytes.
pub fn lifetimes(schedule: &Schedule, segment: SegmentId) -> BTreeMap<TensorId, Live> {
    let steps = &schedule.segment(segment).steps;
    let end = steps.len().saturating_sub(1);
    let touched = steps.iter().map(|step| {
        let roots =
            step.operands().into_iter().map(|operand| schedule.tensors.root(operand.tensor).0);
        roots.filter(|&root| !schedule.is_held(root, segment)).collect::<Vec<_>>()
    });
    let mut lives = first_to_last(touched);
    for id in schedule.tensors.ids() {
        let tensor = schedule.tensors.get(id);
        if tensor.scope != Scope::Segment(segment) {
            continue;
        }
        let (root, _) = schedule.tensors.root(id);
        match tensor.io {
            Io::Device => {}
            Io::Input => lives.entry(root).or_insert(Live { first: 0, last: 0 }).first = 0,
            Io::Output => lives.entry(root).or_insert(Live { first: end, last: end }).last = end,
        }
    }
    lives
}

/// For each tensor, the first and the last step that touches it, whichever steps these are.
pub fn first_to_last(touched: impl Iterator<Item = Vec<TensorId>>) -> BTreeMap<TensorId, Live> {
    let mut lives: BTreeMap<TensorId, Live> = BTreeMap::new();
    for (index, tensors) in touched.enumerate() {
        for tensor in tensors {
            let live = lives.entry(tensor).or_insert(Live { first: index, last: index });
            live.last = index;
        }
    }
    lives
}

/// Aligned bytes alive at each step, without the tensors that outlive the segment. `None` when a
/// sum does not fit.
pub fn live_bytes(
    schedule: &Schedule,
    segment: SegmentId,
    lives: &BTreeMap<TensorId, Live>,
) -> Option<Vec<Bytes>> {
    let steps = schedule.segment(segment).steps.len();
    sums(lives, steps, |tensor| schedule.tensors.bytes(tensor).aligned())
}

/// Bytes alive at each of `steps` steps, given the size and the lifetime of each tensor.
pub fn sums(
    lives: &BTreeMap<TensorId, Live>,
    steps: usize,
    size: impl Fn(TensorId) -> Option<Bytes>,
) -> Option<Vec<Bytes>> {
    let steps = steps.max(1);
    let mut born = vec![Bytes::ZERO; steps];
    let mut dead = vec![Bytes::ZERO; steps + 1];
    for (&tensor, live) in lives {
        let size = size(tensor)?;
        born[live.first] = born[live.first].plus(size)?;
        dead[live.last + 1] = dead[live.last + 1].plus(size)?;
    }
    let mut now = Bytes::ZERO;
    (0..steps)
        .map(|step| {
            now = now.plus(born[step])?.minus(dead[step])?;
            Some(now)
        })
        .collect()
}
