//! Estimates for deep models from a model with three layers. Layers are alike: what the inner layer
//! keeps, needs while it runs and costs holds for every layer at its level. So candidates need not
//! be built in full. All estimates are read from a schedule; there are no size formulas.

use crate::levels::LayerCost;
use crate::machine::Machine;
use crate::task::Task;
use model::{Dims, Draft, FullDraft, Level, ModelSpec, ProgramSpec, Sharing, TrainSpec};
use plan::cost::{head_seconds, step_seconds};
use plan::hardware::Hardware;
use plan::lifetimes::{lifetimes, live_bytes};
use plan::ops::{HeadTrain, HeadWork, Op};
use plan::{Bytes, Lane, Live, Pass, PlanError, Role, Schedule, Scope, SegmentId, Step, TensorId};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Layers of the model that is built: a first, an inner and a last one.
const LAYERS: u64 = 3;
const INNER: u32 = 1;

/// Estimates for slices of one size at one level of recompute.
pub struct Probe {
    /// The level that all three layers were built at.
    pub level: Level,
    /// The costs of its inner layer.
    pub layer: LayerCost,
    /// Seconds of the kernels in the inner layer's forward.
    pub forward_seconds: f64,
    /// Seconds for which the inner layer's copies occupy the link in one direction.
    pub copy_seconds: f64,
    /// Bytes that the inner layer keeps in host memory.
    pub copy_bytes: u64,
    /// Sequences of a slice, and its tokens.
    pub rows: u64,
    pub tokens: u64,
    /// Bytes of the kernels' scratch.
    pub scratch: u64,
    /// Bytes alive around the head in addition to what layers keep, without the logits.
    head_bytes: u64,
    /// Bytes of one token's logits.
    logits_bytes: u64,
    /// Seconds of everything outside the layers and the head.
    outside_seconds: f64,
    /// Seconds of the head without what each chunk costs, and what a chunk costs.
    head_seconds: f64,
    chunk_seconds: f64,
}

impl Probe {
    fn new(reading: &Reading<'_>, level: Level, [rows, tokens]: [u64; 2]) -> Probe {
        let kept: Vec<u64> = (0..LAYERS as u32).map(|layer| reading.kept_by(layer)).collect();
        let below: u64 = kept[..=INNER as usize].iter().sum();
        let (logits, head_chunk) = reading.logits();
        let in_layer = reading.most_alive(Some(INNER));
        let around = reading.most_alive(None).saturating_sub(kept.iter().sum());
        let [head_seconds, with_one] = reading.head_seconds();
        Probe {
            level,
            layer: LayerCost {
                kept: kept[INNER as usize],
                peak: in_layer.saturating_sub(below),
                seconds: reading.seconds(|step| step.layer == Some(INNER) && !step.lane.is_copy())
                    + reading.waiting_seconds(INNER),
            },
            forward_seconds: reading.seconds(|step| {
                step.layer == Some(INNER) && step.pass == Pass::Forward && !step.lane.is_copy()
            }),
            copy_seconds: reading
                .seconds(|step| step.layer == Some(INNER) && step.lane == Lane::Download),
            copy_bytes: reading.copied_by(INNER),
            rows,
            tokens,
            scratch: scratch_bytes(reading.schedule),
            head_bytes: around.saturating_sub(logits),
            logits_bytes: logits / head_chunk.max(1),
            outside_seconds: reading.seconds(|step| step.layer.is_none()),
            head_seconds,
            chunk_seconds: with_one - head_seconds,
        }
    }

    /// Bytes around the head in addition to what the layers keep, with chunks of `chunk` tokens.
    pub fn around_bytes(&self, chunk: u64) -> u64 {
        self.head_bytes.saturating_add(self.logits_bytes.saturating_mul(chunk))
    }

    /// Seconds of a slice outside its layers, with head chunks of `chunk` tokens.
    pub fn rest_seconds(&self, chunk: u64) -> f64 {
        let chunks = self.tokens.div_ceil(chunk.clamp(1, self.tokens.max(1))) as f64;
        self.outside_seconds + self.head_seconds + chunks * self.chunk_seconds
    }
}

