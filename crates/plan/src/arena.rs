//! Placement: turns lifetimes into offsets, in one arena for the whole run.
//!
//! Run-wide tensors are at the bottom of the arena, tensors of a phase above them, and the tensors
//! of each segment share the rest. Training allocates almost last-in-first-out. So placement stacks
//! the tensors that are alive at the fullest step in order of their first use and fits the others
//! around them, which mostly reaches the lower bound. Where it does not, a short deterministic
//! search closes the gap: it moves the topmost tensor to the front of the order and packs again.

use crate::bytes::Bytes;
use crate::error::PlanError;
use crate::lanes::{Extent, Order};
use crate::lifetimes::{Live, lifetimes, live_bytes};
use crate::schedule::{Schedule, SegmentId};
use crate::tensor::{Phase, Scope, TensorId};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Where a tensor is while one segment runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The tensor; never a view.
    pub tensor: TensorId,
    /// Where it starts in the arena, in bytes.
    pub offset: Bytes,
    /// Exact size. Padding follows up to the next aligned address.
    pub size: Bytes,
    /// The steps, in the order of the list, during which no other tensor may use these bytes. Lanes
    /// do not follow that order. Waits keep apart the steps of two lanes that use the same bytes.
    pub live: Live,
}

impl Placement {
    /// The first byte after it. Placement has checked that the sum does not overflow.
    pub fn end(&self) -> u64 {
        self.offset.get().saturating_add(self.size.get())
    }
}

/// All placements of one segment, and how much memory it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentLayout {
    /// Every tensor that the segment touches, and every tensor that must survive it.
    pub placements: Vec<Placement>,
    /// Aligned bytes alive at the fullest step, run-wide tensors included. No layout can need less.
    /// It is counted as if steps ran one by one. Lanes that overlap may need more.
    pub lower_bound: Bytes,
    /// End of the highest tensor.
    pub top: Bytes,
}

impl SegmentLayout {
    /// The place of a tensor that owns its bytes.
    pub fn placement(&self, tensor: TensorId) -> Option<&Placement> {
        self.placements.iter().find(|placement| placement.tensor == tensor)
    }
}

/// A schedule in which every tensor has an address.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The steps and tensors.
    pub schedule: Schedule,
    /// One layout for each segment.
    pub layouts: Vec<SegmentLayout>,
    /// Size of the arena: the highest `top` of all segments.
    pub arena_bytes: Bytes,
    /// Size of the host's arena. Offsets at and above `arena_bytes` lie in it.
    pub host_bytes: Bytes,
}

impl Plan {
    /// Places every tensor of the schedule.
    pub fn new(schedule: Schedule) -> Result<Plan, PlanError> {
        let held = place_held(&schedule)?;
        let mut layouts = schedule
            .segment_ids()
            .map(|segment| place_segment(&schedule, segment, &held))
            .collect::<Result<Vec<_>, _>>()?;
        let tops = layouts.iter().map(|layout| layout.top);
        let arena_bytes = tops.chain([held.run_top]).max().unwrap_or(Bytes::ZERO);
        place_on_host(&schedule, &held, arena_bytes, &mut layouts)?;
        Ok(Plan { schedule, layouts, arena_bytes, host_bytes: held.host_top })
    }

    /// Whether a tensor is in the host's memory.
    pub fn is_on_host(&self, tensor: TensorId) -> bool {
        self.schedule.tensors.get(tensor).scope == Scope::Host
    }

    /// The tensors that own the bytes of host memory. Others are views of them.
    pub fn on_host(&self) -> impl Iterator<Item = TensorId> + '_ {
        let tensors = &self.schedule.tensors;
        tensors.ids().filter(|&id| self.is_on_host(id) && tensors.get(id).view.is_none())
    }

    /// The largest lower bound of all segments: no arena can be smaller.
    pub fn lower_bound(&self) -> Bytes {
        self.layouts.iter().map(|layout| layout.lower_bound).max().unwrap_or(Bytes::ZERO)
    }

    /// The layout of a segment. Ids come from the plan's own schedule.
    pub fn layout(&self, segment: SegmentId) -> &SegmentLayout {
        &self.layouts[segment.index()]
    }
}

