//! The proof that a plan is sound. It uses the plan alone and none of the code that places tensors
//! and derives waits, except for `ranges.rs`, a map of byte ranges. It replays each segment, one
//! step after the other, on a shadow of the arena that records which tensor wrote every byte. It
//! also proves that no two steps race, so running lanes side by side gives the same result.
//! [`Proved`] is the proof as a type: backends accept nothing else.

use crate::arena::{Placement, Plan, SegmentLayout};
use crate::backend::Scratch;
use crate::bytes::{Bytes, OPERAND_ALIGNMENT};
use crate::defect::Defect;
use crate::ops::{Access, Op};
use crate::races::{Race, is_wait_sound, races};
use crate::schedule::{SegmentId, Step};
use crate::tensor::{Io, Role, Scope, TensorId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

/// A plan that [`verify`] has proved sound for backends with the scratch `S`. Only `verify` makes
/// one, and the plan inside cannot be changed, so a backend need not check it again.
///
/// ```
/// # fn proof(plan: fitgpt_plan::Plan) -> Option<fitgpt_plan::Proved<fitgpt_plan::NoScratch>> {
/// fitgpt_plan::verify::verify(plan, fitgpt_plan::NoScratch).ok()
/// # }
/// ```
///
/// ```compile_fail
/// # fn proof(plan: fitgpt_plan::Plan) -> fitgpt_plan::Proved<fitgpt_plan::NoScratch> {
/// fitgpt_plan::Proved { plan, scratch: fitgpt_plan::NoScratch }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Proved<S> {
    plan: Plan,
    scratch: S,
}

impl<S> Proved<S> {
    /// The scratch that the plan's workspaces are large enough for.
    pub fn scratch(&self) -> &S {
        &self.scratch
    }
}

impl<S> Deref for Proved<S> {
    type Target = Plan;

    fn deref(&self) -> &Plan {
        &self.plan
    }
}

/// Proves that a plan is sound, including that its workspaces suffice for a backend with this
/// scratch. Otherwise returns all defects.
pub fn verify<S: Scratch>(plan: Plan, scratch: S) -> Result<Proved<S>, Vec<Defect>> {
    let defects = defects(&plan, &scratch);
    if defects.is_empty() { Ok(Proved { plan, scratch }) } else { Err(defects) }
}

/// Everything that is wrong with a plan for a backend with this scratch.
pub fn defects(plan: &Plan, scratch: &dyn Scratch) -> Vec<Defect> {
    let mut defects = Vec::new();
    if plan.layouts.len() != plan.schedule.segments.len() {
        let problem = format!("has {} layouts", plan.layouts.len());
        let segment = format!("{} segments", plan.schedule.segments.len());
        return vec![Defect::Misplaced { segment, tensor: "the plan".into(), problem }];
    }
    check_moves(plan, &mut defects);
    check_run_inputs(plan, &mut defects);
    for segment in plan.schedule.segment_ids() {
        let check = SegmentCheck::new(plan, segment);
        check.places(&mut defects);
        check.overlaps(&mut defects);
        check.steps(&mut defects);
        check.workspaces(scratch, &mut defects);
    }
    defects
}

/// Tensors that outlive segments have the same offset in every segment.
fn check_moves(plan: &Plan, defects: &mut Vec<Defect>) {
    let mut seen: BTreeMap<TensorId, (usize, u64)> = BTreeMap::new();
    for (index, layout) in plan.layouts.iter().enumerate() {
        for place in &layout.placements {
            let tensor = plan.schedule.tensors.get(place.tensor);
            if matches!(tensor.scope, Scope::Segment(_)) {
                continue;
            }
            let here = (index, place.offset.get());
            let first = *seen.entry(place.tensor).or_insert(here);
            if first.1 != here.1 {
                defects.push(Defect::Moved {
                    tensor: tensor.name.clone(),
                    segments: [first.0, index].map(|i| plan.schedule.segments[i].name.clone()),
                    offsets: [first.1, here.1],
                });
            }
        }
    }
}

/// The host may fill a run-wide input while any segment runs but the one that reads it.
fn check_run_inputs(plan: &Plan, defects: &mut Vec<Defect>) {
    let tensors = &plan.schedule.tensors;
    let is_input = |&id: &TensorId| {
        let tensor = tensors.get(id);
        tensor.scope == Scope::Run && tensor.io == Io::Input
    };
    let inputs: BTreeSet<TensorId> =
        tensors.ids().filter(is_input).map(|id| tensors.root(id).0).collect();
    let mut users: BTreeMap<TensorId, SegmentId> = BTreeMap::new();
    for id in plan.schedule.segment_ids() {
        let segment = plan.schedule.segment(id);
        let mut here = BTreeSet::new();
        for (index, step) in segment.steps.iter().enumerate() {
            for operand in step.operands() {
                let (root, _) = tensors.root(operand.tensor);
                if !inputs.contains(&root) {
                    continue;
                }
                if operand.access != Access::Read {
                    let at = SegmentCheck::new(plan, id).at(index);
                    let tensor = tensors.get(operand.tensor).name.clone();
                    defects.push(Defect::InputWritten { at, tensor });
                }
                here.insert(root);
            }
        }
        for root in here {
            let first = *users.entry(root).or_insert(id);
            if first != id {
                let segments = [first, id].map(|id| plan.schedule.segment(id).name.clone());
                let tensor = tensors.get(root).name.clone();
                defects.push(Defect::InputShared { tensor, segments });
            }
        }
    }
}

