//! The schedules of a GPT-2: one training slice of any size, the update, evaluation, prefill and
//! decode, over one table of tensors. Reads like nanoGPT's `model.py`.

use crate::dims::{Dims, NORM_EPSILON};
use crate::levels::{Level, dropped};
use crate::params::Param;
use crate::run_tensors::RunTensors;
use crate::update;
use plan::ops::{
    Attention, AttentionDecode, Branch, CacheStore, Dropout, DropoutSite, Embed, Gelu, GeluKind,
    HeadEval, HeadTrain, LayerNorm, Linear, PositionFrom, Scaling, SelectPosition,
};
use plan::recompute::recompute;
use plan::{
    Dtype, Io, Phase, PlanError, Role, Schedule, ScheduleBuilder, Scope, Scratch, SegmentBuilder,
    SegmentId, Shape, Tensor, TensorId,
};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The model itself.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// Its sizes.
    pub dims: Dims,
    /// Probability at all of nanoGPT's places; 0 = none.
    pub dropout: f32,
    /// Exact for nanoGPT's models, tanh for OpenAI's.
    pub gelu: GeluKind,
    /// Its number formats.
    pub types: Types,
}

/// In which formats numbers are kept. Sums, statistics, losses, gradients of parameters and what
/// the optimizer changes are f32 whatever these say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Types {
    /// Of activations and of the weights that kernels read; if not f32, the optimizer keeps an f32
    /// master of the weights.
    pub compute: Dtype,
    /// Of the residual stream.
    pub residual: Dtype,
    /// Of AdamW's moments.
    pub moments: Dtype,
}

impl Types {
    /// f32 throughout.
    pub const F32: Types = Types { compute: Dtype::F32, residual: Dtype::F32, moments: Dtype::F32 };
}

/// AdamW's constants.
#[derive(Clone, Debug, PartialEq)]
pub struct OptimizerSpec {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added after the square root.
    pub eps: f64,
    /// On tensors of two or more dimensions.
    pub weight_decay: f64,
    /// How the loss is scaled.
    pub scaling: Scaling,
    /// What only the update touches (moments, master weights) lives in host memory, and so many
    /// elements of it pass through the device at a time.
    pub offload: Option<u64>,
}

/// How training is cut.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainSpec {
    /// Sequences of each slice of an iteration, in order; one segment for each size.
    pub slices: Vec<u64>,
    /// Tokens of a sequence; at most `block_size`.
    pub positions: u64,
    /// Tokens whose logits exist at one time; rounded up to blocks of 256.
    pub head_chunk: u64,
    /// Sequences of an iteration: room for their losses.
    pub loss_rows: u64,
    /// What each layer keeps for its backward; a layer without a level keeps everything.
    pub levels: Vec<Level>,
    /// The optimizer.
    pub optimizer: OptimizerSpec,
}

/// How evaluation is cut.
#[derive(Clone, Debug, PartialEq)]
pub struct EvalSpec {
    /// Sequences of each slice of a batch, in order; one segment for each size.
    pub slices: Vec<u64>,
    /// Tokens of a sequence; at most `block_size`.
    pub positions: u64,
    /// Tokens whose logits exist at one time; rounded up to blocks of 256.
    pub head_chunk: u64,
    /// Sequences whose losses are kept.
    pub loss_rows: u64,
}

/// How text is generated.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateSpec {
    /// Sequences generated side by side.
    pub rows: u64,
    /// Context lengths to prefill, one segment for each; a shorter context is padded behind. A full
    /// context (`block_size`) is always one of them.
    pub prefill: Vec<u64>,
}

/// Everything that one arena must serve.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramSpec {
    /// The model.
    pub model: ModelSpec,
    /// Training; without it there are no gradients and no moments.
    pub train: Option<TrainSpec>,
    /// Evaluation.
    pub eval: Option<EvalSpec>,
    /// Generation.
    pub generate: Option<GenerateSpec>,
}

/// A parameter and its tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramParam {
    /// Its row of the table.
    pub param: Param,
    /// The weights that the optimizer changes and checkpoints keep: f32.
    pub weight: TensorId,
    /// The weights that kernels read: the same, or their copy in the compute format.
    pub compute: TensorId,
    /// The accumulated gradient, in training.
    pub gradient: Option<TensorId>,
    /// First and second moment, in training.
    pub moments: Option<[TensorId; 2]>,
}

