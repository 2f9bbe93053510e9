//! Candidates for a byte limit: numbers of slices × head chunks. Each candidate gets the cheapest
//! levels of recompute that fit (`levels.rs`), estimated from probes (`probe.rs`). Of all
//! candidates nearly as fast as the fastest, the smallest wins.

use crate::cut::{Cut, near_equal};
use crate::levels::{Constraints, LayerCost, cheapest};
use crate::machine::StateOptions;
use crate::probe::{Probe, Prober};
use crate::task::Task;
use model::Level;
use plan::PlanError;
use std::rc::Rc;

/// Head chunks to try, in tokens. Smaller ones make matmuls too thin. 16,384 tokens are 0.5 to 1 %
/// of an iteration faster than 4096, and all tokens at once hardly faster (`docs/experiments.md`).
const CHUNKS: [u64; 4] = [1024, 2048, 4096, 16384];

/// Additional chunks to try when memory is short.
const THIN_CHUNKS: [u64; 2] = [256, 512];

/// Slices of more tokens than this gain nothing.
const MOST_TOKENS: u64 = 1 << 18;

/// Slices of up to this many sequences are tried one by one, larger ones in steps of the ratio
/// `STEP`.
const FINE: u64 = 16;
const STEP: f64 = 1.15;

/// Plans within this factor of the fastest count as equally fast; the smallest of them is chosen.
/// It is small, so that more memory never gives a slower plan.
const AS_GOOD: f64 = 1.002;

/// How much the speed of slices may vary with how their size fills the device.
const UNEVEN: f64 = 1.03;

/// The level of layers that keep activations in host memory.
const ON_HOST: Level = Level::R2h;

/// The last layers have no such level: their activations would have to return as soon as they have
/// left.
const LAST_LAYERS: usize = 3;

/// The share of the forward's time for which copies may occupy the link. Measured with 1558M on an
/// H200: copies for 9 layers made an iteration 1.2 % faster, for 12 layers not faster
/// (`docs/experiments.md`).
const LINK_SHARE: f64 = 0.75;

/// A way to cut an iteration, and the estimates for it. Its slices are not listed: there may be
/// thousands of each of many candidates.
pub struct Candidate {
    /// Sequences of the iteration, and how many slices they are divided into.
    sequences: u64,
    parts: u64,
    head_chunk: u64,
    /// What each layer keeps.
    pub levels: Vec<Level>,
    /// Predicted seconds of an iteration.
    seconds: f64,
    /// Estimated bytes of the training segments and the kernels' scratch.
    pub bytes: u64,
}

impl Candidate {
    /// The cut, with the default options for optimizer state. The caller sets those.
    pub fn cut(self) -> Cut {
        let Candidate { head_chunk, levels, .. } = self;
        let slices = near_equal(self.sequences, self.parts);
        Cut { slices, head_chunk, levels, state_options: StateOptions::DEFAULT }
    }
}

/// All candidates of a run.
pub struct Candidates<'a> {
    prober: Rc<Prober<'a>>,
    /// Levels that the run permits, without those that need host memory.
    levels: &'static [Level],
    /// Bytes of host memory that layers may fill with activations; none if they may not.
    host: Option<u64>,
    /// Layers of the model.
    layers: u64,
    /// Sequences of an iteration, and the tokens of each.
    sequences: u64,
    positions: u64,
}

impl<'a> Candidates<'a> {
    /// The candidates of a task whose layers keep everything on the device. They do not depend on
    /// its options for optimizer state, because the optimizer runs outside the slices.
    pub fn new(task: &Task<'a>) -> Candidates<'a> {
        Candidates {
            prober: Rc::new(Prober::new(task)),
            levels: task.levels(),
            host: None,
            layers: task.dims.n_layer,
            sequences: task.run.sequences_per_group(),
            positions: task.run.block_size,
        }
    }

    /// The same, but layers may fill so many bytes of host memory with activations.
    pub fn with_host(&self, bytes: u64) -> Candidates<'a> {
        Candidates { prober: Rc::clone(&self.prober), host: Some(bytes), ..*self }
    }