struct SegmentCheck<'a> {
    plan: &'a Plan,
    segment: SegmentId,
    layout: &'a SegmentLayout,
    by_tensor: BTreeMap<TensorId, &'a Placement>,
}

impl<'a> SegmentCheck<'a> {
    fn new(plan: &'a Plan, segment: SegmentId) -> SegmentCheck<'a> {
        let layout = plan.layout(segment);
        let by_tensor = layout.placements.iter().map(|place| (place.tensor, place)).collect();
        SegmentCheck { plan, segment, layout, by_tensor }
    }

    fn name(&self, tensor: TensorId) -> String {
        self.plan.schedule.tensors.get(tensor).name.clone()
    }

    fn last_step(&self) -> usize {
        self.plan.schedule.segment(self.segment).steps.len().saturating_sub(1)
    }

    fn segment_name(&self) -> String {
        self.plan.schedule.segment(self.segment).name.clone()
    }

    fn at(&self, step: usize) -> String {
        let name = self.plan.schedule.segment(self.segment).steps[step].op.operation().name();
        format!("{} step {step} ({name})", self.segment_name())
    }

    /// Whether the host touches a tensor before or after this segment, not another one.
    fn is_io(&self, tensor: TensorId, io: Io) -> bool {
        let tensor = self.plan.schedule.tensors.get(tensor);
        tensor.io == io && tensor.scope == Scope::Segment(self.segment)
    }

    /// Checks sizes, bounds and alignment, and that every tensor that must survive the segment, or
    /// that the host touches, has exactly one placement.
    fn places(&self, defects: &mut Vec<Defect>) {
        let tensors = &self.plan.schedule.tensors;
        for place in &self.layout.placements {
            let size = tensors.bytes(place.tensor);
            let problem = if place.size != size {
                Some(format!("has {} bytes planned, {} needed", place.size.get(), size.get()))
            } else if place.live.first > place.live.last || place.live.last > self.last_step() {
                let live = place.live;
                Some(format!("lives from step {} to {}", live.first, live.last))
            } else if !self.is_inside(place) {
                Some(format!("ends at {}, beyond the arena", place.end()))
            } else if !std::ptr::eq(self.by_tensor[&place.tensor], place) {
                Some("has more than one placement".to_string())
            } else {
                None
            };
            let (segment, tensor) = (self.segment_name(), self.name(place.tensor));
            if let Some(problem) = problem {
                defects.push(Defect::Misplaced { segment, tensor, problem });
            } else if !place.offset.is_aligned() {
                let offset = place.offset.get();
                defects.push(Defect::Misaligned { segment, tensor, offset });
            }
        }
        let kept = |&id: &TensorId| {
            let io = self.is_io(id, Io::Input) || self.is_io(id, Io::Output);
            tensors.get(id).view.is_none() && (io || self.plan.schedule.is_held(id, self.segment))
        };
        for id in tensors.ids().filter(kept).filter(|id| !self.by_tensor.contains_key(id)) {
            let (segment, tensor) = (self.segment_name(), self.name(id));
            let problem = "must survive this segment but has no placement in it".to_string();
            defects.push(Defect::Misplaced { segment, tensor, problem });
        }
    }

    /// Whether the placement lies in the memory that its scope names: the device's arena, or the
    /// host's, which follows it.
    fn is_inside(&self, place: &Placement) -> bool {
        let arena = self.plan.arena_bytes.get();
        match self.plan.is_on_host(place.tensor) {
            false => place.end() <= arena,
            true => {
                let end = arena.saturating_add(self.plan.host_bytes.get());
                place.offset.get() >= arena && place.end() <= end
            }
        }
    }

    /// No two tensors that are alive at the same step share a byte. A tensor that outlives the
    /// segment shares bytes with no other tensor at all.
    fn overlaps(&self, defects: &mut Vec<Defect>) {
        let mut places: Vec<&Placement> = self.layout.placements.iter().collect();
        places.sort_by_key(|place| place.offset);
        for (index, a) in places.iter().enumerate() {
            for b in places[index + 1..].iter().take_while(|b| b.offset.get() < a.end()) {
                let held = [a, b].map(|p| self.plan.schedule.is_held(p.tensor, self.segment));
                if a.live.meets(&b.live) || held.contains(&true) {
                    defects.push(Defect::Overlap {
                        segment: self.segment_name(),
                        tensors: [self.name(a.tensor), self.name(b.tensor)],
                        bytes: a.end().min(b.end()) - b.offset.get(),
                    });
                }
            }
        }
    }

    /// Whether a tensor has its content when the segment starts and must have it when it ends.
    /// Activations in host memory do not, although no other tensor has their bytes: a segment
    /// writes them before it reads them.
    fn is_kept(&self, id: TensorId) -> bool {
        self.plan.schedule.is_held(id, self.segment) && !self.is_activation_on_host(id)
    }

    fn is_activation_on_host(&self, id: TensorId) -> bool {
        let tensor = self.plan.schedule.tensors.get(id);
        tensor.scope == Scope::Host && tensor.role == Role::Activation
    }

    /// Who owns the bytes that a step touches: the tensor whose view it is. Activations in host
    /// memory are views of one tensor, and each owns its part.
    fn owner(&self, touch: &Touch) -> TensorId {
        if self.is_activation_on_host(touch.root) { touch.tensor } else { touch.root }
    }

    /// Replays the steps on a shadow of the arena.
    fn steps(&self, defects: &mut Vec<Defect>) {
        let mut shadow = Shadow::default();
        for place in &self.layout.placements {
            let input = self.is_io(place.tensor, Io::Input);
            if input || self.is_kept(place.tensor) {
                shadow.write(place.offset.get()..place.end(), place.tensor);
            }
        }
        let steps = &self.plan.schedule.segment(self.segment).steps;
        let mut all_touched = Vec::with_capacity(steps.len());
        for (index, step) in steps.iter().enumerate() {
            if let Err(error) = step.op.check(&self.plan.schedule.tensors) {
                let (at, problem) = (self.at(index), error.to_string());
                defects.push(Defect::Rule { at, problem });
            }
            self.operands(index, step, defects);
            let touched: Vec<Touch> = step
                .operands()
                .iter()
                .filter_map(|operand| self.touch(index, operand.tensor, operand.access, defects))
                .collect();
            self.aliases(index, &touched, defects);
            for touch in touched.iter().filter(|touch| touch.access != Access::Write) {
                if !shadow.is_owned(&touch.range, self.owner(touch)) {
                    let (at, tensor) = (self.at(index), self.name(touch.tensor));
                    defects.push(Defect::ReadBeforeWrite { at, tensor });
                }
            }
            for touch in touched.iter().filter(|touch| touch.access != Access::Read) {
                shadow.write(touch.range.clone(), self.owner(touch));
            }
            all_touched.push(touched);
        }
        self.lanes(&all_touched, defects);
        for place in &self.layout.placements {
            let output = self.is_io(place.tensor, Io::Output);
            let kept = output || self.is_kept(place.tensor);
            if kept && !shadow.is_owned(&(place.offset.get()..place.end()), place.tensor) {
                let at = format!("{} (after its last step)", self.segment_name());
                let tensor = self.name(place.tensor);
                defects.push(Defect::ReadBeforeWrite { at, tensor });
            }
        }
    }

    /// Kernels touch only the device's memory, and transfers copy between it and the host's. A
    /// window starts where the widest access of a kernel can start. All other tensors have an
    /// aligned offset.
    fn operands(&self, index: usize, step: &Step, defects: &mut Vec<Defect>) {
        let is_on_host = |&tensor: &TensorId| self.plan.is_on_host(tensor);
        if let Op::Transfer(transfer) = &step.op {
            let ends = [transfer.from, transfer.to];
            if ends.iter().filter(|tensor| is_on_host(tensor)).count() != 1 {
                let (at, tensors) = (self.at(index), ends.map(|tensor| self.name(tensor)));
                defects.push(Defect::BadTransfer { at, tensors });
            }
        } else {
            let operands = step.operands().into_iter().map(|operand| operand.tensor);
            for tensor in operands.filter(is_on_host) {
                let (at, tensor) = (self.at(index), self.name(tensor));
                defects.push(Defect::HostOperand { at, tensor });
            }
        }
        for operand in step.operands() {
            let (_, offset) = self.plan.schedule.tensors.root(operand.tensor);
            if !offset.get().is_multiple_of(OPERAND_ALIGNMENT) {
                let (at, tensor) = (self.at(index), self.name(operand.tensor));
                defects.push(Defect::MisalignedView { at, tensor, offset: offset.get() });
            }
        }
    }

    /// Every wait is for an earlier step of another lane, and steps that touch common bytes are
    /// ordered. Then any interleaving of the lanes gives the result of running the steps one by
    /// one.
    fn lanes(&self, touched: &[Vec<Touch>], defects: &mut Vec<Defect>) {
        let steps = &self.plan.schedule.segment(self.segment).steps;
        for (index, step) in steps.iter().enumerate() {
            for &wait in step.waits.iter().filter(|&&w| !is_wait_sound(steps, index, w)) {
                defects.push(Defect::BadWait { at: self.at(index), wait });
            }
        }
        for Race { first, second } in races(steps, touched) {
            let tensors = [first, second].map(|step| touched[step].iter());
            let [mut a, b] = tensors;
            let hit = a.find_map(|a| b.clone().find(|b| a.conflicts(b)).map(|b| [a, b]));
            if let Some(pair) = hit {
                let (steps, tensors) = ([first, second], pair.map(|touch| self.name(touch.tensor)));
                defects.push(Defect::Race { at: steps.map(|step| self.at(step)), tensors });
            }
        }
    }

    /// Every step has a workspace as large as the backend's kernels need.
    fn workspaces(&self, scratch: &dyn Scratch, defects: &mut Vec<Defect>) {
        let tensors = &self.plan.schedule.tensors;
        let steps = &self.plan.schedule.segment(self.segment).steps;
        for (index, step) in steps.iter().enumerate() {
            let given = step.op.workspace().map_or(Bytes::ZERO, |tensor| tensors.bytes(tensor));
            let needed = scratch.bytes(&step.op, tensors);
            if needed.is_none_or(|needed| needed > given) {
                let (needed, given) = (needed.map(Bytes::get), given.get());
                defects.push(Defect::SmallWorkspace { at: self.at(index), needed, given });
            }
        }
    }

    fn touch(
        &self,
        step: usize,
        tensor: TensorId,
        access: Access,
        defects: &mut Vec<Defect>,
    ) -> Option<Touch> {
        let tensors = &self.plan.schedule.tensors;
        let (root, offset) = tensors.root(tensor);
        let Some(place) = self.by_tensor.get(&root) else {
            let (segment, tensor) = (self.segment_name(), self.name(tensor));
            let problem = format!("is used by step {step} but has no placement");
            defects.push(Defect::Misplaced { segment, tensor, problem });
            return None;
        };
        if !place.live.contains(step) {
            let (at, tensor) = (self.at(step), self.name(tensor));
            defects.push(Defect::OutsideLife { at, tensor });
        }
        let start = place.offset.get().saturating_add(offset.get());
        let range = start..start.saturating_add(tensors.bytes(tensor).get());
        Some(Touch { tensor, root, access, range })
    }

    fn aliases(&self, step: usize, touched: &[Touch], defects: &mut Vec<Defect>) {
        for (index, a) in touched.iter().enumerate() {
            for b in &touched[index + 1..] {
                if a.conflicts(b) {
                    let tensors = [self.name(a.tensor), self.name(b.tensor)];
                    defects.push(Defect::Aliased { at: self.at(step), tensors });
                }
            }
        }
    }
}

/// Bytes that a step reads or writes.
pub(crate) struct Touch {
    tensor: TensorId,
    root: TensorId,
    pub(crate) access: Access,
    pub(crate) range: std::ops::Range<u64>,
}

impl Touch {
    /// Whether they share bytes and at least one of the two writes them.
    fn conflicts(&self, other: &Touch) -> bool {
        let written = self.access != Access::Read || other.access != Access::Read;
        written && self.range.start < other.range.end && other.range.start < self.range.end
    }
}

/// Which tensor wrote each byte last: disjoint intervals, start → (end, owner).
#[derive(Default)]
struct Shadow {
    intervals: BTreeMap<u64, (u64, TensorId)>,
}

impl Shadow {
    fn write(&mut self, range: std::ops::Range<u64>, owner: TensorId) {
        if range.is_empty() {
            return;
        }
        let hit: Vec<(u64, u64, TensorId)> = self
            .intervals
            .range(..range.end)
            .rev()
            .map(|(&start, &(end, owner))| (start, end, owner))
            .take_while(|&(_, end, _)| end > range.start)
            .collect();
        for (start, end, old) in hit {
            self.intervals.remove(&start);
            if start < range.start {
                self.intervals.insert(start, (range.start, old));
            }
            if end > range.end {
                self.intervals.insert(range.end, (end, old));
            }
        }
        self.intervals.insert(range.start, (range.end, owner));
    }

    fn is_owned(&self, range: &std::ops::Range<u64>, owner: TensorId) -> bool {
        let mut covered = range.end;
        for (&start, &(end, who)) in self.intervals.range(..range.end).rev() {
            if end < covered || who != owner {
                return false;
            }
            covered = start;
            if covered <= range.start {
                return true;
            }
        }
        false
    }
}