/// A segment that takes tokens with targets and yields losses.
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
}

/// A segment that takes tokens and yields logits of one position of each sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct LogitsSegment {
    /// The segment.
    pub segment: SegmentId,
    /// Tokens of each sequence that it takes.
    pub positions: u64,
    /// `[rows, positions]` ids, written by the host.
    pub tokens: TensorId,
    /// `[rows, 1, vocab_size]`, read by the host.
    pub logits: TensorId,
}

/// Segments of generation.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateSegments {
    /// One for each prefill length, shortest first. Each fills the cache; when a context is full,
    /// each further token runs the longest one again on the last `block_size` tokens.
    pub prefill: Vec<LogitsSegment>,
    /// One more token, at `StepInputs::position`.
    pub decode: LogitsSegment,
}

/// How to get the logits behind a context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NextLogits<'a> {
    /// What to run.
    pub segment: &'a LogitsSegment,
    /// First token to give it; all from here to the end of the context go in, padding behind.
    pub from: usize,
    /// `StepInputs::position`.
    pub position: u64,
    /// Tokens of the context that the cache holds afterwards; 0 when it cannot be continued.
    pub cached: usize,
}

impl GenerateSegments {
    /// For a context of `tokens` tokens (at least one) of which the cache holds the first `cached`:
    /// one decode step where the cache holds all but the last; else a prefill of the shortest
    /// length that fits. Beyond `block_size` every token is a prefill of the last `block_size`
    /// tokens, as in nanoGPT: positions move, so nothing of the cache can serve.
    pub fn next_logits(&self, tokens: usize, cached: usize) -> Option<NextLogits<'_>> {
        let full = self.prefill.last()?;
        let last = tokens.checked_sub(1)?;
        if tokens as u64 > full.positions {
            let from = tokens - full.positions as usize;
            return Some(NextLogits {
                segment: full,
                from,
                position: full.positions - 1,
                cached: 0,
            });
        }
        let (position, cached_after) = (last as u64, tokens);
        if cached > 0 && cached == last {
            let segment = &self.decode;
            return Some(NextLogits { segment, from: last, position, cached: cached_after });
        }
        let segment = self.prefill.iter().find(|segment| segment.positions >= tokens as u64)?;
        Some(NextLogits { segment, from: 0, position, cached: cached_after })
    }
}

/// The ids that a caller needs of a schedule: which segment is which, which tensor is which. The
/// steps themselves stand in the plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// In the order of the parameter table.
    pub parameters: Vec<ProgramParam>,
    /// [`plan::StepState`], always there.
    pub state: TensorId,
    /// Summed loss of each sequence, written at `StepInputs::first_row` and after.
    pub row_loss: Option<TensorId>,
    /// One for each kind of training slice.
    pub train: Vec<LossSegment>,
    /// Sequences of each slice of an iteration, in order.
    pub train_slices: Vec<u64>,
    /// The parameter update.
    pub update: Option<SegmentId>,
    /// One for each kind of evaluation slice.
    pub eval: Vec<LossSegment>,
    /// Sequences of each slice of an evaluation batch, in order.
    pub eval_slices: Vec<u64>,
    /// Generation.
    pub generate: Option<GenerateSegments>,
}

/// A program and its schedule before placement: [`plan::Plan::new`] takes the schedule, and from
/// then on the plan holds the only one.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// Its ids.
    pub program: Program,
    /// All steps.
    pub schedule: Schedule,
}