/// Builds probes, each only once.
pub struct Prober<'a> {
    model: ModelSpec,
    train: TrainSpec,
    machine: &'a Machine,
    seen: RefCell<BTreeMap<(u64, Level), Rc<Probe>>>,
    /// The latest model that recomputes nothing, and the number of sequences in its slice.
    last: RefCell<Option<(u64, Rc<FullDraft>)>>,
}

impl<'a> Prober<'a> {
    pub fn new(task: &Task<'a>) -> Prober<'a> {
        let dims = Dims { n_layer: LAYERS, ..task.dims };
        let (seen, last) = (RefCell::default(), RefCell::default());
        // What travels between ranks is the same for all slices.
        let train = TrainSpec { sharing: Sharing::NONE, ..task.train_spec() };
        let model = ModelSpec { dims, ..task.model() };
        Prober { model, train, machine: task.machine, seen, last }
    }

    /// The probe for slices of `rows` sequences at one level.
    pub fn probe(&self, rows: u64, level: Level) -> Result<Rc<Probe>, PlanError> {
        if let Some(seen) = self.seen.borrow().get(&(rows, level)) {
            return Ok(Rc::clone(seen));
        }
        let full = FullDraft::clone(&*self.keeping_all(rows)?);
        let Draft { program, schedule } = full.at(&[level; LAYERS as usize])?;
        let tokens = rows.saturating_mul(self.train.positions);
        let segment = program.train[0].segment;
        let reading = Reading::new(&schedule, segment, &self.machine.hardware);
        let probe = Rc::new(Probe::new(&reading, level, [rows, tokens]));
        self.seen.borrow_mut().insert((rows, level), Rc::clone(&probe));
        Ok(probe)
    }

    /// The model that recomputes nothing. Other levels are rewrites of it.
    fn keeping_all(&self, rows: u64) -> Result<Rc<FullDraft>, PlanError> {
        if let Some((_, draft)) = self.last.borrow().as_ref().filter(|(of, _)| *of == rows) {
            return Ok(Rc::clone(draft));
        }
        let train = TrainSpec {
            slices: vec![rows],
            head_chunk: plan::ops::TOKEN_BLOCK,
            ..self.train.clone()
        };
        let model = self.model.clone();
        let spec = ProgramSpec { model, train: Some(train), eval: None, generate: None };
        let draft = Rc::new(FullDraft::new(&spec, Rc::clone(&self.machine.scratch))?);
        *self.last.borrow_mut() = Some((rows, Rc::clone(&draft)));
        Ok(draft)
    }
}

/// The training segment of a small model, and the bytes alive at each of its steps.
struct Reading<'a> {
    schedule: &'a Schedule,
    segment: SegmentId,
    hardware: &'a Hardware,
    steps: &'a [Step],
    lives: BTreeMap<TensorId, Live>,
    /// Bytes alive at each step.
    alive: Vec<u64>,
    /// The step of the head, between forward and backward.
    head: usize,
}

