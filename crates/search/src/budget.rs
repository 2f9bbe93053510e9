//! The search: a byte budget in, the fastest way to cut and recompute an iteration out. Slices and
//! head chunk are tried in turn; for each, the levels of the layers are the cheapest count vector
//! that fits, found exactly. Sizes and times come from the schedule of a three-layer model (layers
//! are alike), and the plan that is chosen is built whole and measured before it is believed.

use crate::levels_search::{Layer, Limits, cheapest};
use crate::machine::{Levers, Machine};
use model::{Dims, Draft, Level, ProgramSpec, TrainSpec};
use plan::cost::step_seconds;
use plan::hardware::Hardware;
use plan::lifetimes::{lifetimes, live_bytes};
use plan::ops::Op;
use plan::{Bytes, Pass, PlanError, Role, Schedule, Scope, SegmentId};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Head chunks that are tried, in tokens. Below, products become too thin; above, nothing is won:
/// of 2048, 4096, 8192 and all at once, 4096 was measured fastest (`docs/experiments.md`).
const CHUNKS: [u64; 3] = [1024, 2048, 4096];

/// Where memory is short, these besides.
const THIN_CHUNKS: [u64; 2] = [256, 512];

/// Slices of more tokens than this win nothing any more.
const MOST_TOKENS: u64 = 1 << 18;

/// Slices up to so many sequences are tried one by one, larger ones in steps of this ratio.
const FINE: u64 = 16;
const STEP: f64 = 1.15;

/// Plans this near to the fastest are as good; the smallest of them is taken.
const AS_GOOD: f64 = 1.01;

/// Layers of the model that is measured: a first, an inner and a last one.
const PROBED_LAYERS: u64 = 3;
const INNER: u32 = 1;

/// How an iteration is cut and what is recomputed.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut {
    /// Sequences of each slice, larger ones first.
    pub slices: Vec<u64>,
    /// Tokens whose logits exist at one time.
    pub head_chunk: u64,
    /// What each layer keeps.
    pub levels: Vec<Level>,
    /// What is done with the optimizer's state.
    pub levers: Levers,
}

/// A cut with what the small models say of it.
pub struct Candidate {
    /// What it is.
    pub cut: Cut,
    /// Predicted seconds of an iteration.
    seconds: f64,
    /// Estimated bytes of the training segments, run-wide tensors but scratch not counted.
    pub bytes: u64,
}

/// The near-equal parts of `sequences`, larger ones first.
pub fn cut(sequences: u64, parts: u64) -> Vec<u64> {
    let parts = parts.clamp(1, sequences.max(1));
    let (least, more) = (sequences / parts, sequences % parts);
    (0..parts).map(|part| least + u64::from(part < more)).collect()
}

/// Numbers of parts, fewest first: each that gives another largest slice of at most `most` rows; of
/// many, those whose sizes are a step apart.
fn part_counts(sequences: u64, most: u64) -> Vec<u64> {
    let mut counts = Vec::new();
    let mut rows = sequences.min(most.max(1));
    while rows > 0 {
        let parts = sequences.div_ceil(rows);
        counts.push(parts);
        let largest = sequences.div_ceil(parts);
        let step = if largest > FINE { (largest as f64 / STEP) as u64 } else { largest - 1 };
        rows = step.min(largest - 1);
    }
    counts
}

/// What the search is about.
pub struct Search<'a> {
    /// The program that is cut; its `train` gives everything but slices, chunk and levels.
    pub spec: ProgramSpec,
    /// How training is asked for.
    pub train: TrainSpec,
    /// Sequences of an iteration.
    pub sequences: u64,
    /// Levels that may be used.
    pub levels: &'a [Level],
    /// Where it runs.
    pub machine: &'a Machine,
    /// What was looked at before.
    pub seen: Seen,
}

/// Small models that were looked at, by sequences and level, and the last one that keeps all.
#[derive(Default)]
pub struct Seen(RefCell<BTreeMap<(u64, Level), Rc<Probe>>>, RefCell<Option<(u64, Rc<Draft>)>>);

