//! The layout of a chart as lines, dots and texts. SVG and PNG draw the same scene.

use super::axis::{Axis, By};
use super::chart::{Chart, shortened};
use super::curve::At;

/// What something is drawn with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Titles.
    Strong,
    /// Labels.
    Text,
    /// Lines of the axes.
    Axis,
    /// Lines behind the curves.
    Grid,
    /// A run.
    Series(usize),
}

/// Where a text is relative to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// It begins there.
    Start,
    /// It is centred there.
    Middle,
    /// It ends there.
    End,
}

/// Something to draw; lengths are pixels, y grows downwards.
#[derive(Clone, Debug)]
pub enum Shape {
    /// A line through points.
    Line {
        /// The points.
        points: Vec<(f64, f64)>,
        /// Its ink.
        ink: Ink,
        /// Its width.
        width: f64,
        /// 1 covers what is below.
        opacity: f64,
        /// Lengths of dashes and gaps; none for a whole line.
        dash: Option<(f64, f64)>,
    },
    /// A filled circle.
    Dot {
        /// Its centre.
        at: (f64, f64),
        /// Its radius.
        radius: f64,
        /// Its ink.
        ink: Ink,
    },
    /// One line of text.
    Text {
        /// The place of its base line.
        at: (f64, f64),
        /// Height of the font.
        size: f64,
        /// Its ink.
        ink: Ink,
        /// Where it is relative to the place.
        anchor: Anchor,
        /// The text.
        text: String,
    },
}

/// A picture.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Its width.
    pub width: f64,
    /// Its height.
    pub height: f64,
    /// What is on it, in the order of drawing.
    pub shapes: Vec<Shape>,
}

/// Colours of the runs, on a light and on a dark ground; after the last they repeat with dashes.
/// They differ for eyes that do not tell red from green.
pub const COLOURS: [(u32, u32); 8] = [
    (0x0b6bb8, 0x58a6ff),
    (0xd1560f, 0xff9350),
    (0x0a8a62, 0x3fcf9e),
    (0xb8488f, 0xf08cc8),
    (0x9a6b00, 0xe8b93c),
    (0x6a51c9, 0xa894ff),
    (0x0f8f9e, 0x4fd0e0),
    (0x5c6670, 0xa9b4bf),
];

/// The other inks: title, labels, axes, grid, ground; on a light and on a dark ground.
pub const STRONG: (u32, u32) = (0x1b2127, 0xe8edf2);
pub const TEXT: (u32, u32) = (0x57606a, 0x9aa5b1);
pub const AXIS: (u32, u32) = (0x8c959f, 0x5b6570);
pub const GRID: (u32, u32) = (0xe6eaee, 0x242b33);
pub const GROUND: (u32, u32) = (0xffffff, 0x0d1117);

/// Width of a character, as a share of the font's height, for what cannot be measured.
const CHARACTER: f64 = 0.57;

const TITLE: f64 = 17.0;
const LABEL: f64 = 12.0;
const LEGEND: f64 = 13.0;

/// Space around everything.
const MARGIN: f64 = 20.0;
/// Space for the labels of the vertical axis.
const LEFT: f64 = 46.0;
/// Space between panels.
const GAP: f64 = 42.0;
/// Space below a panel, for its labels.
const BELOW: f64 = 46.0;
/// Height of a row of the legend.
const ROW: f64 = 22.0;

/// Length of a run's line in the legend.
const SAMPLE: f64 = 22.0;

/// Up to this many points of a curve are marked.
const MARKED: usize = 40;

/// Longest name in a legend.
const NAME: usize = 48;

/// Lays out a panel for each of these.
pub fn scene(chart: &Chart, over: &[By]) -> Scene {
    let (width, height) = if over.len() > 1 { (1080.0, 340.0) } else { (860.0, 420.0) };
    let mut shapes = Vec::new();
    let mut top = MARGIN + TITLE;
    text(&mut shapes, (MARGIN, top - 3.0), TITLE, Ink::Strong, Anchor::Start, &chart.title);
    let at = MARGIN + chart.title.chars().count() as f64 * TITLE * CHARACTER + 14.0;
    let note = chart.note(true).join("; ");
    text(&mut shapes, (at, top - 3.0), LABEL, Ink::Text, Anchor::Start, &note);
    top = legend(&mut shapes, chart, width, top + 10.0) + 20.0;
    let bottom = top + height - BELOW;
    let values = chart.values(6);
    let each = (width - 2.0 * MARGIN - LEFT - GAP * (over.len() - 1) as f64) / over.len() as f64;
    for (index, by) in over.iter().enumerate() {
        let left = MARGIN + LEFT + index as f64 * (each + GAP);
        let places = chart.places(*by, (each / 70.0) as usize);
        let panel = Panel { left, right: left + each, top, bottom, places, values: &values };
        panel.draw(&mut shapes, chart, *by, index == 0);
    }
    Scene { width, height: bottom + BELOW, shapes }
}

fn text(shapes: &mut Vec<Shape>, at: (f64, f64), size: f64, ink: Ink, anchor: Anchor, text: &str) {
    shapes.push(Shape::Text { at, size, ink, anchor, text: text.to_string() });
}