impl Draft {
    /// Builds all segments that the spec asks for, with the scratch that the backend needs.
    pub fn new(spec: &ProgramSpec, scratch: Rc<dyn Scratch>) -> Result<Draft, PlanError> {
        let checked = spec.model.dims.checked();
        checked.map_err(|error| PlanError::Attribute { op: "gpt2", problem: error.to_string() })?;
        let mut builder = ScheduleBuilder::with_scratch(scratch);
        let tensors = RunTensors::new(&mut builder, spec)?;
        let mut gpt = Gpt { spec: &spec.model, tensors, builder };
        let mut train = Vec::new();
        let mut update = None;
        if let Some(spec) = &spec.train {
            for rows in distinct(&spec.slices) {
                train.push(gpt.train_slice(spec, rows)?);
            }
            update = Some(gpt.update(&spec.optimizer)?);
        }
        let mut eval = Vec::new();
        if let Some(spec) = &spec.eval {
            for rows in distinct(&spec.slices) {
                eval.push(gpt.eval_slice(spec, rows)?);
            }
        }
        let generate = spec.generate.as_ref().map(|spec| gpt.generate(spec)).transpose()?;
        let RunTensors { parameters, state, row_loss, .. } = gpt.tensors;
        let schedule = gpt.builder.finish();
        let train_slices = spec.train.as_ref().map_or(Vec::new(), |train| train.slices.clone());
        let eval_slices = spec.eval.as_ref().map_or(Vec::new(), |eval| eval.slices.clone());
        let program = Program {
            parameters,
            state,
            row_loss,
            train,
            train_slices,
            update,
            eval,
            eval_slices,
            generate,
        };
        let draft = Draft { program, schedule };
        draft.at(spec.train.as_ref().map_or(&[][..], |train| &train.levels))
    }

    /// The same, each layer keeping what its level says. The draft itself keeps everything.
    pub fn at(mut self, levels: &[Level]) -> Result<Draft, PlanError> {
        for slice in &self.program.train {
            let dropped = dropped(&self.schedule, slice.segment, levels);
            recompute(&mut self.schedule, slice.segment, &dropped)?;
        }
        Ok(self)
    }
}

/// Each size once, in the order given: one segment serves all slices of a size.
fn distinct(sizes: &[u64]) -> Vec<u64> {
    let mut found = Vec::new();
    for &size in sizes {
        if !found.contains(&size) {
            found.push(size); // few: an iteration is cut into two sizes
        }
    }
    found
}

struct Gpt<'a> {
    spec: &'a ModelSpec,
    tensors: RunTensors,
    builder: ScheduleBuilder,
}