impl Search<'_> {
    /// The best cut whose training segments need at most `available` bytes: the smallest of
    /// those that are as good as the fastest. None when none fits.
    pub fn best(&self, available: u64) -> Result<Option<Candidate>, PlanError> {
        let mut found: Vec<Candidate> = Vec::new();
        let mut fastest = f64::INFINITY;
        for parts in part_counts(self.sequences, MOST_TOKENS / self.train.positions.max(1)) {
            let rows = self.sequences.div_ceil(parts);
            let tokens = rows.saturating_mul(self.train.positions);
            let probes = self.probes(rows, available)?;
            if probes.is_empty() {
                continue;
            }
            let thin = if available == u64::MAX { &[][..] } else { &THIN_CHUNKS };
            let thin = thin.iter().copied().filter(|&chunk| chunk < tokens);
            for chunk in thin.chain(chunks(tokens)) {
                let one = self.choose(&probes, chunk, parts, available);
                if let Some(one) = one.filter(|one| one.seconds <= fastest * AS_GOOD) {
                    fastest = fastest.min(one.seconds);
                    found.push(one);
                }
            }
            // Smaller slices only cost more from here on.
            let floor = self.seconds_at(&probes, parts, tokens);
            if floor > fastest * AS_GOOD * AS_GOOD {
                break;
            }
        }
        found.retain(|one| one.seconds <= fastest * AS_GOOD);
        let smallest = found
            .into_iter()
            .min_by(|a, b| a.bytes.cmp(&b.bytes).then(a.seconds.total_cmp(&b.seconds)));
        Ok(smallest)
    }

    /// Each level for slices of so many sequences, those that keep most first; none where not even
    /// the strongest fits. Where the weakest fits, the others are not looked at: they cost more.
    fn probes(&self, rows: u64, available: u64) -> Result<Vec<Rc<Probe>>, PlanError> {
        let level = |level: Option<&Level>| level.copied().unwrap_or_default();
        let weakest = self.probe(rows, level(self.levels.first()))?;
        if self.needs(&weakest, weakest.tokens) <= available {
            return Ok(vec![weakest]);
        }
        let strongest = self.probe(rows, level(self.levels.last()))?;
        if self.needs(&strongest, 0) > available {
            return Ok(Vec::new());
        }
        let all = self.levels.iter().map(|&level| self.probe(rows, level));
        let mut probes = all.collect::<Result<Vec<Rc<Probe>>, PlanError>>()?;
        probes.sort_by_key(|probe| std::cmp::Reverse(probe.layer.kept));
        Ok(probes)
    }

    /// The level at which single sequences need least, and how much that is. In deep models it is
    /// the strongest; in flat ones what is made again may be more than what is kept.
    pub fn least(&self) -> Result<(Level, u64), PlanError> {
        let mut least = (self.levels.first().copied().unwrap_or_default(), u64::MAX);
        for &level in self.levels {
            let probe = self.probe(1, level)?;
            let bytes = self.needs(&probe, plan::ops::TOKEN_BLOCK.min(probe.tokens));
            if bytes < least.1 {
                least = (level, bytes);
            }
        }
        Ok(least)
    }

    /// Bytes with all layers at one level, and so many tokens' logits.
    fn needs(&self, probe: &Probe, chunk: u64) -> u64 {
        let kept = probe.layer.kept.saturating_mul(self.spec.model.dims.n_layer);
        let around = probe.layer.peak.max(probe.around_bytes(chunk));
        kept.saturating_add(around).saturating_add(probe.scratch)
    }

    /// Seconds of an iteration that keeps everything.
    fn seconds_at(&self, probes: &[Rc<Probe>], parts: u64, chunk: u64) -> f64 {
        let cheapest = probes.iter().map(|probe| probe.layer.seconds).fold(f64::INFINITY, f64::min);
        let layers = self.spec.model.dims.n_layer as f64 * cheapest;
        self.slices_of(parts) * (layers + probes[0].rest_seconds(chunk, &self.machine.hardware))
    }

    /// Largest slices that an iteration amounts to: of uneven ones, some are a little smaller.
    fn slices_of(&self, parts: u64) -> f64 {
        self.sequences as f64 / self.sequences.div_ceil(parts) as f64
    }

    fn choose(
        &self,
        probes: &[Rc<Probe>],
        chunk: u64,
        parts: u64,
        available: u64,
    ) -> Option<Candidate> {
        let scratch = probes[0].scratch;
        let layers: Vec<Layer> = probes.iter().map(|probe| probe.layer).collect();
        let limits = Limits {
            layers: self.spec.model.dims.n_layer as usize,
            available: available.saturating_sub(scratch),
            around: probes[0].around_bytes(chunk),
        };
        let found = cheapest(&layers, &limits)?;
        let rest = probes[0].rest_seconds(chunk, &self.machine.hardware);
        let strongest_first = found.counts.iter().zip(probes).rev();
        let levels = strongest_first.flat_map(|(&count, probe)| vec![probe.level; count]).collect();
        let levers = Levers::NONE; // what they cost is known when the plan is built
        Some(Candidate {
            cut: Cut { slices: cut(self.sequences, parts), head_chunk: chunk, levels, levers },
            seconds: self.slices_of(parts) * (found.seconds + rest),
            bytes: found.bytes.saturating_add(scratch),
        })
    }

    /// Builds a model of three layers at one level and looks at its schedule, once.
    fn probe(&self, rows: u64, level: Level) -> Result<Rc<Probe>, PlanError> {
        if let Some(seen) = self.seen.0.borrow().get(&(rows, level)) {
            return Ok(Rc::clone(seen));
        }
        let draft = Draft::clone(&*self.keeping_all(rows)?);
        let Draft { program, schedule, .. } = draft.at(&[level; PROBED_LAYERS as usize])?;
        let segment = program.train[0].segment;
        let tokens = rows.saturating_mul(self.train.positions);
        let hardware = &self.machine.hardware;
        let probe = Rc::new(Probe::new(&schedule, segment, hardware, level, tokens));
        self.seen.0.borrow_mut().insert((rows, level), Rc::clone(&probe));
        Ok(probe)
    }

    /// The small model of which the levels are made.
    fn keeping_all(&self, rows: u64) -> Result<Rc<Draft>, PlanError> {
        if let Some((_, draft)) = self.seen.1.borrow().as_ref().filter(|(of, _)| *of == rows) {
            return Ok(Rc::clone(draft));
        }
        let dims = Dims { n_layer: PROBED_LAYERS, ..self.spec.model.dims };
        let train = TrainSpec {
            slices: vec![rows],
            head_chunk: plan::ops::TOKEN_BLOCK,
            levels: Vec::new(),
            ..self.train.clone()
        };
        let model = model::ModelSpec { dims, ..self.spec.model.clone() };
        let spec = ProgramSpec { model, train: Some(train), eval: None, generate: None };
        let draft = Rc::new(Draft::new(&spec, Rc::clone(&self.machine.scratch))?);
        *self.seen.1.borrow_mut() = Some((rows, Rc::clone(&draft)));
        Ok(draft)
    }
}