/// Dashes of a run: those beyond the last colour have some.
fn dash(series: usize) -> Option<(f64, f64)> {
    [None, Some((7.0, 4.0)), Some((2.0, 3.0))][series / COLOURS.len() % 3]
}

/// The runs' names in rows; returns where it ends.
fn legend(shapes: &mut Vec<Shape>, chart: &Chart, width: f64, top: f64) -> f64 {
    let (mut x, mut y) = (MARGIN, top + ROW * 0.7);
    for (index, series) in chart.series.iter().enumerate() {
        let name = shortened(&series.name, NAME);
        let needed = SAMPLE + 8.0 + name.chars().count() as f64 * LEGEND * CHARACTER + 20.0;
        if x > MARGIN && x + needed > width - MARGIN {
            (x, y) = (MARGIN, y + ROW);
        }
        let points = vec![(x, y - 4.0), (x + SAMPLE, y - 4.0)];
        let (ink, dash) = (Ink::Series(index), dash(index));
        shapes.push(Shape::Line { points, ink, width: 2.5, opacity: 1.0, dash });
        text(shapes, (x + SAMPLE + 8.0, y), LEGEND, Ink::Strong, Anchor::Start, &name);
        x += needed;
    }
    y
}

struct Panel<'a> {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    places: Axis,
    values: &'a Axis,
}

impl Panel<'_> {
    fn draw(&self, shapes: &mut Vec<Shape>, chart: &Chart, by: By, has_labels: bool) {
        self.grid(shapes, has_labels);
        for (index, series) in chart.series.iter().enumerate() {
            let opacity = if series.is_substituted() { 0.8 } else { 0.28 };
            self.curve(shapes, &series.faint, by, index, opacity);
        }
        for (index, series) in chart.series.iter().enumerate() {
            self.curve(shapes, &series.strong, by, index, 1.0);
            let is_marked = series.strong.len() <= MARKED;
            let share = |at: &At| {
                let place = self.places.share(by.place(at))?;
                Some((place, self.values.share(at.value).filter(|share| *share <= 1.0)?))
            };
            for at in series.strong.iter().filter(|_| is_marked).filter_map(share) {
                let at = self.point(at);
                shapes.push(Shape::Dot { at, radius: 2.6, ink: Ink::Series(index) });
            }
        }
        if chart.is_empty(by) {
            let at = ((self.left + self.right) / 2.0, (self.top + self.bottom) / 2.0);
            let note = format!("no {} in these logs", by.word());
            text(shapes, at, LABEL, Ink::Text, Anchor::Middle, &note);
        }
    }

    fn grid(&self, shapes: &mut Vec<Shape>, has_labels: bool) {
        let mut line = |points: [(f64, f64); 2], ink: Ink| {
            let points = points.to_vec();
            shapes.push(Shape::Line { points, ink, width: 1.0, opacity: 1.0, dash: None });
        };
        for (value, _) in &self.values.ticks {
            if let Some(y) = self.y(*value) {
                line([(self.left, y), (self.right, y)], Ink::Grid);
            }
        }
        for (place, _) in &self.places.ticks {
            if let Some(x) = self.x(*place) {
                line([(x, self.bottom), (x, self.bottom + 4.0)], Ink::Axis);
            }
        }
        line([(self.left, self.bottom), (self.right, self.bottom)], Ink::Axis);
        for (value, label) in self.values.ticks.iter().filter(|_| has_labels) {
            if let Some(y) = self.y(*value) {
                let at = (self.left - 8.0, y + 0.35 * LABEL);
                text(shapes, at, LABEL, Ink::Text, Anchor::End, label);
            }
        }
        for (place, label) in &self.places.ticks {
            if let Some(x) = self.x(*place) {
                let at = (x, self.bottom + 5.0 + LABEL);
                text(shapes, at, LABEL, Ink::Text, Anchor::Middle, label);
            }
        }
        let at = (self.right, self.bottom + 10.0 + 2.0 * LABEL);
        text(shapes, at, LABEL, Ink::Strong, Anchor::End, &self.places.title);
    }

    fn curve(&self, shapes: &mut Vec<Shape>, points: &[At], by: By, index: usize, opacity: f64) {
        for line in Chart::visible(points, by, &self.places, self.values) {
            let points: Vec<(f64, f64)> = line.iter().map(|&share| self.point(share)).collect();
            if points.len() > 1 {
                let (ink, width) = (Ink::Series(index), if opacity < 1.0 { 1.4 } else { 2.0 });
                shapes.push(Shape::Line { points, ink, width, opacity, dash: dash(index) });
            }
        }
    }

    fn x(&self, place: f64) -> Option<f64> {
        Some(self.point((self.places.share(place)?, 0.0)).0)
    }

    fn y(&self, value: f64) -> Option<f64> {
        Some(self.point((0.0, self.values.share(value)?)).1)
    }

    /// The place of shares of the width and the height.
    fn point(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let (width, height) = (self.right - self.left, self.bottom - self.top);
        (self.left + x * width, self.bottom - y * height)
    }
}
