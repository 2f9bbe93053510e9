//! The schedule: ordered steps over typed tensors, grouped into segments, and the builders that
//! make it. The builder derives the backward: it walks the forward steps in reverse, and each op
//! emits its own backward steps.

use crate::backend::{NoScratch, Scratch};
use crate::bytes::Bytes;
use crate::error::PlanError;
use crate::lanes::{Lane, derive_waits};
use crate::ops::{Op, Operand};
use crate::tensor::{Dtype, Io, Phase, Role, Scope, Shape, Tensor, TensorId, Tensors, View};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::rc::Rc;

/// Index of a segment in [`Schedule::segments`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(usize);

impl SegmentId {
    /// Position in the list.
    pub const fn index(self) -> usize {
        self.0
    }
}

/// Which part of a training step a step belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pass {
    /// From tokens to the loss.
    Forward,
    /// From the loss to the gradients.
    Backward,
    /// The optimizer changes the parameters.
    Update,
}

/// One op and where it runs. Steps of a lane run in order, and a step also waits for the steps that
/// it names. Running all steps in the order of the list satisfies every wait.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What to do.
    pub op: Op,
    /// The transformer layer it belongs to.
    pub layer: Option<u32>,
    /// The pass it belongs to.
    pub pass: Pass,
    /// The lane it runs on.
    pub lane: Lane,
    /// Indexes of earlier steps on other lanes that must end before this one starts. They are
    /// derived from operands and `joins`.
    pub waits: Vec<usize>,
    /// Indexes of earlier steps on other lanes that [`SegmentBuilder::join`] makes this one wait
    /// for, whatever its operands are.
    pub joins: Vec<usize>,
}

impl Step {
    /// The tensors that the step touches.
    pub fn operands(&self) -> Vec<Operand> {
        self.op.operation().operands()
    }
}

/// Index of the first step that is not of the forward.
pub(crate) fn start_of_backward(steps: &[Step]) -> usize {
    steps.iter().position(|step| step.pass != Pass::Forward).unwrap_or(steps.len())
}

/// Steps that run as a unit: forward and backward of one slice, the update, an evaluation batch, …
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Unique name.
    pub name: String,
    /// The part of the run it belongs to.
    pub phase: Phase,
    /// In the order in which they run.
    pub steps: Vec<Step>,
}

/// The whole program: every segment of a run, over one table of tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// All tensors.
    pub tensors: Tensors,
    /// All segments.
    pub segments: Vec<Segment>,
}

impl Schedule {
    /// All segment ids, in order.
    pub fn segment_ids(&self) -> impl Iterator<Item = SegmentId> + use<> {
        (0..self.segments.len()).map(SegmentId)
    }

    /// A segment. Ids come from the same schedule.
    pub fn segment(&self, id: SegmentId) -> &Segment {
        &self.segments[id.0]
    }

    /// As [`Schedule::segment`], to rewrite it.
    pub(crate) fn segment_mut(&mut self, id: SegmentId) -> &mut Segment {
        &mut self.segments[id.0]
    }

    /// Inserts ops on a lane of their own, each as soon as the last step that touches one of its
    /// operands has been given to the device, and derives the waits anew. The segment's steps must
    /// all be on the compute lane, or come from an earlier call.
    pub fn insert_when_ready(
        &mut self,
        id: SegmentId,
        lane: Lane,
        ops: Vec<Op>,
    ) -> Result<(), PlanError> {
        let Schedule { tensors, segments } = self;
        let steps = &mut segments[id.0].steps;
        let mut last = HashMap::new();
        for (index, step) in steps.iter().enumerate() {
            for operand in step.operands() {
                last.entry(tensors.root(operand.tensor).0)
                    .or_insert_with(Vec::new)
                    .push((range_of(tensors, operand.tensor), index));
            }
        }
        let mut ready: Vec<(usize, Op)> = Vec::with_capacity(ops.len());
        for op in ops {
            op.check(tensors)?;
            let touching = op.operation().operands().into_iter().filter_map(|operand| {
                let range = range_of(tensors, operand.tensor);
                let uses = last.get(&tensors.root(operand.tensor).0)?;
                let meets = |other: &Range<u64>| other.start < range.end && range.start < other.end;
                uses.iter().filter(|(other, _)| meets(other)).map(|(_, index)| index + 1).max()
            });
            ready.push((touching.max().unwrap_or(0), op));
        }
        ready.sort_by_key(|(at, _)| *at); // stable: ops that are ready at once keep their order
        let mut merged = Vec::with_capacity(steps.len() + ready.len());
        let mut ready = ready.into_iter().peekable();
        let mut inserted = |merged: &mut Vec<Step>, at: usize| {
            while let Some((_, op)) = ready.next_if(|(index, _)| *index <= at) {
                let (layer, pass) = (None, Pass::Backward);
                let (waits, joins) = (Vec::new(), Vec::new());
                merged.push(Step { op, layer, pass, lane, waits, joins });
            }
        };
        for (index, step) in std::mem::take(steps).into_iter().enumerate() {
            inserted(&mut merged, index);
            merged.push(step);
        }
        inserted(&mut merged, usize::MAX);
        *steps = merged;
        derive_waits(tensors, steps);
        Ok(())
    }

