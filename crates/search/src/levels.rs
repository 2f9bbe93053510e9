//! The levels of all layers: since layers are alike, only how many have which level counts. Finds
//! the cheapest count vector that fits, exactly, by branch and bound. The strongest levels stand in
//! the first layers, whose backward comes last, when everything else is gone.

/// One layer at one level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layer {
    /// Bytes that it keeps from forward to backward.
    pub kept: u64,
    /// Bytes that it needs beyond what it and those below keep, while it runs.
    pub peak: u64,
    /// Seconds of its forward and backward.
    pub seconds: f64,
}

/// What the vector must obey.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Layers in all.
    pub layers: usize,
    /// Bytes that there are.
    pub available: u64,
    /// Bytes needed around the head beside what all layers keep.
    pub around: u64,
}

/// The best vector.
#[derive(Clone, Debug, PartialEq)]
pub struct Counts {
    /// Layers at each level, in the order of the levels given.
    pub counts: Vec<usize>,
    /// Seconds of all layers.
    pub seconds: f64,
    /// Bytes at the fullest moment.
    pub bytes: u64,
}

/// The cheapest counts that fit. `levels` are in order of strength, weakest first.
pub fn cheapest(levels: &[Layer], limits: &Limits) -> Option<Counts> {
    let mut search = Search { levels, limits, counts: vec![0; levels.len()], best: None };
    search.branch(levels.len(), limits.layers, 0, 0.0, 0);
    search.best
}

struct Search<'a> {
    levels: &'a [Layer],
    limits: &'a Limits,
    counts: Vec<usize>,
    best: Option<Counts>,
}

impl Search<'_> {
    /// Decides how many of the `left` layers have the strongest of the first `open` levels. `kept`,
    /// `seconds` and `peak` are those of the layers decided so far, which stand first.
    fn branch(&mut self, open: usize, left: usize, kept: u64, seconds: f64, peak: u64) {
        if peak > self.limits.available || !self.can_win(open, left, kept, seconds) {
            return;
        }
        if left == 0 {
            self.finish(kept, seconds, peak);
            return;
        }
        let Some(level) = open.checked_sub(1) else {
            return;
        };
        let Layer { kept: one, peak: own, seconds: cost } = self.levels[level];
        // Fewer of the strong level first: cheaper vectors are met early and bound the rest.
        for count in 0..=left {
            let all = kept.saturating_add(one.saturating_mul(count as u64));
            let fullest = if count == 0 { peak } else { peak.max(all.saturating_add(own)) };
            self.counts[level] = count;
            self.branch(level, left - count, all, seconds + cost * count as f64, fullest);
        }
        self.counts[level] = 0;
    }

    /// Whether layers at the open levels could still fit and be cheaper than the best so far.
    fn can_win(&self, open: usize, left: usize, kept: u64, seconds: f64) -> bool {
        let open = &self.levels[..open];
        let room = self.limits.available.saturating_sub(self.limits.around);
        let Some(room) = room.checked_sub(kept) else {
            return false;
        };
        let Some(least) = lower_bound(open, left, room) else {
            return false;
        };
        self.best.as_ref().is_none_or(|best| seconds + least < best.seconds * (1.0 - 1e-12))
    }

    fn finish(&mut self, kept: u64, seconds: f64, peak: u64) {
        let bytes = peak.max(kept.saturating_add(self.limits.around));
        if bytes <= self.limits.available {
            self.best = Some(Counts { counts: self.counts.clone(), seconds, bytes });
        }
    }
}

/// The least that `layers` layers can cost in so much room if levels could be mixed within a layer:
/// on the lower hull of (bytes, seconds). None when even the strongest do not fit.
fn lower_bound(levels: &[Layer], layers: usize, room: u64) -> Option<f64> {
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

    const LEVELS: [Layer; 4] = [
        Layer { kept: 100, peak: 40, seconds: 1.0 },
        Layer { kept: 70, peak: 60, seconds: 1.02 },
        Layer { kept: 31, peak: 90, seconds: 1.1 },
        Layer { kept: 8, peak: 120, seconds: 1.17 },
    ];

    /// Every count vector, one by one.
    fn by_trial(limits: &Limits) -> Option<(f64, u64)> {
        let n = limits.layers;
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
                    let bytes = peak.max(kept + limits.around);
                    let better = best.is_none_or(|(old, _)| seconds < old - 1e-9);
                    if bytes <= limits.available && better {
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
                let limits = Limits { layers, available, around: 55 };
                let found = cheapest(&LEVELS, &limits);
                let want = by_trial(&limits);
                assert_eq!(found.is_some(), want.is_some(), "{limits:?}");
                if let (Some(found), Some((seconds, _))) = (found, want) {
                    assert!((found.seconds - seconds).abs() < 1e-9, "{limits:?}: {found:?}");
                    assert!(found.bytes <= available);
                    assert_eq!(found.counts.iter().sum::<usize>(), layers);
                }
            }
        }
    }

    #[test]
    fn nothing_fits_into_nothing() {
        assert_eq!(cheapest(&LEVELS, &Limits { layers: 3, available: 10, around: 5 }), None);
    }
}
