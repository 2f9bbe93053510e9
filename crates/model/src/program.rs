//! Programs: everything that one arena must serve. A spec lists the parts of a run, a [`Draft`]
//! holds their segments in one schedule, and a [`Program`] holds the ids that a caller needs. The
//! architecture defines what the model is made of.

use crate::activation::Activations;
use crate::architecture::Architecture;
use crate::communication;
use crate::dims::Dims;
use crate::forward::{AttendTo, Forward};
use crate::generation::{self, GenerateSegments};
use crate::levels::{Level, dropped, offloaded};
use crate::optimizer::OptimizerSpec;
use crate::params::Param;
use crate::run_tensors::{HeadWeight, RunTensors};
use crate::sharing::{Shard, Sharing};
use crate::update;
use plan::fuse::fuse;
use plan::offload::offload;
use plan::ops::{HeadEval, HeadTrain, Op};
use plan::recompute::recompute;
use plan::{
    Dtype, Lane, Phase, PlanError, Role, Schedule, ScheduleBuilder, Scratch, SegmentId, Shape,
    TensorId,
};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The model itself.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// Its modules and forward pass.
    pub architecture: Architecture,
    /// Its sizes.
    pub dims: Dims,
    /// Dropout probability at all of the architecture's sites; 0 = none.
    pub dropout: f32,
    /// Its number formats.
    pub types: Types,
}

/// The number formats. Sums, statistics, losses, gradients of parameters and the weights that the
/// optimizer updates are always f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Types {
    /// Format of activations and of the weights that kernels read. If it is not f32, the optimizer
    /// also keeps f32 master weights, or in bfloat16 their lower halves.
    pub compute: Dtype,
    /// Format of the residual stream.
    pub residual: Dtype,
}

impl Types {
    /// f32 throughout.
    pub const F32: Types = Types { compute: Dtype::F32, residual: Dtype::F32 };
}

/// How training is divided into segments.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainSpec {
    /// Sequences of each slice of an iteration, in order. Slices of the same size share a segment.
    pub slices: Vec<u64>,
    /// Tokens of a sequence; at most `block_size`.
    pub positions: u64,
    /// Tokens whose logits exist at the same time; rounded up to blocks of 256.
    pub head_chunk: u64,
    /// Sequences of an iteration, each of which has a loss.
    pub loss_rows: u64,
    /// What each layer keeps for its backward. A layer without a level keeps everything.
    pub levels: Vec<Level>,
    /// The optimizer.
    pub optimizer: OptimizerSpec,
    /// How ranks share it. `slices` are those of one group.
    pub sharing: Sharing,
}

/// How evaluation is divided into segments.
#[derive(Clone, Debug, PartialEq)]
pub struct EvalSpec {
    /// Sequences of each slice of a batch, in order. Slices of the same size share a segment.
    pub slices: Vec<u64>,
    /// Tokens of a sequence; at most `block_size`.
    pub positions: u64,
    /// Tokens whose logits exist at the same time; rounded up to blocks of 256.
    pub head_chunk: u64,
    /// Sequences whose losses are kept.
    pub loss_rows: u64,
}

/// How text is generated.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateSpec {
    /// Sequences generated at the same time.
    pub rows: u64,
    /// Context lengths to prefill, one segment for each. A shorter context is padded at its end. A
    /// full context (`block_size`) is always included.
    pub prefill: Vec<u64>,
}

/// Everything that one arena must serve.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramSpec {
    /// The model.
    pub model: ModelSpec,
    /// Training. Without it there are no gradients and no moments.
    pub train: Option<TrainSpec>,
    /// Evaluation.
    pub eval: Option<EvalSpec>,
    /// Generation.
    pub generate: Option<GenerateSpec>,
}

/// A parameter and its tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramParam {
    /// Its row of the parameter table.
    pub param: Param,
    /// The f32 weights that the optimizer updates and checkpoints store; where kernels read
    /// bfloat16, only their lower halves ([`plan::half::split`]), and `compute` has the upper ones.
    /// If each rank keeps a shard of them, they are here after [`ShardedRole::gather`] has run;
    /// likewise `state`.
    pub weight: TensorId,
    /// The weights that kernels read: the same tensor, or its copy in the compute format.
    pub compute: TensorId,
    /// The accumulated gradient, in training.
    pub gradient: Option<TensorId>,
    /// The optimizer's state for it, in training: names and tensors in the order of its table.
    pub state: Vec<(&'static str, TensorId)>,
}