impl Gpt<'_> {
    fn train_slice(&mut self, spec: &TrainSpec, rows: u64) -> Result<LossSegment, PlanError> {
        let name = format!("train {rows}x{}", spec.positions);
        let mut forward = self.forward(&name, Phase::Train, rows, spec.positions, true);
        let [tokens, targets] = forward.token_inputs()?;
        let x = forward.blocks(tokens, PositionFrom::Zero, AttendTo::Whole)?;
        let (w, run) = (forward.weight("wte.weight")?, forward.tensors);
        let d_w = run.gradient(w)?;
        let [token_loss, slab] = forward.head_tensors(spec.head_chunk)?;
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
            workspace,
        })?;
        forward.segment.backward(&run.gradient_of, BTreeMap::new())?;
        Ok(LossSegment { segment: forward.segment.finish(), rows, tokens, targets })
    }

    fn eval_slice(&mut self, spec: &EvalSpec, rows: u64) -> Result<LossSegment, PlanError> {
        let name = format!("eval {rows}x{}", spec.positions);
        let mut forward = self.forward(&name, Phase::Eval, rows, spec.positions, false);
        let [tokens, targets] = forward.token_inputs()?;
        let x = forward.blocks(tokens, PositionFrom::Zero, AttendTo::Whole)?;
        let (w, run) = (forward.weight("wte.weight")?, forward.tensors);
        let [token_loss, slab] = forward.head_tensors(spec.head_chunk)?;
        let row_loss = run.row_loss()?;
        forward.segment.push_with_workspace(|workspace| HeadEval {
            x,
            w,
            targets,
            token_loss,
            row_loss,
            slab,
            workspace,
        })?;
        Ok(LossSegment { segment: forward.segment.finish(), rows, tokens, targets })
    }

    fn update(&mut self, spec: &OptimizerSpec) -> Result<SegmentId, PlanError> {
        update::segment(&mut self.builder, &self.tensors, spec)
    }

    fn generate(&mut self, spec: &GenerateSpec) -> Result<GenerateSegments, PlanError> {
        let caches = self.caches(spec.rows)?;
        let mut lengths = spec.prefill.clone();
        lengths.push(self.spec.dims.block_size);
        lengths.sort_unstable();
        lengths.dedup();
        let mut prefill = Vec::new();
        for positions in lengths {
            let name = format!("prefill {}x{positions}", spec.rows);
            prefill.push(self.logits_segment(
                &name,
                spec.rows,
                positions,
                AttendTo::Fill(&caches),
            )?);
        }
        let name = format!("decode {}x1", spec.rows);
        let decode = self.logits_segment(&name, spec.rows, 1, AttendTo::Cached(&caches))?;
        Ok(GenerateSegments { prefill, decode })
    }

    /// Keys and values of each layer, kept from one segment of generation to the next.
    fn caches(&mut self, rows: u64) -> Result<Vec<TensorId>, PlanError> {
        let dims = self.spec.dims;
        let shape = [2, rows, dims.n_head, dims.block_size, dims.head_size()];
        (0..dims.n_layer as u32)
            .map(|layer| {
                self.builder.tensor(Tensor {
                    name: format!("h.{layer}.cache"),
                    dtype: self.spec.types.compute,
                    shape: Shape::new(&shape)?,
                    role: Role::Cache,
                    scope: Scope::Phase(Phase::Generate),
                    layer: Some(layer),
                    io: Io::Device,
                    view: None,
                })
            })
            .collect()
    }

    fn logits_segment(
        &mut self,
        name: &str,
        rows: u64,
        positions: u64,
        attend_to: AttendTo<'_>,
    ) -> Result<LogitsSegment, PlanError> {
        let from = match attend_to {
            AttendTo::Cached(_) => PositionFrom::Step,
            AttendTo::Whole | AttendTo::Fill(_) => PositionFrom::Zero,
        };
        let mut forward = self.forward(name, Phase::Generate, rows, positions, false);
        let tokens = forward.tokens("tokens")?;
        let mut x = forward.blocks(tokens, from, attend_to)?;
        if from == PositionFrom::Zero {
            let shape = Shape::new(&[rows, 1, forward.spec.dims.n_embd])?;
            let dtype = forward.spec.types.compute;
            let out = forward.segment.local("last", dtype, shape, Role::Activation)?;
            forward.segment.push(SelectPosition { x, out })?;
            x = out;
        }
        let shape = Shape::new(&[rows, 1, forward.spec.dims.vocab_size])?;
        let segment = &mut forward.segment;
        let logits = segment.host_tensor("logits", Dtype::F32, shape, Role::Logits, Io::Output)?;
        let w = forward.weight("wte.weight")?;
        let head = |workspace| Linear { x, w, bias: None, out: logits, workspace };
        forward.segment.push_with_workspace(head)?;
        Ok(LogitsSegment { segment: forward.segment.finish(), positions, tokens, logits })
    }

    fn forward(
        &mut self,
        name: &str,
        phase: Phase,
        rows: u64,
        positions: u64,
        training: bool,
    ) -> Forward<'_> {
        let segment = self.builder.segment(name, phase);
        let dropout = if training { self.spec.dropout } else { 0.0 };
        Forward { spec: self.spec, tensors: &self.tensors, segment, rows, positions, dropout }
    }
}

/// What attention looks at.
#[derive(Clone, Copy)]
enum AttendTo<'a> {
    /// The sequence itself.
    Whole,
    /// The sequence itself, its keys and values kept.
    Fill(&'a [TensorId]),
    /// One token against what was kept.
    Cached(&'a [TensorId]),
}

/// The forward pass of one segment.
struct Forward<'a> {
    spec: &'a ModelSpec,
    tensors: &'a RunTensors,
    segment: SegmentBuilder<'a>,
    rows: u64,
    positions: u64,
    dropout: f32,
}

/// The layer norm behind a residual addition.
#[derive(Clone, Copy)]
enum NextNorm {
    /// A block's first.
    First(u32),
    /// A block's second.
    Second(u32),
    /// The last of all.
    Final,
}

/// The residual stream, and it normalised.
struct Joined {
    /// The residual stream.
    x: TensorId,
    /// It, normalised.
    normalised: TensorId,
}

