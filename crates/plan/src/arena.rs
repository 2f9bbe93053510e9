//! Placement: lifetimes in, offsets out, in one arena for the whole run.
//!
//! Run-wide tensors stand at the bottom, those of a phase above them, and each segment's own
//! tensors share the rest. Training is almost last-in-first-out, so stacking what is alive at the
//! fullest step in order of birth and fitting the rest around it is mostly the lower bound; a
//! short deterministic search that promotes whatever ended up on top closes the gap where not.

use crate::bytes::Bytes;
use crate::error::PlanError;
use crate::lanes::{Extent, Order};
use crate::lifetimes::{Live, lifetimes, live_bytes};
use crate::schedule::{Schedule, SegmentId};
use crate::tensor::{Phase, Scope, TensorId};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A tensor's place while one segment runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The tensor; never a view.
    pub tensor: TensorId,
    /// Where it starts in the arena.
    pub offset: Bytes,
    /// Exact size; what follows up to the next aligned address is padding.
    pub size: Bytes,
    /// Steps during which the bytes are its own.
    pub live: Live,
}

impl Placement {
    /// First byte after it. Placement has checked that it exists.
    pub fn end(&self) -> u64 {
        self.offset.get().saturating_add(self.size.get())
    }
}

/// All places of one segment, and its measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentLayout {
    /// Every tensor that the segment touches and every one that must survive it.
    pub placements: Vec<Placement>,
    /// Aligned bytes alive at the fullest step, run-wide tensors included: no layout needs less.
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

/// A schedule with an address for everything.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What is executed.
    pub schedule: Schedule,
    /// One layout for each segment.
    pub layouts: Vec<SegmentLayout>,
    /// Size of the arena: the highest top of all segments.
    pub arena_bytes: Bytes,
    /// Size of the host's arena. Offsets from `arena_bytes` on lie in it.
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

    /// Whether a tensor's bytes are the host's.
    pub fn is_on_host(&self, tensor: TensorId) -> bool {
        self.schedule.tensors.get(tensor).scope == Scope::Host
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

/// Tensors that outlive segments, with their offsets, and where the free space above them starts.
struct Held {
    offsets: BTreeMap<TensorId, Bytes>,
    run_top: Bytes,
    phase_tops: BTreeMap<Phase, Bytes>,
    /// In the host's arena, from its own start.
    host: BTreeMap<TensorId, Bytes>,
    host_top: Bytes,
}

fn too_large(schedule: &Schedule, tensor: TensorId) -> PlanError {
    PlanError::ArenaTooLarge { at: schedule.tensors.get(tensor).name.clone() }
}

/// One above the other, in the order of the table: run-wide first, then phase by phase.
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

/// What the host keeps, behind the arena, in every segment.
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

/// A size and the time it is needed.
#[derive(Clone, Copy, Debug)]
struct Item {
    size: u64,
    live: Live,
    /// The same on all lanes: it decides who may have whose bytes.
    extent: Extent,
    /// Nobody outside these steps meets it.
    near: Live,
}

/// Rounds of the search when the first orders miss the bound; each is one more packing.
const SEARCH_ROUNDS: usize = 40;

/// Offsets for all items and the height, or `None` when it does not fit 64 bits. `fullest` is the
/// step at which most is alive, `bound` how much that is: the search ends when it is reached.
fn pack(items: &[Item], fullest: usize, bound: u64) -> Option<(Vec<u64>, u64)> {
    let mut best: Option<(Vec<u64>, u64)> = None;
    for mut order in starting_orders(items, fullest) {
        for _ in 0..SEARCH_ROUNDS {
            let (offsets, height) = pack_in_order(items, &order)?;
            let improved = best.as_ref().is_none_or(|(_, least)| height < *least);
            if improved {
                best = Some((offsets.clone(), height));
            }
            if height <= bound {
                return best;
            }
            if !promote_topmost(items, &offsets, height, &mut order) {
                break;
            }
        }
    }
    best
}

/// What is alive at the fullest step, oldest first, then the rest, largest first; longest-lived
/// first; largest first; largest area first.
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

/// Gives each item, in this order, the lowest address where it meets nothing placed before it.
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

/// Parts that the time of a segment is cut into.
const SPANS: usize = 512;

/// An item that lives in more parts than this is compared with all others.
const FEW_SPANS: usize = 4;

/// Items that have their place, by offset. A segment may have a hundred thousand of them, nearly
/// all short-lived (windows of offloaded state); so each part of its time has its own list too.
struct Placed {
    all: Vec<usize>,
    spans: Vec<Vec<usize>>,
    /// Steps of a part.
    width: usize,
}

impl Placed {
    fn new(items: &[Item]) -> Placed {
        let steps = items.iter().map(|item| item.near.last + 1).max().unwrap_or(1);
        let width = steps.div_ceil(SPANS);
        Placed { all: Vec::with_capacity(items.len()), spans: vec![Vec::new(); SPANS], width }
    }

    fn spans_of(&self, live: &Live) -> std::ops::RangeInclusive<usize> {
        live.first / self.width..=live.last / self.width
    }

    /// All that may be alive together with this, by offset.
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

/// Moves the item that ends at the top to the front of the order. False when it is there already.
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
            // Nested, as saved activations are.
            (&[item(256, 0, 9), item(256, 1, 8), item(256, 2, 7), item(512, 9, 9)], 2, 768),
            // A tensor that must go below another placed before it.
            (&[item(1024, 0, 2), item(256, 1, 5), item(1024, 3, 6)], 1, 1280),
            // Only the stack of what is alive at the fullest step leads here.
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