/// Offsets of the tensors that outlive segments, and where the free space above them starts.
struct Held {
    offsets: BTreeMap<TensorId, Bytes>,
    run_top: Bytes,
    phase_tops: BTreeMap<Phase, Bytes>,
    /// Offsets in the host's arena, from its own start.
    host: BTreeMap<TensorId, Bytes>,
    host_top: Bytes,
}

fn too_large(schedule: &Schedule, tensor: TensorId) -> PlanError {
    PlanError::ArenaTooLarge { at: schedule.tensors.get(tensor).name.clone() }
}

/// Stacks them in the order of the table: run-wide tensors first, then phase by phase.
fn place_held(schedule: &Schedule) -> Result<Held, PlanError> {
    let owners: Vec<TensorId> =
        schedule.tensors.ids().filter(|&id| schedule.tensors.get(id).view.is_none()).collect();
    let mut offsets = BTreeMap::new();
    let mut host = BTreeMap::new();
    let stack = |wanted: Scope, base: Bytes, offsets: &mut BTreeMap<TensorId, Bytes>| {
        let mut top = base;
        for &id in owners.iter().filter(|&&id| schedule.tensors.get(id).scope == wanted) {
            offsets.insert(id, top);
            let size = schedule.tensors.bytes(id).aligned();
            let next = size.and_then(|size| top.plus(size));
            top = next.ok_or_else(|| too_large(schedule, id))?;
        }
        Ok::<Bytes, PlanError>(top)
    };
    let run_top = stack(Scope::Run, Bytes::ZERO, &mut offsets)?;
    let host_top = stack(Scope::Host, Bytes::ZERO, &mut host)?;
    let mut phase_tops = BTreeMap::new();
    for phase in [Phase::Train, Phase::Eval, Phase::Generate] {
        phase_tops.insert(phase, stack(Scope::Phase(phase), run_top, &mut offsets)?);
    }
    Ok(Held { offsets, run_top, phase_tops, host, host_top })
}

/// Placements in the host's memory, which follow the arena's offsets and are the same in every
/// segment.
fn place_on_host(
    schedule: &Schedule,
    held: &Held,
    arena_bytes: Bytes,
    layouts: &mut [SegmentLayout],
) -> Result<(), PlanError> {
    for (layout, segment) in layouts.iter_mut().zip(schedule.segment_ids()) {
        let last = schedule.segment(segment).steps.len().saturating_sub(1);
        for (&tensor, &offset) in &held.host {
            let offset = arena_bytes.plus(offset).ok_or_else(|| too_large(schedule, tensor))?;
            let (size, live) = (schedule.tensors.bytes(tensor), Live { first: 0, last });
            layout.placements.push(Placement { tensor, offset, size, live });
        }
    }
    Ok(())
}

fn place_segment(
    schedule: &Schedule,
    segment: SegmentId,
    held: &Held,
) -> Result<SegmentLayout, PlanError> {
    let steps = schedule.segment(segment).steps.len();
    let whole = Live { first: 0, last: steps.saturating_sub(1) };
    let phase = schedule.segment(segment).phase;
    let base = held.phase_tops.get(&phase).copied().unwrap_or(held.run_top);
    let mut placements: Vec<Placement> = held
        .offsets
        .iter()
        .filter(|&(&tensor, _)| schedule.is_held(tensor, segment))
        .map(|(&tensor, &offset)| {
            let size = schedule.tensors.bytes(tensor);
            Placement { tensor, offset, size, live: whole }
        })
        .collect();
    let lives = lifetimes(schedule, segment);
    let overflow = || PlanError::ArenaTooLarge { at: schedule.segment(segment).name.clone() };
    let alive = live_bytes(schedule, segment, &lives).ok_or_else(overflow)?;
    let peak = alive.iter().copied().max().unwrap_or(Bytes::ZERO);
    let fullest = alive.iter().position(|&bytes| bytes == peak).unwrap_or(0);
    let order = Order::new(&schedule.segment(segment).steps);
    let extents = order.extents(schedule, segment);
    let mut items = Vec::with_capacity(lives.len());
    for ((&tensor, &live), (_, &extent)) in lives.iter().zip(&extents) {
        let size = schedule.tensors.bytes(tensor).aligned().ok_or_else(overflow)?;
        let last = order.reach(&extent).max(live.last);
        items.push(Item { size: size.get(), live, extent, near: Live { last, ..live } });
    }
    let (offsets, height) = pack(&items, fullest, peak.get()).ok_or_else(overflow)?;
    for ((&tensor, &live), offset) in lives.iter().zip(offsets) {
        let offset = Bytes::new(offset).and_then(|offset| base.plus(offset));
        let (offset, size) = (offset.ok_or_else(overflow)?, schedule.tensors.bytes(tensor));
        placements.push(Placement { tensor, offset, size, live });
    }
    let top = Bytes::new(height).and_then(|height| base.plus(height)).ok_or_else(overflow)?;
    let lower_bound = base.plus(peak).ok_or_else(overflow)?;
    Ok(SegmentLayout { placements, lower_bound, top })
}

