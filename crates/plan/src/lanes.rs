//! Lanes: queues of a device that run concurrently. Steps of one lane run in order, and a step
//! waits for the steps of other lanes that it names. This module derives the waits from operands,
//! and decides from the resulting order which tensors may share bytes.

#[cfg(test)]
use crate::lifetimes::Live;
use crate::ops::Access;
use crate::ranges::Ranges;
use crate::schedule::{Schedule, SegmentId, Step};
use crate::tensor::{Io, Scope, TensorId, Tensors};
use std::collections::BTreeMap;

macro_rules! lanes {
    ($($(#[$doc:meta])* $lane:ident = $name:literal),+ $(,)?) => {
        /// A queue of the device. A segment starts when the previous one has ended on all lanes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Lane { $($(#[$doc])* $lane),+ }

        impl Lane {
            /// All lanes.
            pub const ALL: [Lane; [$($name),+].len()] = [$(Lane::$lane),+];

            /// The name in listings.
            pub const fn name(self) -> &'static str {
                match self { $(Lane::$lane => $name),+ }
            }
        }
    };
}

lanes! {
    /// Kernels.
    Compute = "compute",
    /// Copies from the host's memory to the device's.
    Upload = "upload",
    /// Copies from the device's memory to the host's.
    Download = "download",
    /// What travels between ranks.
    Communication = "communication",
}

impl Lane {
    /// Whether it carries copies between the memories of device and host.
    pub const fn is_copy(self) -> bool {
        matches!(self, Lane::Upload | Lane::Download)
    }

    pub(crate) const COUNT: usize = Lane::ALL.len();

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// By lane, an index of the segment's steps: all steps of that lane before the index have ended.
pub(crate) type Clock = [usize; Lane::COUNT];

fn later(a: Clock, b: Clock) -> Clock {
    std::array::from_fn(|lane| a[lane].max(b[lane]))
}

/// By lane, one past the latest step that touched a byte.
#[derive(Clone, Copy, Debug, Default)]
struct Touched {
    written: Clock,
    /// Written or read.
    touched: Clock,
}

/// Gives every step the waits that its operands and joins require, without those that the order of
/// the lane or another wait already implies. It replaces the waits that were there.
pub(crate) fn derive_waits(tensors: &Tensors, steps: &mut [Step]) {
    if steps.iter().all(|step| step.lane == Lane::Compute) {
        return;
    }
    let lanes: Vec<usize> = steps.iter().map(|step| step.lane.index()).collect();
    let mut touched = BTreeMap::new();
    let mut latest = [[0; Lane::COUNT]; Lane::COUNT];
    let mut ended: Vec<Clock> = Vec::with_capacity(steps.len());
    for (index, step) in steps.iter_mut().enumerate() {
        let mut needed = touch(tensors, &mut touched, step, index + 1);
        step.waits.clear();
        for &join in &step.joins {
            needed[lanes[join]] = needed[lanes[join]].max(join + 1);
        }
        let mut clock = latest[lanes[index]];
        // From the latest to the earliest: only a later step can imply an earlier one.
        let mut others: Vec<usize> = (0..Lane::COUNT).filter(|&l| l != lanes[index]).collect();
        others.sort_unstable_by_key(|&lane| std::cmp::Reverse(needed[lane]));
        for lane in others {
            if needed[lane] > clock[lane] {
                step.waits.insert(0, needed[lane] - 1);
                clock = later(clock, ended[needed[lane] - 1]);
            }
        }
        clock[lanes[index]] = index + 1;
        latest[lanes[index]] = clock;
        ended.push(clock);
    }
}

/// Records what a step touches. Returns, by lane, one past the last step that must end before it.
fn touch(
    tensors: &Tensors,
    touched: &mut BTreeMap<TensorId, Ranges<Touched>>,
    step: &Step,
    behind: usize,
) -> Clock {
    let (mut needed, lane) = ([0; Lane::COUNT], step.lane.index());
    for operand in step.operands() {
        let (root, offset) = tensors.root(operand.tensor);
        let start = offset.get();
        let range = start..start.saturating_add(tensors.bytes(operand.tensor).get());
        touched.entry(root).or_default().change(range, |bytes| {
            let reads = operand.access == Access::Read;
            needed = later(needed, if reads { bytes.written } else { bytes.touched });
            bytes.touched[lane] = behind;
            if !reads {
                bytes.written[lane] = behind;
            }
        });
    }
    needed
}

/// For each step, what has certainly ended when it begins.
fn clocks(steps: &[Step]) -> Vec<Clock> {
    let mut latest = [[0; Lane::COUNT]; Lane::COUNT];
    let mut ended: Vec<Clock> = Vec::with_capacity(steps.len());
    let mut begun = Vec::with_capacity(steps.len());
    for (index, step) in steps.iter().enumerate() {
        let lane = step.lane.index();
        let waits = step.waits.iter().filter_map(|&wait| ended.get(wait));
        let mut clock = waits.fold(latest[lane], |clock, &other| later(clock, other));
        begun.push(clock);
        clock[lane] = index + 1;
        latest[lane] = clock;
        ended.push(clock);
    }
    begun
}

/// When a tensor is in use, on all lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// What has ended when its first use begins, on whichever lane that is.
    starts: Clock,
    /// By lane, one past its last use.
    ends: Clock,
}

impl Extent {
    /// The extent of a tensor in a segment with one lane.
    #[cfg(test)]
    pub(crate) fn on_one_lane(live: Live) -> Extent {
        let (mut starts, mut ends) = ([0; Lane::COUNT], [0; Lane::COUNT]);
        (starts[0], ends[0]) = (live.first, live.last + 1);
        Extent { starts, ends }
    }

    /// Whether every use of this tensor has ended before any use of the other begins. Only then may
    /// the other reuse its bytes.
    pub(crate) fn is_before(&self, other: &Extent) -> bool {
        (0..Lane::COUNT).all(|lane| self.ends[lane] <= other.starts[lane])
    }

    /// Whether the tensors must not share bytes.
    pub(crate) fn meets(&self, other: &Extent) -> bool {
        !self.is_before(other) && !other.is_before(self)
    }
}

/// The order of one segment's steps.
pub(crate) struct Order {
    clocks: Vec<Clock>,
    /// By lane, the indexes of its steps.
    lanes: [Vec<usize>; Lane::COUNT],
}

impl Order {
    pub(crate) fn new(steps: &[Step]) -> Order {
        let of = |lane: Lane| (0..steps.len()).filter(|&i| steps[i].lane == lane).collect();
        Order { clocks: clocks(steps), lanes: Lane::ALL.map(of) }
    }

    /// The last step that may run before a tensor's last use has ended. A tensor whose first use
    /// comes later may reuse the bytes.
    pub(crate) fn reach(&self, extent: &Extent) -> usize {
        let waits_not = |&step: &usize| {
            (0..Lane::COUNT).any(|lane| extent.ends[lane] > self.clocks[step][lane])
        };
        let last_of = |steps: &Vec<usize>| {
            let count = steps.partition_point(waits_not);
            count.checked_sub(1).map(|last| steps[last])
        };
        self.lanes.iter().filter_map(last_of).max().unwrap_or(0)
    }

    /// When each tensor that belongs to a segment alone is in use. Views count for the tensor that
    /// owns the bytes. The host uses inputs before all steps and outputs after all of them.
    pub(crate) fn extents(
        &self,
        schedule: &Schedule,
        segment: SegmentId,
    ) -> BTreeMap<TensorId, Extent> {
        let steps = &schedule.segment(segment).steps;
        let mut extents: BTreeMap<TensorId, Extent> = BTreeMap::new();
        let mut use_at = |root: TensorId, step: usize| {
            let clock = self.clocks.get(step).copied().unwrap_or_default();
            let lane = steps.get(step).map_or(Lane::Compute, |step| step.lane).index();
            let new = Extent { starts: clock, ends: [0; Lane::COUNT] };
            let extent = extents.entry(root).or_insert(new);
            extent.starts = std::array::from_fn(|lane| extent.starts[lane].min(clock[lane]));
            extent.ends[lane] = extent.ends[lane].max(step + 1);
        };
        for (index, step) in steps.iter().enumerate() {
            for operand in step.operands() {
                let (root, _) = schedule.tensors.root(operand.tensor);
                if !schedule.is_held(root, segment) {
                    use_at(root, index);
                }
            }
        }
        let mut by_host = Vec::new();
        for id in schedule.tensors.ids() {
            let tensor = schedule.tensors.get(id);
            let (root, _) = schedule.tensors.root(id);
            match (tensor.scope == Scope::Segment(segment), tensor.io) {
                (true, Io::Input) => {
                    use_at(root, 0);
                    by_host.push((root, Io::Input));
                }
                (true, Io::Output) => {
                    use_at(root, steps.len().saturating_sub(1));
                    by_host.push((root, Io::Output));
                }
                (true, Io::Device) | (false, _) => {}
            }
        }
        for (root, io) in by_host {
            if let Some(extent) = extents.get_mut(&root) {
                match io {
                    Io::Input => extent.starts = [0; Lane::COUNT],
                    Io::Output => extent.ends = [usize::MAX; Lane::COUNT],
                    Io::Device => {}
                }
            }
        }
        extents
    }
}
