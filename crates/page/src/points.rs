//! The values of a run over its iterations, in bounded memory: where there are more than fit,
//! neighbours are merged into their mean, lowest and highest value. A view asks for a part of them
//! in as many buckets as it has pixels.

use serde_json::{Map, Value, json};

/// Most rows. A run of a million iterations has 16 in each row.
const MOST: usize = 1 << 16;

/// Mean, lowest and highest of the values in a row; NaN where there is none.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cell {
    mean: f32,
    low: f32,
    high: f32,
}

impl Cell {
    fn of(value: f64) -> Cell {
        // An infinity cannot be drawn, and JSON cannot write it.
        let value = if value.is_finite() { value as f32 } else { f32::NAN };
        Cell { mean: value, low: value, high: value }
    }

    /// Both together, weighted by their numbers of points.
    fn with(self, other: Cell, weights: [f32; 2]) -> Cell {
        match (self.mean.is_nan(), other.mean.is_nan()) {
            (true, _) => other,
            (_, true) => self,
            _ => {
                let [a, b] = weights;
                let share = b / (a + b);
                Cell {
                    mean: self.mean + (other.mean - self.mean) * share,
                    low: self.low.min(other.low),
                    high: self.high.max(other.high),
                }
            }
        }
    }
}

/// Where a point is on each axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// The iteration.
    pub iter: u64,
    /// Tokens trained on; NaN if not known.
    pub tokens: f64,
    /// Seconds of training; NaN if not known.
    pub seconds: f64,
}

/// What a view is drawn over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Iterations.
    Iter,
    /// Tokens.
    Tokens,
    /// Seconds of training.
    Seconds,
}

impl Axis {
    /// The axis of this name.
    pub fn of(name: &str) -> Option<Axis> {
        match name {
            "iter" => Some(Axis::Iter),
            "tokens" => Some(Axis::Tokens),
            "time" => Some(Axis::Seconds),
            _ => None,
        }
    }

    fn value(self, place: &Place) -> f64 {
        match self {
            Axis::Iter => place.iter as f64,
            Axis::Tokens => place.tokens,
            Axis::Seconds => place.seconds,
        }
    }
}

/// Some neighbouring points as one; its place is that of the last.
#[derive(Clone, Copy, Debug)]
struct Row<const M: usize> {
    place: Place,
    count: u32,
    cells: [Cell; M],
}

impl<const M: usize> Row<M> {
    fn with(&self, later: &Row<M>) -> Row<M> {
        let weights = [self.count as f32, later.count as f32];
        let mut cells = self.cells;
        for (cell, other) in cells.iter_mut().zip(later.cells) {
            *cell = cell.with(other, weights);
        }
        Row { place: later.place, count: self.count.saturating_add(later.count), cells }
    }
}

/// The part of the points that a view shows.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// What `from` and `to` are about.
    pub axis: Axis,
    /// Where it begins.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// Most buckets.
    pub buckets: usize,
}

/// Points in order of their iterations, with the values of `M` metrics.
#[derive(Clone, Debug)]
pub struct Points<const M: usize> {
    rows: Vec<Row<M>>,
    /// Points in each row but the last.
    each: u32,
    /// All points that were added and not taken back.
    total: u64,
}

impl<const M: usize> Default for Points<M> {
    fn default() -> Points<M> {
        Points { rows: Vec::new(), each: 1, total: 0 }
    }
}

impl<const M: usize> Points<M> {
    /// Adds a point. Points at or after its iteration are replaced: the run was resumed before
    /// them.
    pub fn push(&mut self, place: Place, values: [f64; M]) {
        if self.rows.last().is_some_and(|last| last.place.iter >= place.iter) {
            self.cut(place.iter);
        }
        self.append(place, values);
    }

    /// Adds a point after all others, even at the same iteration.
    pub fn append(&mut self, place: Place, values: [f64; M]) {
        let new = Row { place, count: 1, cells: values.map(Cell::of) };
        self.total += 1;
        match self.rows.last_mut() {
            Some(last) if last.count < self.each => *last = last.with(&new),
            _ => self.rows.push(new),
        }
        let is_full = self.rows.len() == MOST;
        if is_full && self.rows.last().is_some_and(|last| last.count >= self.each) {
            for index in 0..MOST / 2 {
                self.rows[index] = self.rows[2 * index].with(&self.rows[2 * index + 1]);
            }
            self.rows.truncate(MOST / 2);
            self.each = self.each.saturating_mul(2);
        }
    }

    /// Removes the points from an iteration on. A row that only ends there loses all its points:
    /// a few iterations of a long run are then missing.
    pub fn cut(&mut self, iter: u64) {
        while self.rows.last().is_some_and(|row| row.place.iter >= iter) {
            let removed = self.rows.pop().map_or(0, |row| u64::from(row.count));
            self.total = self.total.saturating_sub(removed);
        }
    }

