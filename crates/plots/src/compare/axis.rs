//! What a chart is drawn over, and round numbers for its axes.

use super::curve::At;

/// What a chart is drawn over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Iterations.
    Iteration,
    /// Tokens trained on.
    Tokens,
    /// Seconds of training.
    Time,
}

impl By {
    /// All, in the order of the panels.
    pub const ALL: [By; 3] = [By::Iteration, By::Tokens, By::Time];

    /// Their words.
    pub const WORDS: &'static [&'static str] = &["iteration", "tokens", "time"];

    /// As it is typed.
    pub fn word(self) -> &'static str {
        By::WORDS[self as usize]
    }

    /// What a word means.
    pub fn of(word: &str) -> Option<By> {
        By::ALL.into_iter().find(|by| by.word() == word)
    }

    /// The place of a point; NaN if its log does not say.
    pub fn place(self, at: &At) -> f64 {
        match self {
            By::Iteration => at.iter as f64,
            By::Tokens => at.tokens,
            By::Time => at.seconds,
        }
    }
}

/// One axis: a range of numbers, and where its ticks are.
#[derive(Clone, Debug)]
pub struct Axis {
    least: f64,
    most: f64,
    /// Whether equal factors have equal distances.
    is_logarithmic: bool,
    /// Values and labels.
    pub ticks: Vec<(f64, String)>,
    /// What it is, with the unit.
    pub title: String,
}

impl Axis {
    /// The vertical axis of a metric: its values up to `cut` with a margin, and about `count`
    /// ticks.
    pub fn of_values(
        name: &str,
        values: impl Iterator<Item = f64>,
        cut: Option<f64>,
        count: usize,
    ) -> Axis {
        let (least, most) = range(values.map(|value| value.min(cut.unwrap_or(f64::INFINITY))));
        let margin = match most - least {
            0.0 => (0.05 * most.abs()).max(0.5),
            size => 0.04 * size,
        };
        let (least, most) = (least - margin, most + margin);
        let ticks = steps(least, most, count).into_iter().map(|value| (value, value));
        let ticks = labelled(ticks.collect());
        Axis { least, most, is_logarithmic: false, ticks, title: name.to_string() }
    }

    /// The horizontal axis.
    pub fn of_places(
        by: By,
        places: impl Iterator<Item = f64>,
        is_logarithmic: bool,
        count: usize,
    ) -> Axis {
        let (least, most) = range(places.filter(|at| !is_logarithmic || *at > 0.0));
        let least = if is_logarithmic { least } else { 0.0 };
        // A single place, or none.
        let most = if most > least { most } else { least + least.max(1.0) };
        let (unit, divisor) = match by {
            By::Iteration => ("iteration", 1.0),
            By::Tokens => ("tokens", 1.0),
            By::Time if most < 180.0 => ("seconds", 1.0),
            By::Time if most < 3.0 * 3600.0 => ("minutes", 60.0),
            By::Time if most < 3.0 * 86_400.0 => ("hours", 3600.0),
            By::Time => ("days", 86_400.0),
        };
        let (from, to) = (least / divisor, most / divisor);
        let values = if is_logarithmic { powers(from, to) } else { steps(from, to, count) };
        let ticks = labelled(values.into_iter().map(|value| (value * divisor, value)).collect());
        Axis { least, most, is_logarithmic, ticks, title: unit.to_string() }
    }

    /// Where a value is: 0 at the axis's start, 1 at its end; it may be beyond. None if it has no
    /// place.
    pub fn share(&self, value: f64) -> Option<f64> {
        let share = match self.is_logarithmic {
            true => (value / self.least).ln() / (self.most / self.least).ln(),
            false => (value - self.least) / (self.most - self.least),
        };
        share.is_finite().then_some(share)
    }
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let finite = values.filter(|value| value.is_finite());
    let (least, most) = finite
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), value| (a.min(value), b.max(value)));
    // Beyond this, differences overflow; nothing that is plotted is that large.
    if least > most { (0.0, 1.0) } else { (least.clamp(-1e300, 1e300), most.clamp(-1e300, 1e300)) }
}