/// A segment that takes tokens with targets and computes losses.
#[derive(Clone, Debug, PartialEq)]
pub struct LossSegment {
    /// The segment.
    pub segment: SegmentId,
    /// Sequences.
    pub rows: u64,
    /// `[rows, positions]` ids, written by the host.
    pub tokens: TensorId,
    /// `[rows, positions]` ids, -1 for none; written by the host.
    pub targets: TensorId,
    /// Whether it is the last slice of a group: then the group's gradients leave with it.
    pub ends_group: bool,
}

/// Which of the segments runs slice number `slice`: the one of its size, and for the last slice
/// of a group the one with which gradients leave.
pub fn slice_segment(segments: &[LossSegment], slices: &[u64], slice: usize) -> Option<usize> {
    let has_groups = segments.iter().any(|segment| segment.ends_group);
    let ends_group = has_groups && slice + 1 == slices.len();
    let rows = *slices.get(slice)?;
    segments.iter().position(|segment| segment.rows == rows && segment.ends_group == ends_group)
}

/// With which segments ranks average their weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AverageSegments {
    /// Sums the gradients of all ranks; each rank gets its pieces, the rest becomes zero.
    pub sum: SegmentId,
    /// Gives all ranks the averages of all pieces: [`Sharing::wire`] numbers at the beginning of
    /// the array of gradients.
    pub gather: SegmentId,
}

/// A flat array of which each rank keeps a shard.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardedRole {
    /// This rank's shard.
    pub root: TensorId,
    /// Puts the shards of all ranks together, in the array of gradients, which must be zero again
    /// before the next iteration.
    pub gather: SegmentId,
    /// Where each parameter then is, in the order of the parameter table.
    pub gathered: Vec<TensorId>,
    /// The first element of each parameter, likewise.
    pub first: Vec<u64>,
}

/// The ids that a caller needs: which segment is which, and which tensor is which. The steps
/// themselves are in the plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// What the model is made of.
    pub architecture: Architecture,
    /// In the order of the parameter table.
    pub parameters: Vec<ProgramParam>,
    /// [`plan::StepState`]; every program has it.
    pub state: TensorId,
    /// Summed loss of each sequence, written at `StepInputs::first_row` and after.
    pub row_loss: Option<TensorId>,
    /// The same of all ranks, one after the other; none in a run of one rank.
    pub row_losses: Option<TensorId>,
    /// Brings `row_loss` of all ranks together.
    pub gather_losses: Option<SegmentId>,
    /// All gradients, flat.
    pub gradients: Option<TensorId>,
    /// How ranks share training.
    pub sharing: Sharing,
    /// What this rank sums and updates.
    pub shard: Shard,
    /// The arrays of which each rank keeps a shard.
    pub sharded: Vec<ShardedRole>,
    /// How ranks average their weights, if they do.
    pub averaging: Option<AverageSegments>,
    /// One for each size of training slice.
    pub train: Vec<LossSegment>,
    /// Sequences of each slice of a group, in order; without groups, of an iteration.
    pub train_slices: Vec<u64>,
    /// The parameter update.
    pub update: Option<SegmentId>,
    /// One for each size of evaluation slice.
    pub eval: Vec<LossSegment>,
    /// Sequences of each slice of an evaluation batch, in order.
    pub eval_slices: Vec<u64>,
    /// Generation.
    pub generate: Option<GenerateSegments>,
}

impl Program {
    /// The training segments of an iteration and how often it runs each: the slices, as often as
    /// there are rounds, and the update.
    pub fn runs(&self) -> Vec<(SegmentId, u64)> {
        let mut times = vec![0; self.train.len()];
        for slice in 0..self.train_slices.len() {
            if let Some(index) = slice_segment(&self.train, &self.train_slices, slice) {
                times[index] += self.sharing.rounds();
            }
        }
        let update = self.update.filter(|_| !self.train_slices.is_empty());
        let slices = self.train.iter().map(|slice| slice.segment).zip(times);
        slices.chain(update.map(|id| (id, 1))).collect()
    }
}

/// A program and its schedule before placement. [`plan::Plan::new`] takes the schedule, and from
/// then on the plan holds the only one.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// Its ids.
    pub program: Program,
    /// All steps.
    pub schedule: Schedule,
}

impl Draft {
    /// Builds all segments of the spec, with the scratch that the backend needs.
    pub fn new(spec: &ProgramSpec, scratch: Rc<dyn Scratch>) -> Result<Draft, PlanError> {
        let levels = spec.train.as_ref().map_or(&[][..], |train| &train.levels);
        FullDraft::new(spec, scratch)?.at(levels)
    }
}