    /// Floating-point operations of one run of a segment.
    pub fn flops(&self, id: SegmentId) -> u64 {
        let work = |step: &Step| step.op.operation().flops(&self.tensors);
        self.segment(id).steps.iter().map(work).fold(0, u64::saturating_add)
    }

    /// Whether a tensor keeps its bytes for the whole time a segment runs, even when no step of the
    /// segment uses it.
    pub fn is_held(&self, tensor: TensorId, segment: SegmentId) -> bool {
        match self.tensors.get(tensor).scope {
            Scope::Run | Scope::Host => true,
            Scope::Phase(phase) => phase == self.segment(segment).phase,
            Scope::Segment(_) => false,
        }
    }
}

/// Builds a schedule: first the run-wide tensors, then the segments.
#[derive(Debug)]
pub struct ScheduleBuilder {
    tensors: Tensors,
    segments: Vec<Segment>,
    scratch: Rc<dyn Scratch>,
    /// By lane: the backend's workspace, one tensor that all steps of the lane share. It is as
    /// large as the largest request.
    workspaces: [Option<TensorId>; Lane::COUNT],
    /// How often each name was used: by run-wide tensors, and by those plus the tensors of the
    /// segment being built. Listings and hashes identify tensors by name, so names must be unique.
    run_names: HashMap<String, u32>,
    names: HashMap<String, u32>,
    segment_names: HashMap<String, u32>,
}

impl Default for ScheduleBuilder {
    fn default() -> ScheduleBuilder {
        ScheduleBuilder::with_scratch(Rc::new(NoScratch))
    }
}

impl ScheduleBuilder {
    /// An empty schedule for a backend without scratch.
    pub fn new() -> ScheduleBuilder {
        ScheduleBuilder::default()
    }

    /// An empty schedule for a backend with this scratch.
    pub fn with_scratch(scratch: Rc<dyn Scratch>) -> ScheduleBuilder {
        ScheduleBuilder {
            tensors: Tensors::default(),
            segments: Vec::new(),
            scratch,
            workspaces: Default::default(),
            run_names: HashMap::new(),
            names: HashMap::new(),
            segment_names: HashMap::new(),
        }
    }

    /// Adds a tensor that outlives segments. A repeated name gets a number: `x`, `x#2`, …
    pub fn tensor(&mut self, mut tensor: Tensor) -> Result<TensorId, PlanError> {
        let given = tensor.name.clone();
        tensor.name = numbered(&self.run_names, &given);
        let id = self.tensors.add(tensor)?;
        *self.run_names.entry(given).or_insert(0) += 1;
        Ok(id)
    }

    /// Adds a run-wide tensor that owns its bytes.
    pub fn run_tensor(
        &mut self,
        name: &str,
        dtype: Dtype,
        shape: Shape,
        role: Role,
    ) -> Result<TensorId, PlanError> {
        self.held_tensor(name, dtype, shape, role, Scope::Run)
    }

    /// As [`ScheduleBuilder::run_tensor`], in the memory that `scope` names: the device's or the
    /// host's.
    pub fn held_tensor(
        &mut self,
        name: &str,
        dtype: Dtype,
        shape: Shape,
        role: Role,
        scope: Scope,
    ) -> Result<TensorId, PlanError> {
        let (name, layer, io, view) = (name.to_string(), None, Io::Device, None);
        self.tensor(Tensor { name, dtype, shape, role, scope, layer, io, view })
    }

