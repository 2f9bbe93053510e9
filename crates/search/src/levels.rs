//! The levels of all layers. Since layers are alike, only the number of layers at each level
//! matters. An exact branch-and-bound search finds the cheapest numbers that fit. The first layers
//! get the strongest levels: their backward runs last, when all other activations are freed.

/// What one layer costs at one level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerCost {
    /// Bytes that it keeps from forward to backward.
    pub kept: u64,
    /// Bytes that it needs while it runs, beyond what it and the layers below it keep.
    pub peak: u64,
    /// Seconds of its forward and backward.
    pub seconds: f64,
}

/// The constraints of the search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constraints {
    /// Number of layers.
    pub layers: usize,
    /// Bytes available.
    pub available: u64,
    /// Bytes needed around the head in addition to what all layers keep.
    pub around: u64,
}

/// The best numbers of layers.
#[derive(Clone, Debug, PartialEq)]
pub struct Counts {
    /// Layers at each level, in the order of the levels given.
    pub counts: Vec<usize>,
    /// Seconds of all layers.
    pub seconds: f64,
    /// Bytes at the fullest step.
    pub bytes: u64,
}

/// The cheapest numbers of layers that fit. `levels` are in order of strength, weakest first.
pub fn cheapest(levels: &[LayerCost], constraints: &Constraints) -> Option<Counts> {
    let mut search = Search { levels, constraints, counts: vec![0; levels.len()], best: None };
    search.branch(levels.len(), constraints.layers, 0, 0.0, 0);
    search.best
}

struct Search<'a> {
    levels: &'a [LayerCost],
    constraints: &'a Constraints,
    counts: Vec<usize>,
    best: Option<Counts>,
}

impl Search<'_> {
    /// Decides how many of the `left` layers have the strongest of the first `open` levels. `kept`,
    /// `seconds` and `peak` describe the layers decided so far, which come first in the model.
    fn branch(&mut self, open: usize, left: usize, kept: u64, seconds: f64, peak: u64) {
        if peak > self.constraints.available || !self.can_win(open, left, kept, seconds) {
            return;
        }
        if left == 0 {
            self.finish(kept, seconds, peak);
            return;
        }
        let Some(level) = open.checked_sub(1) else {
            return;
        };
        let LayerCost { kept: one, peak: own, seconds: cost } = self.levels[level];
        // Try few layers at the strong level first: cheaper solutions are found early and prune the
        // rest.
        for count in 0..=left {
            let all = kept.saturating_add(one.saturating_mul(count as u64));
            let fullest = if count == 0 { peak } else { peak.max(all.saturating_add(own)) };
            self.counts[level] = count;
            self.branch(level, left - count, all, seconds + cost * count as f64, fullest);
        }
        self.counts[level] = 0;
    }

    /// Whether the remaining layers, at the open levels, could still fit and beat the best so far.
    fn can_win(&self, open: usize, left: usize, kept: u64, seconds: f64) -> bool {
        let open = &self.levels[..open];
        let room = self.constraints.available.saturating_sub(self.constraints.around);
        let Some(room) = room.checked_sub(kept) else {
            return false;
        };
        let Some(least) = lower_bound(open, left, room) else {
            return false;
        };
        self.best.as_ref().is_none_or(|best| seconds + least < best.seconds * (1.0 - 1e-12))
    }

    fn finish(&mut self, kept: u64, seconds: f64, peak: u64) {
        let bytes = peak.max(kept.saturating_add(self.constraints.around));
        if bytes <= self.constraints.available {
            self.best = Some(Counts { counts: self.counts.clone(), seconds, bytes });
        }
    }
}

/// A lower bound on the seconds of `layers` layers within `room` bytes, as if one layer could mix
/// levels: it lies on the lower hull of (bytes, seconds). None if even the strongest levels do not
/// fit.
fn lower_bound(levels: &[LayerCost], layers: usize, room: u64) -> Option<f64> {
    if layers == 0 {
        return Some(0.0);
    }
    let share = room as f64 / layers as f64;
    let mut best: Option<f64> = None;
    let mut consider = |seconds: f64| best = Some(best.map_or(seconds, |old| old.min(seconds)));
    for a in levels {
        if a.kept as f64 <= share {
            consider(a.seconds);
        }
        for b in levels.iter().filter(|b| b.kept < a.kept) {
            let (low, high) = (b.kept as f64, a.kept as f64);
            if (low..=high).contains(&share) {
                let part = (share - low) / (high - low);
                consider(b.seconds + part * (a.seconds - b.seconds));
            }
        }
    }
    best.map(|seconds| seconds * layers as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEVELS: [LayerCost; 4] = [
        LayerCost { kept: 100, peak: 40, seconds: 1.0 },
        LayerCost { kept: 70, peak: 60, seconds: 1.02 },
        LayerCost { kept: 31, peak: 90, seconds: 1.1 },
        LayerCost { kept: 8, peak: 120, seconds: 1.17 },
    ];

    /// Tries every combination.
    fn by_trial(constraints: &Constraints) -> Option<(f64, u64)> {
        let n = constraints.layers;
        let mut best: Option<(f64, u64)> = None;
        for a in 0..=n {
            for b in 0..=n - a {
                for c in 0..=n - a - b {
                    let counts = [a, b, c, n - a - b - c];
                    let (mut kept, mut peak, mut seconds) = (0, 0, 0.0);
                    for (level, count) in LEVELS.iter().zip(counts).rev() {
                        kept += level.kept * count as u64;
                        seconds += level.seconds * count as f64;
                        if count > 0 {
                            peak = peak.max(kept + level.peak);
                        }
                    }
                    let bytes = peak.max(kept + constraints.around);
                    let better = best.is_none_or(|(old, _)| seconds < old - 1e-9);
                    if bytes <= constraints.available && better {
                        best = Some((seconds, bytes));
                    }
                }
            }
        }
        best
    }

    #[test]
    fn it_is_the_best_of_all_vectors() {
        for layers in [1, 2, 5, 12] {
            for available in (100..1500).step_by(23) {
                let constraints = Constraints { layers, available, around: 55 };
                let found = cheapest(&LEVELS, &constraints);
                let want = by_trial(&constraints);
                assert_eq!(found.is_some(), want.is_some(), "{constraints:?}");
                if let (Some(found), Some((seconds, _))) = (found, want) {
                    assert!((found.seconds - seconds).abs() < 1e-9, "{constraints:?}: {found:?}");
                    assert!(found.bytes <= available);
                    assert_eq!(found.counts.iter().sum::<usize>(), layers);
                }
            }
        }
    }

    #[test]
    fn nothing_fits_into_nothing() {
        assert_eq!(cheapest(&LEVELS, &Constraints { layers: 3, available: 10, around: 5 }), None);
    }
}
