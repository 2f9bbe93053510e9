//! The bill: what the arena holds at the fullest step of each segment, by role and by tensor. And
//! the listing: the whole plan as text that a reviewer can diff.
//!
//! The bill counts steps one by one, in the order of the list. Where lanes overlap, more can be
//! alive at a time than at its fullest step. `top` is large enough for that.

use crate::arena::{Placement, Plan};
use crate::bytes::Bytes;
use crate::fnv::Fnv;
use crate::lanes::Lane;
use crate::ops::Access;
use crate::schedule::{Pass, Schedule, SegmentId, Step};
use crate::tensor::{Io, Phase, Role, Scope};
use std::fmt::Write as _;

/// One line of the bill: a tensor alive at the peak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BillTensor {
    /// Its name.
    pub name: String,
    /// What it is billed as.
    pub role: Role,
    /// Its size, alignment included.
    pub bytes: Bytes,
}

/// One segment's part of the bill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BillSegment {
    /// Segment name.
    pub name: String,
    /// Name of its phase.
    pub phase: &'static str,
    /// Index and op of the fullest step.
    pub peak_step: (usize, &'static str),
    /// Aligned bytes alive there.
    pub peak: Bytes,
    /// End of its highest tensor, that is, how much of the arena it uses.
    pub top: Bytes,
    /// The peak by role, in the order of [`Role::ALL`], zeros left out.
    pub by_role: Vec<(Role, Bytes)>,
    /// Everything alive at the peak, largest first.
    pub tensors: Vec<BillTensor>,
    /// Steps.
    pub steps: usize,
    /// Work of one run.
    pub flops: u64,
}

/// What a plan costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bill {
    /// Planned bytes, which are exactly the bytes allocated.
    pub arena_bytes: Bytes,
    /// No layout could be smaller than this.
    pub lower_bound: Bytes,
    /// Hash of the listing.
    pub hash: u64,
    /// One for each segment.
    pub segments: Vec<BillSegment>,
}

impl Bill {
    /// The bill of a plan.
    pub fn new(plan: &Plan) -> Bill {
        Bill {
            arena_bytes: plan.arena_bytes,
            lower_bound: plan.lower_bound(),
            hash: hash(plan),
            segments: plan.schedule.segment_ids().map(|id| bill_segment(plan, id)).collect(),
        }
    }
}

fn aligned(place: &Placement) -> Bytes {
    place.size.aligned().unwrap_or(place.size)
}

fn bill_segment(plan: &Plan, id: SegmentId) -> BillSegment {
    let segment = plan.schedule.segment(id);
    let layout = plan.layout(id);
    let on_device = |place: &&Placement| !plan.is_on_host(place.tensor);
    let steps = segment.steps.len();
    let live = live_bytes(plan, id);
    let peak = live.iter().copied().max().unwrap_or(0);
    let peak_step = live.iter().position(|&bytes| bytes == peak).unwrap_or(0);
    let alive = layout.placements.iter().filter(on_device);
    let mut tensors: Vec<BillTensor> = alive
        .filter(|place| place.live.contains(peak_step))
        .map(|place| {
            let tensor = plan.schedule.tensors.get(place.tensor);
            let (name, role) = (tensor.name.clone(), tensor.role.billed_as());
            BillTensor { name, role, bytes: aligned(place) }
        })
        .collect();
    tensors.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    let of_role = |role: Role| {
        let sizes = tensors.iter().filter(|t| t.role == role).map(|t| t.bytes);
        (role, Bytes::sum(sizes).unwrap_or(plan.arena_bytes))
    };
    BillSegment {
        name: segment.name.clone(),
        phase: segment.phase.name(),
        peak_step: (
            peak_step,
            segment.steps.get(peak_step).map_or("empty", |s| s.op.operation().name()),
        ),
        peak: Bytes::new(peak).unwrap_or(plan.arena_bytes),
        top: layout.top,
        by_role: Role::ALL.map(of_role).into_iter().filter(|(_, b)| *b > Bytes::ZERO).collect(),
        tensors,
        steps,
        flops: plan.schedule.flops(id),
    }
}

/// Aligned bytes of the arena in use at each step of a segment, including tensors that outlive it,
/// as if steps ran one by one.
pub fn live_bytes(plan: &Plan, segment: SegmentId) -> Vec<u64> {
    let steps = plan.schedule.segment(segment).steps.len();
    let mut change = vec![0i128; steps + 1];
    let on_device = |place: &&Placement| !plan.is_on_host(place.tensor);
    for place in plan.layout(segment).placements.iter().filter(on_device) {
        let size = i128::from(aligned(place).get());
        if place.live.first < steps {
            change[place.live.first] += size;
            change[place.live.last.min(steps - 1) + 1] -= size;
        }
    }
    let mut now = 0;
    change[..steps]
        .iter()
        .map(|&change| {
            now += change;
            now.clamp(0, i128::from(u64::MAX)) as u64
        })
        .collect()
}