    /// Whether layers may keep activations in host memory.
    pub fn may_use_host(&self) -> bool {
        self.host.is_some()
    }

    /// The best candidate whose training segments need at most `available` bytes, or none if none
    /// fits.
    pub fn best(&self, available: u64) -> Result<Option<Candidate>, PlanError> {
        let found = self.within(available, AS_GOOD)?;
        let smallest = found
            .into_iter()
            .min_by(|a, b| a.bytes.cmp(&b.bytes).then(a.seconds.total_cmp(&b.seconds)));
        Ok(smallest)
    }

    /// The candidates that need at most `available` bytes and take at most `factor` times as long
    /// as the fastest of them, fastest first.
    pub fn within(&self, available: u64, factor: f64) -> Result<Vec<Candidate>, PlanError> {
        let mut found: Vec<Candidate> = Vec::new();
        let mut fastest = f64::INFINITY;
        for parts in part_counts(self.sequences, MOST_TOKENS / self.positions.max(1)) {
            let rows = self.sequences.div_ceil(parts);
            let tokens = rows.saturating_mul(self.positions);
            let probes = self.probes(rows, available)?;
            if probes.is_empty() {
                continue;
            }
            for chunk in chunks(tokens, available) {
                let one = self.candidate(&probes, chunk, parts, available)?;
                if let Some(one) = one.filter(|one| one.seconds <= fastest * factor) {
                    fastest = fastest.min(one.seconds);
                    found.push(one);
                }
            }
            // From here on, smaller slices only cost more time, apart from how well a size fills
            // the device.
            if self.least_seconds(&probes, parts, tokens) > fastest * factor * UNEVEN {
                break;
            }
        }
        found.retain(|one| one.seconds <= fastest * factor);
        found.sort_by(|a, b| a.seconds.total_cmp(&b.seconds).then(a.bytes.cmp(&b.bytes)));
        Ok(found)
    }

    /// The candidate with the same slices and head chunk, and the cheapest levels for `available`
    /// bytes; none if none fit.
    pub fn again(&self, like: &Cut, available: u64) -> Result<Option<Candidate>, PlanError> {
        let rows = like.slices.first().copied().unwrap_or(1);
        let probes = self.probes(rows, available)?;
        let parts = like.slices.len() as u64;
        match probes.is_empty() {
            true => Ok(None),
            false => self.candidate(&probes, like.head_chunk, parts, available),
        }
    }

    /// One candidate: the cheapest levels for these slices and this chunk, if any fit.
    fn candidate(
        &self,
        probes: &[Rc<Probe>],
        chunk: u64,
        parts: u64,
        available: u64,
    ) -> Result<Option<Candidate>, PlanError> {
        let first = &probes[0];
        let Some(mix) = self.mix(probes, chunk, available)? else {
            return Ok(None);
        };
        let parts = parts.clamp(1, self.sequences.max(1));
        let largest = mix.seconds + first.rest_seconds(chunk);
        let smaller = self.smaller_seconds(parts, &mix, chunk)?;
        let seconds = smaller.map_or(largest * parts as f64, |(count, seconds)| {
            count as f64 * seconds + (parts - count) as f64 * largest
        });
        Ok(Some(Candidate {
            sequences: self.sequences,
            parts,
            head_chunk: chunk,
            levels: mix.levels(),
            seconds,
            bytes: mix.bytes.saturating_add(first.scratch),
        }))
    }