impl Forward<'_> {
    /// Embedding, all blocks and the last layer norm.
    fn blocks(
        &mut self,
        tokens: TensorId,
        position: PositionFrom,
        attend_to: AttendTo<'_>,
    ) -> Result<TensorId, PlanError> {
        let layers = self.spec.dims.n_layer as u32;
        self.segment.set_layer(Some(0));
        let x = self.residual("x")?;
        self.segment.set_layer(None);
        let (wte, wpe) = (self.weight("wte.weight")?, self.weight("wpe.weight")?);
        let dropout = self.dropout_at(0, DropoutSite::Embedding);
        self.segment.push(Embed { tokens, wte, wpe, out: x, position, dropout })?;
        self.segment.set_layer(Some(0));
        let normalised = self.norm(x, None, "h.0.ln_1", "ln_1")?;
        let mut stream = Joined { x, normalised };
        for layer in 0..layers {
            stream = self.block(stream, layer, attend_to)?;
        }
        self.segment.set_layer(None);
        Ok(stream.normalised)
    }

    /// `x + attn(ln_1(x))`, then `+ mlp(ln_2(x))`, then the norm that comes next: the following
    /// block's first, or the last one of all.
    fn block(
        &mut self,
        stream: Joined,
        layer: u32,
        attend_to: AttendTo<'_>,
    ) -> Result<Joined, PlanError> {
        self.segment.set_layer(Some(layer));
        let branch = self.attention(stream.normalised, layer, attend_to)?;
        let site = DropoutSite::AttentionProjection;
        let middle = self.join(stream.x, branch, layer, site, NextNorm::Second(layer))?;
        let branch = self.mlp(middle.normalised, layer)?;
        let site = DropoutSite::MlpProjection;
        let last = u64::from(layer) + 1 == self.spec.dims.n_layer;
        let next = if last { NextNorm::Final } else { NextNorm::First(layer + 1) };
        self.join(middle.x, branch, layer, site, next)
    }

    fn attention(
        &mut self,
        x: TensorId,
        layer: u32,
        attend_to: AttendTo<'_>,
    ) -> Result<TensorId, PlanError> {
        let dims = self.spec.dims;
        let qkv = self.linear(x, layer, "attn.c_attn", "qkv", 3 * dims.n_embd)?;
        let out = self.activation("att", dims.n_embd)?;
        match attend_to {
            AttendTo::Cached(caches) => {
                let cache = caches[layer as usize];
                let attend = |workspace| AttentionDecode { qkv, cache, out, workspace };
                self.segment.push_with_workspace(attend)?;
            }
            AttendTo::Whole | AttendTo::Fill(_) => {
                let shape = Shape::new(&[self.rows, dims.n_head, self.positions])?;
                let lse = self.segment.local("lse", Dtype::F32, shape, Role::Activation)?;
                let dropout = self.dropout_at(layer, DropoutSite::Attention);
                let heads = dims.n_head;
                let attend = |workspace| Attention { qkv, out, lse, heads, dropout, workspace };
                self.segment.push_with_workspace(attend)?;
            }
        }
        if let AttendTo::Fill(caches) = attend_to {
            self.segment.push(CacheStore { qkv, cache: caches[layer as usize] })?;
        }
        self.linear(out, layer, "attn.c_proj", "att_proj", dims.n_embd)
    }

    fn mlp(&mut self, x: TensorId, layer: u32) -> Result<TensorId, PlanError> {
        let width = self.spec.dims.n_embd;
        let fch = self.linear(x, layer, "mlp.c_fc", "fch", 4 * width)?;
        let gelu = self.activation("gelu", 4 * width)?;
        self.segment.push(Gelu { x: fch, out: gelu, kind: self.spec.gelu })?;
        self.linear(gelu, layer, "mlp.c_proj", "mlp_proj", width)
    }

    /// Residual addition and the layer norm behind it, one op; it belongs where its norm does.
    fn join(
        &mut self,
        x: TensorId,
        branch: TensorId,
        layer: u32,
        site: DropoutSite,
        next: NextNorm,
    ) -> Result<Joined, PlanError> {
        let dropout = self.dropout_at(layer, site);
        let (owner, parameter, name) = match next {
            NextNorm::First(layer) => (Some(layer), format!("h.{layer}.ln_1"), "ln_1"),
            NextNorm::Second(layer) => (Some(layer), format!("h.{layer}.ln_2"), "ln_2"),
            NextNorm::Final => (None, "ln_f".to_string(), "ln_f"),
        };
        self.segment.set_layer(owner);
        let sum_name = if name == "ln_2" { "x_mid" } else { "x" };
        let sum = self.residual(sum_name)?;
        let normalised = self.norm(x, Some(Branch { branch, dropout, sum }), &parameter, name)?;
        Ok(Joined { x: sum, normalised })
    }

    fn norm(
        &mut self,
        x: TensorId,
        add: Option<Branch>,
        parameter: &str,
        name: &str,
    ) -> Result<TensorId, PlanError> {
        let out = self.activation(name, self.spec.dims.n_embd)?;
        let rows = Shape::new(&[self.segment.shape(x).rows()])?;
        let mut statistic = |what: &str| {
            let name = format!("{name}_{what}");
            self.segment.local(&name, Dtype::F32, rows, Role::Activation)
        };
        let (mean, rstd) = (statistic("mean")?, statistic("rstd")?);
        let gain = self.weight(&format!("{parameter}.weight"))?;
        let bias = self.bias(&format!("{parameter}.bias"))?;
        let epsilon = NORM_EPSILON;
        self.segment.push(LayerNorm { x, add, gain, bias, out, mean, rstd, epsilon })?;
        Ok(out)
    }

    fn linear(
        &mut self,
        x: TensorId,
        layer: u32,
        parameter: &str,
        name: &str,
        width: u64,
    ) -> Result<TensorId, PlanError> {
        let out = self.activation(name, width)?;
        let w = self.weight(&format!("h.{layer}.{parameter}.weight"))?;
        let bias = self.bias(&format!("h.{layer}.{parameter}.bias"))?;
        self.segment.push_with_workspace(|workspace| Linear { x, w, bias, out, workspace })?;
        Ok(out)
    }

    fn activation(&mut self, name: &str, width: u64) -> Result<TensorId, PlanError> {
        let shape = Shape::new(&[self.rows, self.positions, width])?;
        self.segment.local(name, self.spec.types.compute, shape, Role::Activation)
    }

    /// The residual stream at one place.
    fn residual(&mut self, name: &str) -> Result<TensorId, PlanError> {
        let shape = Shape::new(&[self.rows, self.positions, self.spec.dims.n_embd])?;
        self.segment.local(name, self.spec.types.residual, shape, Role::Activation)
    }

    fn tokens(&mut self, name: &str) -> Result<TensorId, PlanError> {
        let shape = Shape::new(&[self.rows, self.positions])?;
        self.segment.run_input(name, Dtype::I32, shape, Role::Tokens)
    }

    fn token_inputs(&mut self) -> Result<[TensorId; 2], PlanError> {
        Ok([self.tokens("tokens")?, self.tokens("targets")?])
    }

    /// Losses of all tokens, and the slab of logits: whole blocks of 256 tokens, never more than
    /// there are.
    fn head_tensors(&mut self, chunk: u64) -> Result<[TensorId; 2], PlanError> {
        let tokens = self.rows.saturating_mul(self.positions);
        let blocks = chunk.max(1).div_ceil(plan::ops::TOKEN_BLOCK);
        let chunk = blocks.saturating_mul(plan::ops::TOKEN_BLOCK).min(tokens);
        let loss = Shape::new(&[tokens])?;
        let token_loss = self.segment.local("token_loss", Dtype::F32, loss, Role::State)?;
        let logits = Shape::new(&[chunk, self.spec.dims.vocab_size])?;
        let dtype = self.spec.types.compute;
        let slab = self.segment.local("logits", dtype, logits, Role::Logits)?;
        Ok([token_loss, slab])
    }

    fn weight(&self, name: &str) -> Result<TensorId, PlanError> {
        self.tensors.weight(name)
    }

    fn bias(&self, name: &str) -> Result<Option<TensorId>, PlanError> {
        if self.spec.dims.bias { self.weight(name).map(Some) } else { Ok(None) }
    }

    fn dropout_at(&self, layer: u32, site: DropoutSite) -> Option<Dropout> {
        let probability = self.dropout;
        (probability != 0.0).then_some(Dropout { probability, layer, site })
    }
}