/// Multiples of 1, 2 or 5 times a power of ten, about `count` of them.
fn steps(least: f64, most: f64, count: usize) -> Vec<f64> {
    let rough = (most - least) / count.max(1) as f64;
    if !rough.is_finite() || rough <= 0.0 {
        return vec![least];
    }
    let power = 10f64.powf(rough.log10().floor());
    let step = power
        * match rough / power {
            ..1.5 => 1.0,
            ..3.5 => 2.0,
            ..7.5 => 5.0,
            _ => 10.0,
        };
    let first = (least / step).ceil();
    let values = (0..=2 * count).map(|index| (first + index as f64) * step);
    // A sum of steps may be a little beside the round number.
    let round = |value: f64| if value.abs() < step / 1e6 { 0.0 } else { value };
    values.take_while(|value| *value <= most + step / 1e6).map(round).collect()
}

/// Powers of ten, or with their double and fivefold where there are few.
fn powers(least: f64, most: f64) -> Vec<f64> {
    let decades = (most / least).log10();
    let factors: &[f64] = if decades < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let (first, last) = (least.log10().floor() as i32, most.log10().ceil() as i32);
    let values = (first..=last.min(first.saturating_add(600)))
        .flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)));
    values.filter(|value| (least..=most).contains(value)).collect()
}

/// Labels of ticks; each pair is the place and the number to show.
fn labelled(ticks: Vec<(f64, f64)>) -> Vec<(f64, String)> {
    let distance = ticks.windows(2).map(|pair| (pair[1].1 - pair[0].1).abs());
    let step = distance.fold(f64::INFINITY, f64::min);
    ticks.into_iter().map(|(place, value)| (place, label(value, step))).collect()
}

/// `0`, `0.25`, `1500`, `20k`, `1.5M`, `3B`: as many digits as ticks a step apart need.
pub fn label(value: f64, step: f64) -> String {
    let units = [(1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")];
    let size = value.abs();
    let unit = units.into_iter().find(|(unit, _)| size >= *unit && size >= 1e4);
    let (divisor, letter) = unit.unwrap_or((1.0, ""));
    if size != 0.0 && !(1e-4..1e15).contains(&size) {
        return format!("{value:.0e}");
    }
    let step = if step.is_finite() { step / divisor } else { 1.0 };
    let digits = (-step.log10() + 1e-6).ceil().clamp(0.0, 6.0) as usize;
    let text = format!("{:.digits$}", value / divisor);
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    format!("{text}{letter}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        let places = |by, most: f64, log| Axis::of_places(by, [1.0, most].into_iter(), log, 5);
        assert_eq!(
            labels(&places(By::Iteration, 5000.0, false)),
            ["0", "1000", "2000", "3000", "4000", "5000"]
        );
        assert_eq!(
            labels(&places(By::Tokens, 1.2e9, false)),
            ["0", "200M", "400M", "600M", "800M", "1B", "1.2B"]
        );
        let time = places(By::Time, 5400.0, false);
        assert_eq!(
            (labels(&time), time.title.as_str()),
            (vec!["0", "20", "40", "60", "80"], "minutes")
        );
        assert_eq!(time.ticks[1].0, 1200.0);
        assert_eq!(
            labels(&places(By::Iteration, 1e5, true)),
            ["1", "10", "100", "1000", "10k", "100k"]
        );
        assert_eq!(labels(&places(By::Iteration, 40.0, true)), ["1", "2", "5", "10", "20"]);
        let loss = Axis::of_values("loss", [1.47, 4.3].into_iter(), None, 6);
        assert_eq!(labels(&loss), ["1.5", "2", "2.5", "3", "3.5", "4"]);
    }

    /// Nothing, one point, equal points, hostile numbers: always an axis with finite ticks.
    #[test]
    fn every_axis_has_a_range() {
        for values in
            [&[][..], &[2.5], &[2.5, 2.5], &[f64::NAN], &[-1e308, 1e308], &[0.0], &[1e-300]]
        {
            for log in [false, true] {
                let axis = Axis::of_places(By::Time, values.iter().copied(), log, 5);
                assert!(axis.most > axis.least, "{values:?}");
                assert!(axis.ticks.len() < 700, "{values:?}");
            }
            let axis = Axis::of_values("x", values.iter().copied(), None, 5);
            assert!(axis.most > axis.least && axis.ticks.iter().all(|(at, _)| at.is_finite()));
        }
    }

    #[test]
    fn shares_run_from_0_to_1() {
        let axis = Axis::of_places(By::Iteration, [1.0, 100.0].into_iter(), true, 5);
        assert_eq!(axis.share(10.0), Some(0.5));
        assert_eq!((axis.share(0.0), axis.share(f64::NAN)), (None, None));
    }
}