    /// The cheapest levels that fit.
    fn mix(
        &self,
        probes: &[Rc<Probe>],
        chunk: u64,
        available: u64,
    ) -> Result<Option<Mix>, PlanError> {
        let costs: Vec<LayerCost> = probes.iter().map(|probe| probe.layer).collect();
        let (first, layers) = (&probes[0], self.layers as usize);
        let mut best: Option<Mix> = None;
        let with_copies = self.on_host(probes)?;
        for (count, probe) in std::iter::once((0, Rc::clone(first))).chain(with_copies) {
            // These layers keep so little that it hardly matters where among the others they are.
            let kept = probe.layer.kept.saturating_mul(count as u64);
            let seconds = probe.layer.seconds * count as f64;
            let constraints = Constraints {
                layers: layers - count,
                available: available.saturating_sub(first.scratch).saturating_sub(kept),
                // What returns first is there before the last layers have freed theirs.
                around: match count {
                    0 => first.around_bytes(chunk),
                    _ => first.around_bytes(chunk).max(probe.layer.peak),
                },
            };
            let Some(found) = cheapest(&costs, &constraints) else {
                continue;
            };
            let seconds = found.seconds + seconds;
            if best.as_ref().is_none_or(|best| seconds < best.seconds) {
                let with = found.counts.into_iter().zip(probes.iter().map(Rc::clone)).collect();
                let bytes = found.bytes.saturating_add(kept);
                best = Some(Mix { with, on_host: (count, probe), seconds, bytes });
            }
        }
        Ok(best)
    }

    /// How many layers keep activations in host memory, with a probe of them: as many as the link
    /// can carry while the forward runs, and as have room there. None if they may not, or if
    /// everything fits without.
    fn on_host(&self, probes: &[Rc<Probe>]) -> Result<Option<(usize, Rc<Probe>)>, PlanError> {
        let Some(room) = self.host.filter(|_| probes.len() > 1) else {
            return Ok(None);
        };
        let probe = self.prober.probe(probes[0].rows, ON_HOST)?;
        let forward = self.layers as f64 * probe.forward_seconds * LINK_SHARE;
        let carried = (forward / probe.copy_seconds) as usize;
        let fitting = (room / probe.copy_bytes.max(1)) as usize;
        let most = (self.layers as usize).saturating_sub(LAST_LAYERS);
        let count = carried.min(fitting).min(most);
        Ok((count > 0).then_some((count, probe)))
    }

    /// How many slices have a sequence less than the first, and their seconds; none if all are
    /// alike. Their matmuls may fill the device better or worse.
    fn smaller_seconds(
        &self,
        parts: u64,
        mix: &Mix,
        chunk: u64,
    ) -> Result<Option<(u64, f64)>, PlanError> {
        let (rows, larger) = (self.sequences / parts, self.sequences % parts);
        if larger == 0 {
            return Ok(None);
        }
        // What is outside the layers takes as long at any level.
        let mut seconds = self.prober.probe(rows, mix.on_host.1.level)?.rest_seconds(chunk);
        for (count, probe) in mix.all().filter(|(count, _)| *count > 0) {
            seconds += *count as f64 * self.prober.probe(rows, probe.level)?.layer.seconds;
        }
        Ok(Some((parts - larger, seconds)))
    }

    /// A probe of each level for slices of `rows` sequences, those that keep most first; none if
    /// not even the strongest level fits. If the weakest level fits, the others are not built,
    /// because they cost more time.
    fn probes(&self, rows: u64, available: u64) -> Result<Vec<Rc<Probe>>, PlanError> {
        let level = |level: Option<&Level>| level.copied().unwrap_or_default();
        let weakest = self.prober.probe(rows, level(self.levels.first()))?;
        if self.needs(&weakest, weakest.tokens) <= available {
            return Ok(vec![weakest]);
        }
        let strongest = self.prober.probe(rows, level(self.levels.last()))?;
        if self.needs(&strongest, 0) > available {
            return Ok(Vec::new());
        }
        let all = self.levels.iter().map(|&level| self.prober.probe(rows, level));
        let mut probes = all.collect::<Result<Vec<Rc<Probe>>, PlanError>>()?;
        probes.sort_by_key(|probe| std::cmp::Reverse(probe.layer.kept));
        Ok(probes)
    }

    /// Bytes of the smallest cut.
    pub fn least_bytes(&self) -> Result<u64, PlanError> {
        Ok(self.least()?.1)
    }