/// A draft in which every layer keeps everything for its backward, whatever levels the spec has.
/// Levels can be applied only once: [`FullDraft::at`] returns a [`Draft`], which has no `at`.
#[derive(Clone, Debug)]
pub struct FullDraft {
    program: Program,
    schedule: Schedule,
    scratch: Rc<dyn Scratch>,
    activations: Activations,
    /// What leaves with the last slice of a group.
    departures: Vec<Op>,
}

impl FullDraft {
    /// Builds all segments of the spec, with the scratch that the backend needs.
    pub fn new(spec: &ProgramSpec, scratch: Rc<dyn Scratch>) -> Result<FullDraft, PlanError> {
        let architecture = spec.model.architecture;
        let op = architecture.network().name();
        let checked = spec.model.dims.checked();
        checked.map_err(|error| PlanError::Attribute { op, problem: error.to_string() })?;
        let mut builder = ScheduleBuilder::with_scratch(Rc::clone(&scratch));
        let tensors = RunTensors::new(&mut builder, spec)?;
        let activations = Activations::new();
        let mut drafting = Drafting { spec: &spec.model, tensors, builder, activations };
        let (mut train, mut update, mut departures) = (Vec::new(), None, Vec::new());
        if let Some(spec) = &spec.train {
            for (rows, ends_group) in train_segments(spec) {
                let slice = drafting.train_slice(spec, rows)?;
                train.push(LossSegment { ends_group, ..slice });
            }
            let Drafting { builder, tensors, .. } = &mut drafting;
            departures = communication::departures(builder, tensors)?;
            update = Some(update::segment(builder, tensors, &spec.optimizer)?);
        }
        let mut eval = Vec::new();
        if let Some(spec) = &spec.eval {
            for rows in distinct(&spec.slices) {
                eval.push(drafting.eval_slice(spec, rows)?);
            }
        }
        let generate = spec.generate.as_ref();
        let generate =
            generate.map(|spec| generation::segments(&mut drafting, spec)).transpose()?;
        let Drafting { mut tensors, mut builder, activations, .. } = drafting;
        let gather_losses = communication::gather_losses(&mut builder, &tensors)?;
        let sharded = communication::sharded_roles(&mut builder, &tensors)?;
        let averaging = communication::averaging(&mut builder, &tensors)?;
        let program = Program {
            architecture,
            parameters: std::mem::take(&mut tensors.parameters),
            state: tensors.state,
            row_loss: tensors.row_loss,
            row_losses: tensors.row_losses,
            gather_losses,
            gradients: tensors.flat.gradients.as_ref().map(|role| role.root),
            sharing: tensors.sharing,
            shard: tensors.shard,
            sharded,
            averaging,
            train,
            train_slices: spec.train.as_ref().map_or(Vec::new(), |train| train.slices.clone()),
            update,
            eval,
            eval_slices: spec.eval.as_ref().map_or(Vec::new(), |eval| eval.slices.clone()),
            generate,
        };
        Ok(FullDraft { program, schedule: builder.finish(), scratch, activations, departures })
    }

    /// The draft in which each layer keeps what its level says.
    pub fn at(self, levels: &[Level]) -> Result<Draft, PlanError> {
        let FullDraft { program, mut schedule, scratch, activations, departures } = self;
        let network = program.architecture.network();
        let mut on_host = Vec::new();
        for slice in &program.train {
            let (tensors, segment) = (&schedule.tensors, slice.segment);
            on_host.push((segment, offloaded(network, &activations, tensors, segment, levels)));
            let dropped = dropped(network, &activations, tensors, segment, levels);
            recompute(&mut schedule, segment, &dropped)?;
        }
        for segment in schedule.segment_ids() {
            fuse(&mut schedule, segment, &*scratch);
        }
        for slice in &program.train {
            if slice.ends_group && !departures.is_empty() {
                let lane = Lane::Communication;
                schedule.insert_when_ready(slice.segment, lane, departures.clone())?;
            }
        }
        offload(&mut schedule, &on_host)?;
        Ok(Draft { program, schedule })
    }
}

/// The sizes of training slices, each once. The last slice of a group has a segment of its own if
/// there are groups: gradients leave with it.
fn train_segments(spec: &TrainSpec) -> Vec<(u64, bool)> {
    let (others, last) = match spec.slices.split_last() {
        Some((last, others)) if spec.sharing.has_groups() => (others, Some((*last, true))),
        _ => (&spec.slices[..], None),
    };
    distinct(others).into_iter().map(|rows| (rows, false)).chain(last).collect()
}