    /// Adds a named view into a run-wide tensor, of the same element type.
    pub fn window(
        &mut self,
        name: &str,
        shape: Shape,
        root: TensorId,
        offset: Bytes,
        layer: Option<u32>,
    ) -> Result<TensorId, PlanError> {
        let parent = self.tensors.get(root).clone();
        let view = Some(View { root, offset });
        self.tensor(Tensor { name: name.to_string(), shape, layer, view, ..parent })
    }

    /// Rows of the head's weight for a vocabulary, as the backend wants them.
    pub fn head_rows(&self, vocabulary: u64) -> u64 {
        self.scratch.head_rows(vocabulary)
    }

    /// The tensors added so far.
    pub fn tensors(&self) -> &Tensors {
        &self.tensors
    }

    /// Starts the next segment.
    pub fn segment(&mut self, name: &str, phase: Phase) -> SegmentBuilder<'_> {
        let id = SegmentId(self.segments.len());
        self.names.clear();
        let unique = numbered(&self.segment_names, name);
        *self.segment_names.entry(name.to_string()).or_insert(0) += 1;
        self.segments.push(Segment { name: unique, phase, steps: Vec::new() });
        let joins = Default::default();
        SegmentBuilder { builder: self, id, layer: None, pass: Pass::Forward, joins }
    }

    /// An op with the workspace of a lane. Lanes run side by side, so each has its own.
    pub fn with_workspace<O: Into<Op>>(
        &mut self,
        lane: Lane,
        make: impl FnOnce(TensorId) -> O,
    ) -> Result<Op, PlanError> {
        let workspace = match self.workspaces[lane.index()] {
            Some(workspace) => workspace,
            None => {
                let name = match lane {
                    Lane::Compute => "workspace".to_string(),
                    _ => format!("workspace of {}", lane.name()),
                };
                self.run_tensor(&name, Dtype::F32, Shape::new(&[1])?, Role::Workspace)?
            }
        };
        self.workspaces[lane.index()] = Some(workspace);
        let op = make(workspace).into();
        let name = op.operation().name();
        let too_large = || PlanError::ArenaTooLarge { at: format!("the workspace of {name}") };
        let bytes = self.scratch.bytes(&op, &self.tensors).ok_or_else(too_large)?;
        self.tensors.grow(workspace, bytes.get().div_ceil(Dtype::F32.size()))?;
        Ok(op)
    }

    /// Returns the schedule, with the waits that the steps' operands require.
    pub fn finish(mut self) -> Schedule {
        for segment in &mut self.segments {
            derive_waits(&self.tensors, &mut segment.steps);
        }
        Schedule { tensors: self.tensors, segments: self.segments }
    }
}

/// The bytes of its root that a tensor takes.
fn range_of(tensors: &Tensors, tensor: TensorId) -> Range<u64> {
    let start = tensors.root(tensor).1.get();
    start..start.saturating_add(tensors.bytes(tensor).get())
}

/// The name, followed by a number if it was used before.
fn numbered(given: &HashMap<String, u32>, name: &str) -> String {
    with_number(given.get(name).copied().unwrap_or(0), name)
}

fn with_number(times: u32, name: &str) -> String {
    match times {
        0 => name.to_string(),
        times => format!("{name}#{}", times + 1),
    }
}

/// Adds tensors and steps to one segment.
#[derive(Debug)]
pub struct SegmentBuilder<'a> {
    builder: &'a mut ScheduleBuilder,
    id: SegmentId,
    layer: Option<u32>,
    pass: Pass,
    /// By lane: [`Step::joins`] of its next step.
    joins: [Vec<usize>; Lane::COUNT],
}

