//! A metric over a run, of bounded size: beyond some thousand points, neighbours become their mean.

/// Most points.
const MOST: usize = 4096;

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct At {
    /// The iteration.
    pub iter: u64,
    /// Tokens trained on before it, or with it; NaN if not known.
    pub tokens: f64,
    /// Seconds of training before it; NaN if not known.
    pub seconds: f64,
    /// The value.
    pub value: f64,
}

/// Points in order of their iterations.
#[derive(Clone, Debug)]
pub struct Curve {
    points: Vec<At>,
    /// Points of the log in each point here.
    each: u64,
    /// The sum of the newest points, and how many they are: fewer than `each`.
    open: Option<(At, u64)>,
}

impl Default for Curve {
    fn default() -> Curve {
        Curve { points: Vec::new(), each: 1, open: None }
    }
}

impl Curve {
    /// Adds a point. Points at or after its iteration are replaced: the run was resumed before
    /// them.
    pub fn push(&mut self, at: At) {
        if !at.value.is_finite() {
            return;
        }
        self.cut(at.iter);
        let (sum, count) =
            self.open.map_or((at.value, 1), |(old, n)| (old.value + at.value, n + 1));
        self.open = Some((At { value: sum, ..at }, count));
        if count < self.each {
            return;
        }
        self.points.extend(self.open.take().map(mean));
        if self.points.len() == MOST {
            let pair = |pair: &[At]| {
                let value = pair.iter().map(|at| at.value).sum::<f64>() / pair.len() as f64;
                At { value, ..pair[pair.len() - 1] }
            };
            self.points = self.points.chunks(2).map(pair).collect();
            self.each = self.each.saturating_mul(2);
        }
    }

    /// Removes the points from an iteration on.
    pub fn cut(&mut self, iter: u64) {
        if self.open.is_some_and(|(at, _)| at.iter >= iter) {
            self.open = None;
        }
        while self.points.last().is_some_and(|at| at.iter >= iter) {
            self.points.pop();
        }
    }

    /// All points.
    pub fn points(&self) -> impl Iterator<Item = At> {
        self.points.iter().copied().chain(self.open.map(mean))
    }

    /// The last point.
    pub fn last(&self) -> Option<At> {
        self.open.map(mean).or_else(|| self.points.last().copied())
    }

    /// Points of the log in each point here.
    pub fn each(&self) -> u64 {
        self.each
    }
}

fn mean((sum, count): (At, u64)) -> At {
    At { value: sum.value / count as f64, ..sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(iter: u64, value: f64) -> At {
        At { iter, tokens: iter as f64, seconds: f64::NAN, value }
    }

    #[test]
    fn the_later_point_counts_and_what_is_not_finite_does_not() {
        let mut curve = Curve::default();
        (0..10).for_each(|iter| curve.push(at(iter, 1.0)));
        curve.push(at(4, 2.0));
        curve.push(at(5, f64::NAN));
        let found: Vec<(u64, f64)> = curve.points().map(|at| (at.iter, at.value)).collect();
        assert_eq!(found, [(0, 1.0), (1, 1.0), (2, 1.0), (3, 1.0), (4, 2.0)]);
    }

    #[test]
    fn a_million_points_are_a_few_thousand_means() {
        let mut curve = Curve::default();
        (0..1_000_000).for_each(|iter| curve.push(at(iter, (iter % 2) as f64)));
        let points: Vec<At> = curve.points().collect();
        assert!((MOST / 2..=MOST).contains(&points.len()), "{}", points.len());
        assert!(points[..points.len() - 1].iter().all(|at| at.value == 0.5));
        assert!(points.windows(2).all(|pair| pair[0].iter < pair[1].iter));
        assert_eq!(curve.last().unwrap().iter, 999_999);
        curve.cut(500_000);
        assert!(curve.points().count() > 900);
        assert!(curve.last().unwrap().iter < 500_000);
    }
}