fn chunks(tokens: u64) -> impl Iterator<Item = u64> {
    let last = CHUNKS.iter().position(|&chunk| chunk >= tokens).unwrap_or(CHUNKS.len() - 1);
    CHUNKS.into_iter().take(last + 1).map(move |chunk| chunk.min(tokens))
}

/// What the schedule of a small model tells of a large one.
pub struct Probe {
    /// What it was built at.
    level: Level,
    /// One layer.
    layer: Layer,
    /// Bytes alive around the head beside what layers keep, the slab not counted.
    head_bytes: u64,
    /// Bytes of one token's logits.
    logits_bytes: u64,
    /// Bytes of the kernels' scratch.
    scratch: u64,
    /// Seconds of everything outside the layers and the head.
    outside_seconds: f64,
    /// Seconds of the head with one chunk, and of one more.
    head_seconds: f64,
    gradient_bytes: u64,
    tokens: u64,
    probed_chunk: u64,
}

impl Probe {
    fn new(
        schedule: &Schedule,
        segment: SegmentId,
        hardware: &Hardware,
        level: Level,
        tokens: u64,
    ) -> Probe {
        let steps = &schedule.segment(segment).steps;
        let lives = lifetimes(schedule, segment);
        let live: Vec<u64> = live_bytes(schedule, segment, &lives)
            .map_or(vec![u64::MAX; steps.len()], |live| live.iter().map(|b| b.get()).collect());
        let is_head = |step: &plan::Step| matches!(step.op, Op::HeadTrain(_));
        let head = steps.iter().position(is_head).unwrap_or(0);
        let size = |id| schedule.tensors.bytes(id).aligned().map_or(0, Bytes::get);
        let kept_by = |layer: u32| -> u64 {
            let of_layer = |id: &&plan::TensorId| schedule.tensors.get(**id).layer == Some(layer);
            let alive = lives.iter().filter(|(_, live)| live.contains(head)).map(|(id, _)| id);
            alive.filter(of_layer).map(|&id| size(id)).sum()
        };
        let kept: Vec<u64> = (0..PROBED_LAYERS as u32).map(kept_by).collect();
        let before: u64 = kept[..=INNER as usize].iter().sum();
        let inner = steps.iter().zip(&live).filter(|(step, _)| step.layer == Some(INNER));
        let peak = inner.map(|(_, &live)| live.saturating_sub(before)).max().unwrap_or(0);
        let slab = schedule.tensors.ids().find(|&id| {
            let tensor = schedule.tensors.get(id);
            tensor.role == Role::Logits && tensor.scope == Scope::Segment(segment)
        });
        let slab_bytes = slab.map_or(0, size);
        let slab_rows = slab.map_or(1, |id| schedule.tensors.get(id).shape.rows());
        let around = steps.iter().zip(&live).filter(|(step, _)| step.layer.is_none());
        let around = around.map(|(_, &live)| live).max().unwrap_or(0);
        let around = around.saturating_sub(kept.iter().sum()).saturating_sub(slab_bytes);
        let seconds = |layer: Option<u32>| -> f64 {
            let own = |step: &&plan::Step| step.layer == layer && step.pass != Pass::Update;
            let cost = |step: &plan::Step| step_seconds(&step.op, &schedule.tensors, hardware);
            steps.iter().filter(own).filter(|step| !is_head(step)).map(cost).sum()
        };
        let gradient_bytes = match &steps[head].op {
            Op::HeadTrain(head) => schedule.tensors.bytes(head.d_w).get(),
            _ => 0,
        };
        Probe {
            level,
            layer: Layer { kept: kept[INNER as usize], peak, seconds: seconds(Some(INNER)) },
            head_bytes: around,
            logits_bytes: slab_bytes / slab_rows.max(1),
            scratch: scratch_bytes(schedule),
            outside_seconds: seconds(None),
            head_seconds: step_seconds(&steps[head].op, &schedule.tensors, hardware),
            gradient_bytes,
            tokens,
            probed_chunk: slab_rows,
        }
    }