impl SegmentBuilder<'_> {
    /// Tensors and steps added from now on belong to this layer.
    pub fn set_layer(&mut self, layer: Option<u32>) {
        self.layer = layer;
    }

    /// Steps added from now on belong to this pass.
    pub fn set_pass(&mut self, pass: Pass) {
        self.pass = pass;
    }

    /// Adds a tensor of this segment that only steps touch.
    pub fn local(
        &mut self,
        name: &str,
        dtype: Dtype,
        shape: Shape,
        role: Role,
    ) -> Result<TensorId, PlanError> {
        self.host_tensor(name, dtype, shape, role, Io::Device)
    }

    /// Adds a tensor of this segment that the host may touch before or after it runs. A repeated
    /// name gets a number: `workspace`, `workspace#2`, …
    pub fn host_tensor(
        &mut self,
        name: &str,
        dtype: Dtype,
        shape: Shape,
        role: Role,
        io: Io,
    ) -> Result<TensorId, PlanError> {
        let name = match self.layer {
            Some(layer) => format!("h.{layer}.{name}"),
            None => name.to_string(),
        };
        // The count continues from the run-wide one, so that the table of names need not be copied.
        let run_wide = || self.builder.run_names.get(&name).copied().unwrap_or(0);
        let given = self.builder.names.get(&name).copied().unwrap_or_else(run_wide);
        let unique = with_number(given, &name);
        let (scope, layer) = (Scope::Segment(self.id), self.layer);
        let tensor = Tensor { name: unique, dtype, shape, role, scope, layer, io, view: None };
        let id = self.builder.tensors.add(tensor)?;
        self.builder.names.insert(name, given + 1);
        Ok(id)
    }

    /// Adds a run-wide tensor that the host writes before this segment runs. It shares bytes with
    /// nothing, no step writes it and no other segment reads it: `verify` proves all three. So the
    /// host can fill it while another segment runs.
    pub fn run_input(
        &mut self,
        name: &str,
        dtype: Dtype,
        shape: Shape,
        role: Role,
    ) -> Result<TensorId, PlanError> {
        let segment = &self.builder.segments[self.id.0].name;
        let name = format!("{name} of {segment}");
        let (scope, io) = (Scope::Run, Io::Input);
        self.builder.tensor(Tensor { name, dtype, shape, role, scope, layer: None, io, view: None })
    }

    /// Lets the host read a tensor of this segment after the segment has run.
    pub fn mark_output(&mut self, tensor: TensorId) {
        self.builder.tensors.mark_output(tensor);
    }

    /// The row of a tensor.
    pub fn tensor(&self, tensor: TensorId) -> &Tensor {
        self.builder.tensors.get(tensor)
    }

    /// The shape of a tensor.
    pub fn shape(&self, tensor: TensorId) -> Shape {
        self.tensor(tensor).shape
    }

    /// Checks the op's shape rule and appends the op as a step on the compute lane.
    pub fn push(&mut self, op: impl Into<Op>) -> Result<(), PlanError> {
        self.push_on(Lane::Compute, op)
    }

    /// As [`SegmentBuilder::push`], on another lane.
    pub fn push_on(&mut self, lane: Lane, op: impl Into<Op>) -> Result<(), PlanError> {
        let op = op.into();
        op.check(&self.builder.tensors)?;
        let joins = std::mem::take(&mut self.joins[lane.index()]);
        let (layer, pass, waits) = (self.layer, self.pass, Vec::new());
        let step = Step { op, layer, pass, lane, waits, joins };
        self.builder.segments[self.id.0].steps.push(step);
        Ok(())
    }

    /// Makes the next step of a lane wait for all steps so far. From then on, that lane can reuse
    /// the bytes of tensors that those steps no longer need.
    pub fn join(&mut self, lane: Lane) {
        let steps = &self.builder.segments[self.id.0].steps;
        let last_of = |other: &Lane| steps.iter().rposition(|step| step.lane == *other);
        let others = Lane::ALL.iter().filter(|&&other| other != lane);
        self.joins[lane.index()] = others.filter_map(last_of).collect();
    }

    /// As [`SegmentBuilder::push`], for an op that needs a workspace. All such ops of a lane share
    /// one run-wide tensor, as large as the largest workspace that the backend asks for.
    pub fn push_with_workspace<O: Into<Op>>(
        &mut self,
        make: impl FnOnce(TensorId) -> O,
    ) -> Result<(), PlanError> {
        let op = self.builder.with_workspace(Lane::Compute, make)?;
        self.push(op)
    }

    /// Emits the backward steps of every step so far, last step first. `parameter_gradients` maps
    /// each parameter to its gradient accumulator; `delivered` holds the gradients that exist
    /// before the walk starts. Returns which tensor holds the gradient of each tensor after the
    /// walk.
    pub fn backward(
        &mut self,
        parameter_gradients: &BTreeMap<TensorId, TensorId>,
        delivered: BTreeMap<TensorId, TensorId>,
    ) -> Result<BTreeMap<TensorId, TensorId>, PlanError> {
        let forward = self.builder.segments[self.id.0].steps.clone();
        let segment = SegmentBuilder {
            builder: &mut *self.builder,
            id: self.id,
            layer: None,
            pass: Pass::Backward,
            joins: std::mem::take(&mut self.joins),
        };
        let mut backward = Backward { segment, parameter_gradients, delivered, op: "nothing" };
        for step in forward.iter().rev() {
            backward.segment.layer = step.layer;
            backward.op = step.op.operation().name();
            step.op.operation().emit_backward(&mut backward)?;
        }
        let Backward { segment, delivered, .. } = backward;
        self.joins = segment.joins;
        Ok(delivered)
    }

    /// Ends the segment.
    pub fn finish(self) -> SegmentId {
        self.id
    }
}