/// The whole plan as text: views first, then for each segment its tensors with offsets and
/// lifetimes, and its steps with their operands (`=` written, `+` updated) and attributes.
pub fn listing(plan: &Plan) -> String {
    let mut text = String::new();
    let tensors = &plan.schedule.tensors;
    let _ = writeln!(text, "arena {} bytes", plan.arena_bytes.get());
    if plan.host_bytes > Bytes::ZERO {
        let _ =
            writeln!(text, "host {} bytes, addresses behind the arena's", plan.host_bytes.get());
    }
    for window in tensors.ids().filter(|&id| tensors.get(id).view.is_some()) {
        let (root, offset) = tensors.root(window);
        let (tensor, root) = (tensors.get(window), &tensors.get(root).name);
        let (name, dtype, shape) = (&tensor.name, tensor.dtype, tensor.shape);
        let _ = writeln!(text, "  {root}+{:<8} {name:<24} {dtype} {shape}", offset.get());
    }
    for id in plan.schedule.segment_ids() {
        let segment = plan.schedule.segment(id);
        let _ = writeln!(text, "\nsegment {} ({})", segment.name, segment.phase.name());
        let mut places: Vec<&Placement> = plan.layout(id).placements.iter().collect();
        places.sort_by_key(|place| (place.offset, place.live.first, place.tensor));
        for place in places {
            list_placement(plan, place, &mut text);
        }
        for (index, step) in segment.steps.iter().enumerate() {
            let _ = write!(text, "  {index:>4} ");
            list_step(plan, step, &mut text);
        }
    }
    text
}

fn list_step(plan: &Plan, step: &Step, text: &mut String) {
    let pass = match step.pass {
        Pass::Forward => "forward",
        Pass::Backward => "backward",
        Pass::Update => "update",
    };
    let _ = write!(text, "{pass:<8} {}", step.op.operation().name());
    for operand in step.operands() {
        let mark = match operand.access {
            Access::Read => "",
            Access::Write => "=",
            Access::Update => "+",
        };
        let name = &plan.schedule.tensors.get(operand.tensor).name;
        let _ = write!(text, " {mark}{name}");
    }
    let attributes = step.op.operation().attributes();
    if !attributes.is_empty() {
        let _ = write!(text, "  [{}]", attributes.join(" "));
    }
    // Most plans have one lane and no waits. Their listing says nothing about lanes, so that the
    // hashes of old plans stay valid.
    if step.lane != Lane::Compute {
        let _ = write!(text, "  on {}", step.lane.name());
    }
    for wait in &step.waits {
        let _ = write!(text, "  after {wait}");
    }
    text.push('\n');
}

fn list_placement(plan: &Plan, place: &Placement, text: &mut String) {
    let tensor = plan.schedule.tensors.get(place.tensor);
    let life = match tensor.scope {
        Scope::Run => "run".to_string(),
        Scope::Host => "run, in host memory".to_string(),
        Scope::Phase(phase) => format!("phase {}", phase.name()),
        Scope::Segment(_) => format!("steps {}-{}", place.live.first, place.live.last),
    };
    let io = match tensor.io {
        Io::Device => "",
        Io::Input => " input",
        Io::Output => " output",
    };
    let _ = writeln!(
        text,
        "  @{:<8} {:<24} {} {} {} {life}{io}",
        place.offset.get(),
        tensor.name,
        tensor.dtype,
        tensor.shape,
        tensor.role.name()
    );
}

/// FNV-1a over the listing, which contains everything that is executed. Plans that execute
/// differently have different hashes; names of Rust items are not part of it.
pub fn hash(plan: &Plan) -> u64 {
    Fnv::of(listing(plan))
}

/// An attribute that an op got later, with the value that it implied until then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Implied {
    /// The op's name. The same word of another op means something else.
    pub op: &'static str,
    /// The attribute as [`crate::ops::Operation::attributes`] returns it.
    pub attribute: String,
}

/// FNV-1a over what one phase computes: its ops in order, with their attributes and the names,
/// types and shapes of their operands. Offsets, scratch and other phases are not part of it, nor
/// are the attributes in `implied`. So when an op gets a new attribute whose default is its old
/// behaviour, hashes in old checkpoints stay valid.
pub fn steps_hash(schedule: &Schedule, phase: Phase, implied: &[Implied]) -> u64 {
    let mut text = String::new();
    for segment in schedule.segments.iter().filter(|segment| segment.phase == phase) {
        for step in &segment.steps {
            let op = step.op.operation();
            let mut attributes = op.attributes();
            attributes.retain(|attribute| {
                !implied.iter().any(|i| i.op == op.name() && i.attribute == *attribute)
            });
            let _ = write!(text, "{} {}", op.name(), attributes.join(" "));
            for operand in op.operands() {
                let tensor = schedule.tensors.get(operand.tensor);
                if !tensor.role.is_scratch() {
                    let _ = write!(text, " {}:{}{}", tensor.name, tensor.dtype, tensor.shape);
                }
            }
            text.push('\n');
        }
    }
    Fnv::of(&text)
}
