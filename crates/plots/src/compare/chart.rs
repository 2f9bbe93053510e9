//! The curves of a chart, before anything is drawn.

use super::axis::{Axis, By};
use super::curve::At;
use super::run_log::RunLog;

/// The beginning of a run, as a share of it, whose values may be above the chart.
const BEGINNING: f64 = 0.04;

/// They are if the chart would be so many times as high with them.
const MUCH_HIGHER: f64 = 2.0;

/// Curves of fewer points are shown whole.
const FEW: usize = 8;

/// Most runs that a note names, and the longest name in it.
const NAMED: usize = 2;
const NAME: usize = 20;

/// Most points of a drawn curve; more would not be seen.
const DRAWN: usize = 500;

/// The curves of one run.
#[derive(Clone, Debug)]
pub struct Series {
    /// The run's name.
    pub name: String,
    /// The metric that matters most.
    pub strong: Vec<At>,
    /// A metric behind it.
    pub faint: Vec<At>,
}

impl Series {
    /// Whether the curve behind stands for the strong one, which has too few points to be drawn.
    pub fn is_substituted(&self) -> bool {
        self.strong.len() < 2 && self.faint.len() > 1
    }
}

/// A chart of several runs.
#[derive(Clone, Debug)]
pub struct Chart {
    /// What is plotted.
    pub title: String,
    /// What the faint curves are, if there are any.
    pub behind: Option<String>,
    /// The runs, in the order in which they were given.
    pub series: Vec<Series>,
    /// Whether the horizontal axes are logarithmic.
    pub is_logarithmic: bool,
    /// Values above this are not shown: the first of a run, which would press the others flat.
    pub cut: Option<f64>,
}

/// The parts of a curve that are inside a chart, as shares of its width and height.
pub type Visible = Vec<Vec<(f64, f64)>>;

impl Chart {
    /// A chart of logs and their names. The first metric of each is strong, the second faint; where
    /// no run has the first, the second is strong.
    pub fn new(logs: &[(String, RunLog)], is_logarithmic: bool, is_whole: bool) -> Chart {
        let names: Vec<&str> = match logs.first() {
            Some((_, log)) => log.curves.iter().map(|(name, _)| *name).collect(),
            None => Vec::new(),
        };
        let has = |index: usize| {
            logs.iter()
                .any(|(_, log)| log.curves.get(index).is_some_and(|(_, c)| c.points().count() > 1))
        };
        let order: &[usize] = if !has(0) && has(1) { &[1] } else { &[0, 1] };
        let curve = |log: &RunLog, index: Option<&usize>| {
            let curve = index.and_then(|&index| log.curves.get(index));
            curve.map_or(Vec::new(), |(_, curve)| thinned(curve.points().collect()))
        };
        let series = logs.iter().map(|(name, log)| Series {
            name: name.clone(),
            strong: curve(log, order.first()),
            faint: curve(log, order.get(1)),
        });
        let name = |place: usize| names.get(*order.get(place)?).map(ToString::to_string);
        let mut chart = Chart {
            title: name(0).unwrap_or_default(),
            behind: name(1),
            series: series.collect(),
            is_logarithmic,
            cut: None,
        };
        if !is_whole {
            chart.cut = chart.beginnings();
        }
        chart
    }

    /// The highest value after the beginnings of the curves, if those are much higher.
    fn beginnings(&self) -> Option<f64> {
        let mut after = f64::NEG_INFINITY;
        for points in self.series.iter().flat_map(|series| [&series.strong, &series.faint]) {
            let end = points.last().map_or(0, |at| at.iter) as f64;
            let is_after = |at: &&At| points.len() < FEW || at.iter as f64 >= BEGINNING * end;
            let values = points.iter().filter(is_after).map(|at| at.value);
            after = values.fold(after, f64::max);
        }
        let (least, most) = (self.points().map(|at| at.value))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
        (most - least > MUCH_HIGHER * (after - least) && after > least).then_some(after)
    }

    /// What to know about the chart: the curves behind, if they are drawn, runs of which only those
    /// are there, and what is cut off.
    pub fn note(&self, is_faint_drawn: bool) -> Vec<String> {
        let is_behind = |series: &Series| series.faint.len() > 1 && !series.is_substituted();
        let has_faint = self.series.iter().any(is_behind);
        let behind = self.behind.as_ref().filter(|_| has_faint && is_faint_drawn);
        let behind = behind.map(|behind| format!("behind it: {behind}"));
        let cut = self.cut.map(|cut| format!("beginnings above {cut:.2} are cut off"));
        behind.into_iter().chain(self.substituted()).chain(cut).collect()
    }