/// A tensor to place: its size and when it needs its bytes.
#[derive(Clone, Copy, Debug)]
struct Item {
    size: u64,
    live: Live,
    /// Its use on all lanes, which decides what may share its bytes.
    extent: Extent,
    /// The range of steps outside which no other tensor can conflict with it.
    near: Live,
}

/// Packings that the search tries from a starting order that does not reach the lower bound.
const SEARCH_ROUNDS: usize = 40;

/// It leaves the order after this many that brought nothing.
const FRUITLESS_ROUNDS: usize = 10;

/// Offsets of all items and the height of the arena, or `None` when that does not fit 64 bits.
/// `fullest` is the step at which most bytes are alive and `bound` is their number: the search
/// stops once it reaches the bound.
fn pack(items: &[Item], fullest: usize, bound: u64) -> Option<(Vec<u64>, u64)> {
    let mut best: Option<(Vec<u64>, u64)> = None;
    for mut order in starting_orders(items, fullest) {
        let mut fruitless = 0;
        for _ in 0..SEARCH_ROUNDS {
            let (offsets, height) = pack_in_order(items, &order)?;
            fruitless += 1;
            if best.as_ref().is_none_or(|(_, least)| height < *least) {
                best = Some((offsets.clone(), height));
                fruitless = 0;
            }
            if height <= bound {
                return best;
            }
            let is_stuck = fruitless == FRUITLESS_ROUNDS;
            if is_stuck || !promote_topmost(items, &offsets, height, &mut order) {
                break;
            }
        }
    }
    best
}

/// Four orders to try: the items alive at the fullest step, oldest first, followed by the rest,
/// largest first; longest-lived first; largest first; largest area (size times lifetime) first.
fn starting_orders(items: &[Item], fullest: usize) -> [Vec<usize>; 4] {
    let length = |i: usize| (items[i].live.last - items[i].live.first) as u64;
    let mut stacked: Vec<usize> = (0..items.len()).collect();
    stacked.sort_by_key(|&i| {
        let Item { size, live, .. } = items[i];
        let rest = !live.contains(fullest);
        let born = if rest { 0 } else { live.first };
        (rest, born, std::cmp::Reverse(if rest { size } else { live.last as u64 }), i)
    });
    let sorted = |key: &dyn Fn(usize) -> u64| {
        let mut order: Vec<usize> = (0..items.len()).collect();
        order.sort_by_key(|&i| (std::cmp::Reverse(key(i)), i));
        order
    };
    [
        stacked,
        sorted(&|i| length(i)),
        sorted(&|i| items[i].size),
        sorted(&|i| items[i].size.saturating_mul(length(i) + 1)),
    ]
}

/// Gives each item, in this order, the lowest address where it conflicts with no item placed
/// before.
fn pack_in_order(items: &[Item], order: &[usize]) -> Option<(Vec<u64>, u64)> {
    let mut offsets = vec![0; items.len()];
    let mut placed = Placed::new(items);
    let mut height = 0;
    for &index in order {
        let item = items[index];
        let mut at = 0u64;
        for &other in placed.near(&item.near, &offsets).iter() {
            if !items[other].extent.meets(&item.extent) {
                continue;
            }
            if offsets[other] >= at.checked_add(item.size)? {
                break; // the gap below `other` is wide enough
            }
            at = at.max(offsets[other] + items[other].size);
        }
        offsets[index] = at;
        height = height.max(at.checked_add(item.size)?);
        placed.insert(index, &item.near, &offsets);
    }
    Some((offsets, height))
}