/// What an op sees and may do while it emits its backward steps.
#[derive(Debug)]
pub struct Backward<'a> {
    segment: SegmentBuilder<'a>,
    parameter_gradients: &'a BTreeMap<TensorId, TensorId>,
    delivered: BTreeMap<TensorId, TensorId>,
    op: &'static str,
}

impl Backward<'_> {
    /// The gradient of one of the op's results, or an error if no later step has produced it.
    pub fn gradient_of(&self, op: &'static str, result: TensorId) -> Result<TensorId, PlanError> {
        self.delivered(result).ok_or_else(|| self.missing(op, "the gradient of", result))
    }

    /// As [`Backward::gradient_of`], for a step that changes the gradient in place. It is an error
    /// if that tensor is also the gradient of another tensor, because later steps still have to
    /// read it.
    pub fn own_gradient_of(
        &self,
        op: &'static str,
        result: TensorId,
    ) -> Result<TensorId, PlanError> {
        let gradient = self.gradient_of(op, result)?;
        let shared = self.delivered.iter().any(|(&of, &g)| g == gradient && of != result);
        if shared {
            Err(self.missing(op, "a gradient of its own for", result))
        } else {
            Ok(gradient)
        }
    }

    /// The gradient of a tensor, if a later step has produced one.
    pub fn delivered(&self, tensor: TensorId) -> Option<TensorId> {
        self.delivered.get(&tensor).copied()
    }

    /// Records that `gradient` will hold the gradient of a tensor once the op's steps have run. It
    /// is an error if the tensor already has its gradient elsewhere, because one of the two would
    /// be lost.
    pub fn deliver(&mut self, tensor: TensorId, gradient: TensorId) -> Result<(), PlanError> {
        match self.delivered.insert(tensor, gradient) {
            Some(other) if other != gradient => {
                Err(self.missing(self.op, "the sum of two gradients of", tensor))
            }
            _ => Ok(()),
        }
    }

    /// The gradient accumulator of a parameter.
    pub fn parameter_gradient(
        &self,
        op: &'static str,
        parameter: TensorId,
    ) -> Result<TensorId, PlanError> {
        let found = self.parameter_gradients.get(&parameter).copied();
        found.ok_or_else(|| self.missing(op, "an accumulator for", parameter))
    }

    /// Adds a tensor like `of` and records it as the gradient of `of`.
    pub fn new_gradient(&mut self, of: TensorId) -> Result<TensorId, PlanError> {
        let like = self.segment.builder.tensors.get(of);
        let name = format!("d_{}", like.name.rsplit('.').next().unwrap_or(&like.name));
        let (dtype, shape) = (like.dtype, like.shape);
        let gradient = self.segment.local(&name, dtype, shape, Role::Activation)?;
        self.deliver(of, gradient)?;
        Ok(gradient)
    }

    /// Adds an fp32 tensor that only this op's backward uses.
    pub fn scratch(&mut self, name: &str, shape: Shape, role: Role) -> Result<TensorId, PlanError> {
        self.segment.local(name, Dtype::F32, shape, role)
    }

    /// The shape of a tensor.
    pub fn shape(&self, tensor: TensorId) -> Shape {
        self.segment.shape(tensor)
    }

    /// The element type of a tensor.
    pub fn dtype(&self, tensor: TensorId) -> Dtype {
        self.segment.tensor(tensor).dtype
    }

    /// Appends a backward step.
    pub fn push(&mut self, op: impl Into<Op>) -> Result<(), PlanError> {
        self.segment.push(op)
    }

    /// Appends a backward step that has a workspace.
    pub fn push_with_workspace<O: Into<Op>>(
        &mut self,
        make: impl FnOnce(TensorId) -> O,
    ) -> Result<(), PlanError> {
        self.segment.push_with_workspace(make)
    }

    fn missing(&self, op: &'static str, what: &str, tensor: TensorId) -> PlanError {
        let name = &self.segment.builder.tensors.get(tensor).name;
        PlanError::NoGradient { op, missing: format!("{what} {name} is missing") }
    }
}