    /// `small: loss instead, too few evaluations`.
    fn substituted(&self) -> Option<String> {
        let without = self.series.iter().filter(|series| series.is_substituted());
        let names: Vec<String> = without.map(|series| shortened(&series.name, NAME)).collect();
        let shown = match names.len() {
            0 => return None,
            1..=NAMED => names.join(", "),
            count => format!("{} and {} more", names[..NAMED].join(", "), count - NAMED),
        };
        let behind = self.behind.as_deref().unwrap_or_default();
        Some(format!("{shown}: {behind} instead, too few evaluations"))
    }

    fn points(&self) -> impl Iterator<Item = &At> {
        self.series.iter().flat_map(|series| series.strong.iter().chain(&series.faint))
    }

    /// The vertical axis.
    pub fn values(&self, ticks: usize) -> Axis {
        Axis::of_values(&self.title, self.points().map(|at| at.value), self.cut, ticks)
    }

    /// A horizontal axis.
    pub fn places(&self, by: By, ticks: usize) -> Axis {
        Axis::of_places(by, self.points().map(|at| by.place(at)), self.is_logarithmic, ticks)
    }

    /// What of a curve is inside a chart with these axes. A line that leaves it ends at its edge.
    pub fn visible(points: &[At], by: By, places: &Axis, values: &Axis) -> Visible {
        let share = |at: &At| Some((places.share(by.place(at))?, values.share(at.value)?));
        let mut parts: Visible = vec![Vec::new()];
        let mut last: Option<(f64, f64)> = None;
        for to in points.iter().filter_map(share) {
            let (is_in, was_in) = (to.1 <= 1.0, last.is_some_and(|last| last.1 <= 1.0));
            if let Some(from) = last.filter(|_| is_in != was_in) {
                let part = (1.0 - from.1) / (to.1 - from.1);
                let edge = (from.0 + part * (to.0 - from.0), 1.0);
                if is_in {
                    parts.push(Vec::new());
                }
                parts.last_mut().into_iter().for_each(|line| line.push(edge));
            }
            if is_in {
                parts.last_mut().into_iter().for_each(|line| line.push(to));
            }
            last = Some(to);
        }
        parts.retain(|part| !part.is_empty());
        parts
    }

    /// Whether there is nothing to draw over this.
    pub fn is_empty(&self, by: By) -> bool {
        !self.points().any(|at| by.place(at).is_finite())
    }
}

/// The end of a long name: folders differ there.
pub fn shortened(name: &str, most: usize) -> String {
    let count = name.chars().count();
    match count <= most {
        true => name.to_string(),
        false => format!("...{}", name.chars().skip(count - most + 3).collect::<String>()),
    }
}

/// Means of neighbours, so that at most [`DRAWN`] points are left.
fn thinned(points: Vec<At>) -> Vec<At> {
    let each = points.len().div_ceil(DRAWN).max(1);
    let mean = |part: &[At]| {
        let value = part.iter().map(|at| at.value).sum::<f64>() / part.len() as f64;
        At { value, ..part[part.len() - 1] }
    };
    points.chunks(each).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(iter: u64, value: f64) -> At {
        At { iter, tokens: f64::NAN, seconds: f64::NAN, value }
    }

    fn chart(values: &[f64]) -> Chart {
        let strong = values.iter().zip(0..).map(|(value, iter)| at(iter, *value)).collect();
        let series = vec![Series { name: "x".to_string(), strong, faint: Vec::new() }];
        let (title, behind) = (String::new(), None);
        Chart { title, behind, series, is_logarithmic: false, cut: None }
    }

    #[test]
    fn a_high_beginning_is_cut_and_nothing_else() {
        let mut values = vec![2.0; 100];
        assert_eq!(chart(&values).beginnings(), None);
        (values[0], values[50]) = (10.0, 2.5);
        assert_eq!(chart(&values).beginnings(), Some(2.5));
        values[60] = 9.0;
        assert_eq!(chart(&values).beginnings(), None, "it is high later, too");
        assert_eq!(chart(&[10.0, 2.0, 1.5]).beginnings(), None, "few points");
        assert_eq!(chart(&[]).beginnings(), None);
    }

    #[test]
    fn lines_end_at_the_edge() {
        let chart = chart(&[3.0, 1.0, 0.0, 3.0, 3.0]);
        let axis = Axis::of_values("", [0.0, 2.0].into_iter(), None, 5);
        let top = 1.0;
        let places = chart.places(By::Iteration, 5);
        let parts = Chart::visible(&chart.series[0].strong, By::Iteration, &places, &axis);
        assert_eq!(parts.len(), 1);
        assert_eq!(parts[0].len(), 4);
        assert_eq!((parts[0][0].1, parts[0][3].1), (top, top));
        assert!(parts[0].iter().all(|(x, y)| (0.0..=1.0).contains(x) && *y <= 1.0));
        assert!(Chart::visible(&[], By::Time, &places, &axis).is_empty());
    }
}