    /// Bytes beside what the layers keep, around the head.
    fn around_bytes(&self, chunk: u64) -> u64 {
        self.head_bytes.saturating_add(self.logits_bytes.saturating_mul(chunk))
    }

    /// Seconds of a slice outside its layers. The head was measured with small chunks, each of
    /// which passes the weight's gradient through memory.
    fn rest_seconds(&self, chunk: u64, hardware: &Hardware) -> f64 {
        let passes = |chunk: u64| self.tokens.div_ceil(chunk.max(1)) as f64;
        let saved = passes(self.probed_chunk) - passes(chunk.min(self.tokens));
        let pass = 2.0 * self.gradient_bytes as f64 / hardware.bandwidth;
        self.outside_seconds + self.head_seconds - saved * pass
    }
}

/// Bytes of the kernels' scratch, which outlives segments but grows with their slices.
pub fn scratch_bytes(schedule: &Schedule) -> u64 {
    let tensors = &schedule.tensors;
    let is_scratch = |id: &plan::TensorId| {
        let tensor = tensors.get(*id);
        tensor.role == Role::Workspace && tensor.scope == Scope::Run
    };
    let size = |id| tensors.bytes(id).aligned().map_or(0, Bytes::get);
    tensors.ids().filter(is_scratch).map(size).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_cut_evenly() {
        assert_eq!(cut(64, 3), [22, 21, 21]);
        assert_eq!(cut(4, 9), [1, 1, 1, 1]);
        assert_eq!(cut(7, 1), [7]);
    }

    #[test]
    fn few_sizes_stand_for_all() {
        assert_eq!(part_counts(6, 100), [1, 2, 3, 6]);
        assert_eq!(part_counts(6, 2), [3, 6]);
        for sequences in [1, 64, 512, 1 << 40] {
            let counts = part_counts(sequences, 256);
            assert!(counts.len() <= 40 && counts.is_sorted(), "{counts:?}");
            assert_eq!(counts.last(), Some(&sequences), "single sequences are the last resort");
        }
    }
}