    /// Number of points.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The last place.
    pub fn last(&self) -> Option<Place> {
        self.rows.last().map(|row| row.place)
    }

    /// The part of a view as columns: the axes, then the mean of each named metric, and for those
    /// with a band their lowest and highest values.
    pub fn columns(&self, range: &Range, names: &[(&str, bool); M]) -> Value {
        let rows = self.within(range);
        let per_bucket = rows.len().div_ceil(range.buckets.max(1)).max(1);
        let merged = |chunk: &[Row<M>]| {
            let first = chunk[0];
            chunk[1..].iter().fold(first, |row, later| row.with(later))
        };
        let shown: Vec<Row<M>> = rows.chunks(per_bucket).map(merged).collect();
        let mut columns = Map::new();
        let mut add = |name: String, values: Vec<Value>| {
            columns.insert(name, Value::Array(values));
        };
        add("iter".into(), shown.iter().map(|row| json!(row.place.iter)).collect());
        add("tokens".into(), shown.iter().map(|row| json!(row.place.tokens)).collect());
        add("seconds".into(), shown.iter().map(|row| json!(row.place.seconds)).collect());
        for (index, (name, has_band)) in names.iter().enumerate() {
            let of = |pick: fn(&Cell) -> f32| {
                shown.iter().map(|row| json!(pick(&row.cells[index]))).collect::<Vec<Value>>()
            };
            if shown.iter().all(|row| row.cells[index].mean.is_nan()) {
                continue;
            }
            add((*name).to_string(), of(|cell| cell.mean));
            if *has_band && shown.iter().any(|row| row.count > 1) {
                add(format!("{name}_low"), of(|cell| cell.low));
                add(format!("{name}_high"), of(|cell| cell.high));
            }
        }
        json!({ "points": self.total, "per_bucket": per_bucket as u64 * u64::from(self.each),
                "columns": columns })
    }

    /// The rows of a view, and one more at each side so that lines reach its edges.
    fn within(&self, range: &Range) -> &[Row<M>] {
        let at = |row: &Row<M>| range.axis.value(&row.place);
        // Where the axis is not known, all comparisons fail, and all rows are shown.
        let start = self.rows.partition_point(|row| at(row) < range.from).saturating_sub(1);
        let end =
            self.rows.len() - self.rows.iter().rev().take_while(|row| at(row) > range.to).count();
        let end = (end + 1).min(self.rows.len());
        self.rows.get(start..end.max(start)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(iter: u64) -> Place {
        Place { iter, tokens: 10.0 * iter as f64, seconds: f64::NAN }
    }

    fn all(buckets: usize) -> Range {
        Range { axis: Axis::Iter, from: 0.0, to: f64::INFINITY, buckets }
    }

    #[test]
    fn a_million_points_are_few_rows_and_keep_their_extremes() {
        let mut points = Points::<1>::default();
        for iter in 0..1_000_000 {
            points.push(place(iter), [if iter == 777_777 { 9.0 } else { 1.0 }]);
        }
        assert!(points.rows.len() <= MOST && points.total() == 1_000_000);
        let shown = points.columns(&all(100), &[("loss", true)]);
        let columns = &shown["columns"];
        assert!(columns["loss"].as_array().unwrap().len() <= 100);
        let high = columns["loss_high"].as_array().unwrap();
        assert_eq!(high.iter().filter(|value| value.as_f64() == Some(9.0)).count(), 1);
        let zoomed = Range { from: 777_000.0, to: 778_000.0, ..all(1000) };
        let iters = points.columns(&zoomed, &[("loss", true)])["columns"]["iter"].clone();
        assert!((30..100).contains(&iters.as_array().unwrap().len()), "{iters}");
    }

    #[test]
    fn a_resumed_run_replaces_its_points_and_what_is_not_finite_is_null() {
        let mut points = Points::<1>::default();
        (0..10).for_each(|iter| points.push(place(iter), [1.0]));
        points.push(place(4), [f64::INFINITY]);
        let shown = points.columns(&all(100), &[("loss", true)]);
        assert_eq!(shown["columns"]["iter"], json!([0, 1, 2, 3, 4]));
        assert_eq!(shown["columns"]["loss"], json!([1.0, 1.0, 1.0, 1.0, null]));
        assert_eq!(shown["columns"]["seconds"], json!([null, null, null, null, null]));
        assert_eq!(points.total(), 5);
    }

    #[test]
    fn an_empty_or_reversed_range_has_no_rows() {
        let points = Points::<1>::default();
        assert_eq!(points.columns(&all(5), &[("x", false)])["columns"]["iter"], json!([]));
        let mut points = Points::<1>::default();
        (0..10).for_each(|iter| points.push(place(iter), [1.0]));
        let reversed = Range { from: 9.0, to: 1.0, ..all(0) };
        assert!(points.columns(&reversed, &[("x", false)])["columns"]["iter"].is_array());
    }
}