impl<'a> Reading<'a> {
    fn new(schedule: &'a Schedule, segment: SegmentId, hardware: &'a Hardware) -> Reading<'a> {
        let steps = &schedule.segment(segment).steps[..];
        let lives = lifetimes(schedule, segment);
        let alive = live_bytes(schedule, segment, &lives)
            .map_or(vec![u64::MAX; steps.len()], |live| live.iter().map(|b| b.get()).collect());
        let head = steps.iter().position(is_head).unwrap_or(0);
        Reading { schedule, segment, hardware, steps, lives, alive, head }
    }

    fn size(&self, id: TensorId) -> u64 {
        self.schedule.tensors.bytes(id).aligned().map_or(0, Bytes::get)
    }

    /// Bytes that a layer keeps from its forward to its backward.
    fn kept_by(&self, layer: u32) -> u64 {
        let of_layer = |id: &&TensorId| self.schedule.tensors.get(**id).layer == Some(layer);
        let at_head = self.lives.iter().filter(|(_, live)| live.contains(self.head));
        at_head.map(|(id, _)| id).filter(of_layer).map(|&id| self.size(id)).sum()
    }

    /// Seconds that kernels lose because they wait for copies of a layer.
    fn waiting_seconds(&self, layer: u32) -> f64 {
        let is_copy = |&wait: &usize| {
            let copy = &self.steps[wait];
            copy.lane.is_copy() && copy.layer == Some(layer)
        };
        let waits = |step: &&Step| step.lane == Lane::Compute && step.waits.iter().any(is_copy);
        self.steps.iter().filter(waits).count() as f64 * self.hardware.copy_wait
    }

    /// Bytes that a layer sends to the host's memory.
    fn copied_by(&self, layer: u32) -> u64 {
        let own = |step: &&Step| step.layer == Some(layer) && step.lane == Lane::Download;
        let sent = self.steps.iter().filter(own).filter_map(|step| match &step.op {
            Op::Transfer(copy) => Some(self.size(copy.from)),
            _ => None,
        });
        sent.sum()
    }

    /// The most bytes alive at any step of a layer, or of what belongs to no layer.
    fn most_alive(&self, layer: Option<u32>) -> u64 {
        let own = self.steps.iter().zip(&self.alive).filter(|(step, _)| step.layer == layer);
        own.map(|(_, &alive)| alive).max().unwrap_or(0)
    }

    /// Bytes of the slab of logits, and its tokens.
    fn logits(&self) -> (u64, u64) {
        let tensors = &self.schedule.tensors;
        let slab = tensors.ids().find(|&id| {
            let tensor = tensors.get(id);
            tensor.role == Role::Logits && tensor.scope == Scope::Segment(self.segment)
        });
        slab.map_or((0, 1), |id| (self.size(id), tensors.get(id).shape.rows()))
    }

    /// Seconds of some steps, without the head and the update.
    fn seconds(&self, own: impl Fn(&Step) -> bool) -> f64 {
        let steps = self.steps.iter().filter(|step| own(step) && step.pass != Pass::Update);
        steps.filter(|step| !is_head(step)).map(|step| self.step_seconds(step)).sum()
    }

    fn step_seconds(&self, step: &Step) -> f64 {
        step_seconds(&step.op, &self.schedule.tensors, self.hardware)
    }

    /// Seconds of the head if it had no chunk, and if it had one.
    fn head_seconds(&self) -> [f64; 2] {
        let head = head(&self.steps[self.head]);
        let work = head.map(|head| head.work(&self.schedule.tensors));
        [0, 1].map(|chunks| {
            work.map_or(0.0, |work| head_seconds(&HeadWork { chunks, ..work }, self.hardware))
        })
    }
}

/// The step that turns the forward into the backward. An op that is another head belongs here.
fn head(step: &Step) -> Option<&HeadTrain> {
    match &step.op {
        Op::HeadTrain(head) => Some(head),
        Op::Embed(_)
        | Op::EmbedBackward(_)
        | Op::LayerNorm(_)
        | Op::LayerNormBackward(_)
        | Op::Linear(_)
        | Op::LinearBackwardInput(_)
        | Op::LinearBackwardWeight(_)
        | Op::Attention(_)
        | Op::AttentionBackward(_)
        | Op::AttentionDecode(_)
        | Op::Gelu(_)
        | Op::GeluBackward(_)
        | Op::HeadEval(_)
        | Op::CacheStore(_)
        | Op::SelectPosition(_)
        | Op::GradNorm(_)
        | Op::LossScaler(_)
        | Op::AdamW(_)
        | Op::Transfer(_)
        | Op::Clear(_)
        | Op::SquareSums(_)
        | Op::NormOfSums(_)
        | Op::ReduceScatter(_)
        | Op::AllGather(_) => None,
    }
}

fn is_head(step: &Step) -> bool {
    head(step).is_some()
}

/// Bytes of the kernels' scratch. It outlives segments but grows with their slices.
pub fn scratch_bytes(schedule: &Schedule) -> u64 {
    let tensors = &schedule.tensors;
    let is_scratch = |id: &TensorId| {
        let tensor = tensors.get(*id);
        tensor.role == Role::Workspace && tensor.scope == Scope::Run
    };
    let size = |id| tensors.bytes(id).aligned().map_or(0, Bytes::get);
    tensors.ids().filter(is_scratch).map(size).sum()
}