/// Each size once, in the order given, because one segment serves all slices of a size.
fn distinct(sizes: &[u64]) -> Vec<u64> {
    let mut found = Vec::new();
    for &size in sizes {
        if !found.contains(&size) {
            found.push(size); // few: an iteration is cut into two sizes
        }
    }
    found
}

/// A draft whose segments are being built.
pub(crate) struct Drafting<'a> {
    pub spec: &'a ModelSpec,
    pub tensors: RunTensors,
    pub builder: ScheduleBuilder,
    pub activations: Activations,
}

impl Drafting<'_> {
    fn train_slice(&mut self, spec: &TrainSpec, rows: u64) -> Result<LossSegment, PlanError> {
        let name = format!("train {rows}x{}", spec.positions);
        let dropout = self.spec.dropout;
        let mut forward = self.forward(&name, Phase::Train, [rows, spec.positions], dropout);
        let [tokens, targets] = [forward.tokens("tokens")?, forward.tokens("targets")?];
        let x = forward.network(tokens, AttendTo::Whole)?;
        let run = forward.tensors;
        let HeadWeight { w, padding } = run.head;
        let d_w = run.gradient(w)?;
        let [token_loss, slab] = forward.head_tensors(w, spec.head_chunk)?;
        let (row_loss, state) = (run.row_loss()?, run.state);
        forward.segment.push_with_workspace(|workspace| HeadTrain {
            x,
            w,
            d_w,
            targets,
            token_loss,
            row_loss,
            slab,
            state,
            padding,
            workspace,
        })?;
        forward.segment.backward(&run.gradient_of, BTreeMap::new())?;
        let segment = forward.segment.finish();
        Ok(LossSegment { segment, rows, tokens, targets, ends_group: false })
    }

    fn eval_slice(&mut self, spec: &EvalSpec, rows: u64) -> Result<LossSegment, PlanError> {
        let name = format!("eval {rows}x{}", spec.positions);
        let mut forward = self.forward(&name, Phase::Eval, [rows, spec.positions], 0.0);
        let [tokens, targets] = [forward.tokens("tokens")?, forward.tokens("targets")?];
        let x = forward.network(tokens, AttendTo::Whole)?;
        let HeadWeight { w, padding } = forward.tensors.head;
        let [token_loss, slab] = forward.head_tensors(w, spec.head_chunk)?;
        let row_loss = forward.tensors.row_loss()?;
        forward.segment.push_with_workspace(|workspace| HeadEval {
            x,
            w,
            targets,
            token_loss,
            row_loss,
            slab,
            padding,
            workspace,
        })?;
        let segment = forward.segment.finish();
        Ok(LossSegment { segment, rows, tokens, targets, ends_group: false })
    }

    /// Starts a segment.
    pub fn forward(
        &mut self,
        name: &str,
        phase: Phase,
        [rows, positions]: [u64; 2],
        dropout: f32,
    ) -> Forward<'_> {
        let Drafting { spec, tensors, builder, activations } = self;
        let segment = builder.segment(name, phase);
        Forward { spec, tensors, segment, activations, layer: None, rows, positions, dropout }
    }
}

impl Forward<'_> {
    /// Emits the architecture's forward pass. Returns the head's input.
    pub fn network(
        &mut self,
        tokens: TensorId,
        attend_to: AttendTo<'_>,
    ) -> Result<TensorId, PlanError> {
        let architecture = self.spec.architecture;
        let x = architecture.network().forward(self, tokens, attend_to)?;
        self.set_layer(None);
        Ok(x)
    }

    /// Losses of all tokens, and the slab of logits: whole blocks of 256 tokens, but no more rows
    /// than there are tokens.
    fn head_tensors(&mut self, w: TensorId, chunk: u64) -> Result<[TensorId; 2], PlanError> {
        let tokens = self.rows.saturating_mul(self.positions);
        let blocks = chunk.max(1).div_ceil(plan::ops::TOKEN_BLOCK);
        let chunk = blocks.saturating_mul(plan::ops::TOKEN_BLOCK).min(tokens);
        let loss = Shape::new(&[tokens])?;
        let token_loss = self.segment.local("token_loss", Dtype::F32, loss, Role::State)?;
        let logits = Shape::new(&[chunk, self.segment.shape(w).rows()])?;
        let dtype = self.spec.types.compute;
        let slab = self.segment.local("logits", dtype, logits, Role::Logits)?;
        Ok([token_loss, slab])
    }
}