/// The steps of a segment are divided into spans: at most this many, of at least so many steps.
/// Short spans would make most items live in several.
const SPANS: usize = 512;
const SHORTEST_SPAN: usize = 24;

/// An item that lives in more spans than this is compared with all others.
const FEW_SPANS: usize = 4;

/// Items that have an offset, sorted by it. A segment may have a hundred thousand items, nearly all
/// short-lived (windows of offloaded state), so each span of steps also has its own list.
struct Placed {
    all: Vec<usize>,
    spans: Vec<Vec<usize>>,
    /// Steps of a span.
    width: usize,
}

impl Placed {
    fn new(items: &[Item]) -> Placed {
        let steps = items.iter().map(|item| item.near.last + 1).max().unwrap_or(1);
        let width = steps.div_ceil(SPANS).max(SHORTEST_SPAN);
        Placed { all: Vec::with_capacity(items.len()), spans: vec![Vec::new(); SPANS], width }
    }

    fn spans_of(&self, live: &Live) -> std::ops::RangeInclusive<usize> {
        live.first / self.width..=live.last / self.width
    }

    /// All placed items that may be alive together with `live`, sorted by offset.
    fn near(&self, live: &Live, offsets: &[u64]) -> Cow<'_, [usize]> {
        let spans = &self.spans[self.spans_of(live)];
        match spans {
            [one] => Cow::Borrowed(one),
            few if few.len() <= FEW_SPANS => {
                let mut near = few.concat();
                near.sort_unstable_by_key(|&index| (offsets[index], index));
                near.dedup();
                Cow::Owned(near)
            }
            _ => Cow::Borrowed(&self.all),
        }
    }

    fn insert(&mut self, index: usize, live: &Live, offsets: &[u64]) {
        let spans = self.spans_of(live);
        for list in self.spans[spans].iter_mut().chain([&mut self.all]) {
            let key = |&other: &usize| (offsets[other], other) < (offsets[index], index);
            list.insert(list.partition_point(key), index);
        }
    }
}

/// Moves the item that ends at the top to the front of the order. Returns false when it is there
/// already.
fn promote_topmost(items: &[Item], offsets: &[u64], height: u64, order: &mut Vec<usize>) -> bool {
    let topmost = order.iter().position(|&i| offsets[i] + items[i].size == height);
    match topmost {
        None | Some(0) => false,
        Some(position) => {
            let index = order.remove(position);
            order.insert(0, index);
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(size: u64, first: usize, last: usize) -> Item {
        let live = Live { first, last };
        Item { size, live, extent: Extent::on_one_lane(live), near: live }
    }

    #[test]
    fn packs_to_the_bound() {
        let cases: [(&[Item], usize, u64); 5] = [
            (&[], 0, 0),
            (&[item(256, 0, 1), item(512, 2, 3)], 2, 512),
            // Nested lifetimes, as those of saved activations.
            (&[item(256, 0, 9), item(256, 1, 8), item(256, 2, 7), item(512, 9, 9)], 2, 768),
            // A tensor that must be below another one that was placed before it.
            (&[item(1024, 0, 2), item(256, 1, 5), item(1024, 3, 6)], 1, 1280),
            // Only stacking the tensors alive at the fullest step finds this height.
            (
                &[
                    item(512, 5, 5),
                    item(768, 1, 6),
                    item(1024, 0, 3),
                    item(768, 5, 5),
                    item(768, 2, 5),
                ],
                5,
                2816,
            ),
        ];
        for (items, fullest, bound) in cases {
            assert_eq!(pack(items, fullest, bound).unwrap().1, bound, "{items:?}");
        }
    }

    #[test]
    fn overflow_is_refused() {
        assert!(pack(&[item(u64::MAX, 0, 0), item(256, 0, 0)], 0, 0).is_none());
    }
}
