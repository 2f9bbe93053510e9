//! A chart of characters: braille dots in the colours of the runs, or a letter for each run where
//! there are no colours.

use super::axis::{Axis, By};
use super::chart::Chart;
use super::curve::At;

/// One character of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The character.
    pub text: char,
    /// Whose curve it is.
    pub series: Option<usize>,
    /// Whether it belongs to the curve behind.
    pub is_faint: bool,
}

impl Cell {
    const fn plain(text: char) -> Cell {
        Cell { text, series: None, is_faint: false }
    }
}

/// Bits of the dots of a braille character: two columns of four.
const DOTS: [[u8; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];

/// Dots of a character's width and height, as braille and as letters.
const BRAILLE: (usize, usize) = (2, 4);
const LETTER: (usize, usize) = (1, 1);

/// Draws a chart of so many columns and rows, axes included. With `has_letters` each run is drawn
/// with a letter, in their order.
pub fn terminal(
    chart: &Chart,
    by: By,
    columns: usize,
    rows: usize,
    has_letters: bool,
) -> Vec<Vec<Cell>> {
    let rows = rows.max(6);
    let values = chart.values(rows / 3);
    let margin = values.ticks.iter().map(|(_, label)| label.chars().count()).max().unwrap_or(1);
    // A space, the axis, and at least ten columns.
    let columns = columns.max(margin + 12);
    let (width, height) = (columns - margin - 2, rows - 2);
    let places = chart.places(by, width / 12);
    let mut plot = Plot::new(width, height, if has_letters { LETTER } else { BRAILLE });
    for is_faint in [true, false] {
        for (index, series) in chart.series.iter().enumerate() {
            let points = if is_faint { &series.faint } else { &series.strong };
            if !is_faint || has_faint(chart) || series.is_substituted() {
                plot.draw(points, (by, &places, &values), Pen { series: index, is_faint });
            }
        }
    }
    let mut picture = plot.rows();
    frame(&mut picture, &values, &places, margin);
    picture
}

/// Whether a terminal shows the curves behind: those of several runs could not be told apart.
pub fn has_faint(chart: &Chart) -> bool {
    chart.series.len() == 1
}

/// What a dot is drawn with.
#[derive(Clone, Copy)]
struct Pen {
    series: usize,
    is_faint: bool,
}

struct Plot {
    width: usize,
    height: usize,
    /// Dots of a character.
    dots: (usize, usize),
    /// Dots that are set, and by whom last.
    cells: Vec<(u8, Option<Pen>)>,
}

impl Plot {
    fn new(width: usize, height: usize, dots: (usize, usize)) -> Plot {
        Plot { width, height, dots, cells: vec![(0, None); width * height] }
    }

    fn draw(&mut self, points: &[At], (by, places, values): (By, &Axis, &Axis), pen: Pen) {
        let across = (self.width * self.dots.0 - 1) as f64;
        let down = (self.height * self.dots.1 - 1) as f64;
        for line in Chart::visible(points, by, places, values) {
            let mut last = None;
            for (x, y) in line {
                let to = ((x * across).round() as i64, ((1.0 - y) * down).round() as i64);
                self.line(last.unwrap_or(to), to, pen);
                last = Some(to);
            }
        }
    }

    fn line(&mut self, from: (i64, i64), to: (i64, i64), pen: Pen) {
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let steps = dx.abs().max(dy.abs()).max(1);
        for step in 0..=steps {
            let part =
                |start: i64, size: i64| start + (size * step + size.signum() * steps / 2) / steps;
            self.dot(part(from.0, dx), part(from.1, dy), pen);
        }
    }

    fn dot(&mut self, x: i64, y: i64, pen: Pen) {
        let (Ok(x), Ok(y)) = (usize::try_from(x), usize::try_from(y)) else { return };
        let (column, row) = (x / self.dots.0, y / self.dots.1);
        if column < self.width && row < self.height {
            let (mask, by) = &mut self.cells[row * self.width + column];
            if by.is_some_and(|by| by.is_faint && !pen.is_faint) {
                *mask = 0;
            }
            *mask |= DOTS[x % self.dots.0][y % self.dots.1];
            *by = Some(pen);
        }
    }

    fn rows(&self) -> Vec<Vec<Cell>> {
        let cell = |(mask, pen): &(u8, Option<Pen>)| {
            let Some(Pen { series, is_faint }) = *pen else { return Cell::plain(' ') };
            let letter = char::from(b'a' + (series % 26) as u8);
            let braille = char::from_u32(0x2800 + u32::from(*mask)).unwrap_or('*');
            let text = if self.dots == LETTER { letter } else { braille };
            Cell { text, series: Some(series), is_faint }
        };
        self.cells.chunks(self.width).map(|row| row.iter().map(cell).collect()).collect()
    }
}

/// Puts the axes around the plot: labels on the left and below.
fn frame(picture: &mut Vec<Vec<Cell>>, values: &Axis, places: &Axis, margin: usize) {
    let (height, width) = (picture.len(), picture.first().map_or(0, Vec::len));
    let mut labels = vec![String::new(); height];
    for (value, label) in &values.ticks {
        if let Some(share) = values.share(*value) {
            labels[((1.0 - share) * (height - 1) as f64).round() as usize] = label.clone();
        }
    }
    for (row, label) in picture.iter_mut().zip(&labels) {
        let mark = if label.is_empty() { '│' } else { '┤' };
        let begin = format!("{label:>margin$} {mark}");
        row.splice(0..0, begin.chars().map(Cell::plain));
    }
    let (mut line, mut below) = (vec!['─'; width], vec![' '; width]);
    let mut free = 0;
    for (value, label) in &places.ticks {
        let Some(share) = places.share(*value) else { continue };
        let at = (share * (width - 1) as f64).round() as usize;
        let length = label.chars().count();
        let begin = at.saturating_sub(length / 2).min(width.saturating_sub(length));
        line[at] = '┬';
        if begin >= free && begin + length <= width {
            below.splice(begin..begin + length, label.chars());
            free = begin + length + 1;
        }
    }
    // The unit, if there is room behind the last label.
    let title = &places.title;
    if free + title.chars().count() <= width {
        let begin = width - title.chars().count();
        below.splice(begin.., title.chars());
    }
    let space = " ".repeat(margin + 1);
    picture.push(format!("{space}└").chars().chain(line).map(Cell::plain).collect());
    picture.push(format!("{space} ").chars().chain(below).map(Cell::plain).collect());
}