    /// The smallest cut: single sequences, the smallest chunk, one level for all layers.
    pub fn smallest(&self) -> Result<Cut, PlanError> {
        let (level, _) = self.least()?;
        Ok(Cut {
            slices: near_equal(self.sequences, self.sequences),
            head_chunk: plan::ops::TOKEN_BLOCK,
            levels: vec![level; self.layers as usize],
            state_options: StateOptions::DEFAULT,
        })
    }

    /// The level at which single sequences need the fewest bytes, and that number. In deep models
    /// it is the strongest level. In shallow ones, recomputing may need more memory than keeping.
    fn least(&self) -> Result<(Level, u64), PlanError> {
        let mut least = (self.levels.first().copied().unwrap_or_default(), u64::MAX);
        for &level in self.levels {
            let probe = self.prober.probe(1, level)?;
            let bytes = self.needs(&probe, plan::ops::TOKEN_BLOCK.min(probe.tokens));
            if bytes < least.1 {
                least = (level, bytes);
            }
        }
        Ok(least)
    }

    /// Bytes with all layers at one level and the logits of `chunk` tokens.
    fn needs(&self, probe: &Probe, chunk: u64) -> u64 {
        let kept = probe.layer.kept.saturating_mul(self.layers);
        let around = probe.layer.peak.max(probe.around_bytes(chunk));
        kept.saturating_add(around).saturating_add(probe.scratch)
    }

    /// Seconds of an iteration if all layers have the cheapest level.
    fn least_seconds(&self, probes: &[Rc<Probe>], parts: u64, chunk: u64) -> f64 {
        let cheapest = probes.iter().map(|probe| probe.layer.seconds).fold(f64::INFINITY, f64::min);
        let layers = self.layers as f64 * cheapest;
        self.slices_of(parts) * (layers + probes[0].rest_seconds(chunk))
    }

    /// An iteration's sequences divided by those of its largest slice: at most `parts`.
    fn slices_of(&self, parts: u64) -> f64 {
        self.sequences as f64 / self.sequences.div_ceil(parts) as f64
    }
}

/// How many layers have which level.
struct Mix {
    /// Weakest first.
    with: Vec<(usize, Rc<Probe>)>,
    /// Those that keep activations in host memory.
    on_host: (usize, Rc<Probe>),
    /// Seconds of all layers, and bytes at the fullest step.
    seconds: f64,
    bytes: u64,
}

impl Mix {
    fn all(&self) -> impl Iterator<Item = &(usize, Rc<Probe>)> {
        self.with.iter().chain([&self.on_host])
    }

    /// The level of each layer: strongest first, with the layers that keep activations in host
    /// memory evenly among them, so that their copies have the time of the others.
    fn levels(&self) -> Vec<Level> {
        let strongest_first = self.with.iter().rev();
        let mut others =
            strongest_first.flat_map(|(count, probe)| std::iter::repeat_n(probe.level, *count));
        let layers = self.all().map(|(count, _)| count).sum::<usize>();
        let (count, probe) = &self.on_host;
        let span = layers.saturating_sub(LAST_LAYERS);
        let is_on_host =
            |layer: usize| (0..*count).any(|index| (2 * index + 1) * span / (2 * count) == layer);
        let level = |layer| match is_on_host(layer) {
            true => Some(probe.level),
            false => others.next(),
        };
        (0..layers).filter_map(level).collect()
    }
}

/// Numbers of slices to try, fewest first. Each gives a largest slice of another size, at most
/// `most` rows. Sizes above `FINE` are at least a factor of `STEP` apart.
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

/// The head chunks to try for slices of `tokens` tokens.
fn chunks(tokens: u64, available: u64) -> impl Iterator<Item = u64> {
    let thin = if available == u64::MAX { &[][..] } else { &THIN_CHUNKS };
    let thin = thin.iter().copied().filter(move |&chunk| chunk < tokens);
    let last = CHUNKS.iter().position(|&chunk| chunk >= tokens).unwrap_or(CHUNKS.len() - 1);
    thin.chain(CHUNKS.into_iter().take(last + 1).map(move |chunk| chunk.min(tokens)))
}

#[cfg(test)]
mod tests {
    use super::*;

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
