//! Draws a scene as pixels: lines with soft edges, on a light ground.

use super::scene::{AXIS, Anchor, COLOURS, GRID, GROUND, Ink, STRONG, Scene, Shape, TEXT};
use super::strokes::{text_lines, text_width};

/// Pixels of a unit of the scene: sharp on dense screens.
const SCALE: f64 = 2.0;

/// A picture of red, green and blue bytes.
pub struct Pixels {
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Three bytes for each pixel, by rows.
    pub bytes: Vec<u8>,
    /// How much of each pixel the line covers that is being drawn.
    cover: Vec<f32>,
}

/// Draws a scene.
pub fn raster(scene: &Scene) -> Pixels {
    let (width, height) = ((scene.width * SCALE) as usize, (scene.height * SCALE) as usize);
    let bytes = rgb(GROUND.0).repeat(width * height);
    let mut pixels = Pixels { width, height, bytes, cover: vec![0.0; width * height] };
    for shape in &scene.shapes {
        pixels.draw(shape);
    }
    pixels
}

fn rgb(colour: u32) -> [u8; 3] {
    let [_, red, green, blue] = colour.to_be_bytes();
    [red, green, blue]
}

fn colour(ink: Ink) -> [u8; 3] {
    rgb(match ink {
        Ink::Strong => STRONG.0,
        Ink::Text => TEXT.0,
        Ink::Axis => AXIS.0,
        Ink::Grid => GRID.0,
        Ink::Series(index) => COLOURS[index % COLOURS.len()].0,
    })
}

impl Pixels {
    fn draw(&mut self, shape: &Shape) {
        match shape {
            Shape::Line { points, ink, width, opacity, dash } => {
                let parts = match dash {
                    Some(dash) => dashed(points, *dash),
                    None => vec![points.clone()],
                };
                self.lines(&parts, *width, colour(*ink), *opacity);
            }
            Shape::Dot { at, radius, ink } => {
                self.lines(&[vec![*at, *at]], 2.0 * radius, colour(*ink), 1.0);
            }
            Shape::Text { at: (x, y), size, ink, anchor, text } => {
                let width = text_width(text, *size);
                let x = match anchor {
                    Anchor::Start => *x,
                    Anchor::Middle => x - width / 2.0,
                    Anchor::End => x - width,
                };
                // Strong text has broader lines.
                let pen = size * if *ink == Ink::Strong { 0.105 } else { 0.085 };
                self.lines(&text_lines(text, *size, (x, *y)), pen, colour(*ink), 1.0);
            }
        }
    }

    /// Draws lines at once, so that where they meet nothing is drawn twice.
    fn lines(&mut self, lines: &[Vec<(f64, f64)>], width: f64, colour: [u8; 3], opacity: f64) {
        let mut touched: Option<[usize; 4]> = None;
        for pair in lines.iter().flat_map(|line| line.windows(2)) {
            let scaled = |(x, y): (f64, f64)| (x * SCALE, y * SCALE);
            let found = self.segment(scaled(pair[0]), scaled(pair[1]), width * SCALE / 2.0);
            touched = Some(match touched {
                None => found,
                Some([left, top, right, bottom]) => [
                    left.min(found[0]),
                    top.min(found[1]),
                    right.max(found[2]),
                    bottom.max(found[3]),
                ],
            });
        }
        let Some([left, top, right, bottom]) = touched else { return };
        for y in top..bottom {
            for x in left..right {
                let share =
                    f64::from(std::mem::take(&mut self.cover[y * self.width + x])) * opacity;
                let pixel = &mut self.bytes[3 * (y * self.width + x)..][..3];
                for (old, new) in pixel.iter_mut().zip(colour) {
                    let mixed = f64::from(*old) * (1.0 - share) + f64::from(new) * share;
                    *old = mixed.round() as u8;
                }
            }
        }
    }

    /// Adds a segment with round ends to the cover; returns the box that it touches.
    fn segment(&mut self, from: (f64, f64), to: (f64, f64), radius: f64) -> [usize; 4] {
        let reach = radius + 1.0;
        let low = |a: f64, b: f64, most: usize| ((a.min(b) - reach).max(0.0) as usize).min(most);
        let high =
            |a: f64, b: f64, most: usize| ((a.max(b) + reach).max(0.0) as usize + 1).min(most);
        let [left, right] = [low(from.0, to.0, self.width), high(from.0, to.0, self.width)];
        let [top, bottom] = [low(from.1, to.1, self.height), high(from.1, to.1, self.height)];
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let length = dx * dx + dy * dy;
        for y in top..bottom {
            for x in left..right {
                let (px, py) = (x as f64 + 0.5 - from.0, y as f64 + 0.5 - from.1);
                let along = if length > 0.0 { (px * dx + py * dy) / length } else { 0.0 };
                let along = along.clamp(0.0, 1.0);
                let distance = (px - along * dx).hypot(py - along * dy);
                let share = (radius + 0.5 - distance).clamp(0.0, 1.0) as f32;
                let cover = &mut self.cover[y * self.width + x];
                *cover = cover.max(share);
            }
        }
        [left, top, right, bottom]
    }
}

/// Cuts a line into dashes.
fn dashed(points: &[(f64, f64)], (on, off): (f64, f64)) -> Vec<Vec<(f64, f64)>> {
    let (mut parts, mut part) = (Vec::new(), Vec::from_iter(points.first().copied()));
    let (mut is_on, mut left) = (true, on);
    for pair in points.windows(2) {
        let (mut from, to) = (pair[0], pair[1]);
        loop {
            let distance = (to.0 - from.0).hypot(to.1 - from.1);
            if distance <= left {
                left -= distance;
                part.push(to);
                break;
            }
            let share = left / distance;
            from = (from.0 + share * (to.0 - from.0), from.1 + share * (to.1 - from.1));
            part.push(from);
            let done = std::mem::replace(&mut part, vec![from]);
            if is_on {
                parts.push(done);
            }
            (is_on, left) = (!is_on, if is_on { off } else { on });
        }
    }
    if is_on {
        parts.push(part);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashes_cover_their_share_of_a_line() {
        let parts = dashed(&[(0.0, 0.0), (50.0, 0.0), (100.0, 0.0)], (6.0, 4.0));
        let length: f64 = parts.iter().map(|part| part[part.len() - 1].0 - part[0].0).sum();
        assert_eq!((parts.len(), length), (10, 60.0));
    }

    #[test]
    fn a_line_covers_its_pixels_and_nothing_else() {
        let points = vec![(2.0, 5.0), (18.0, 5.0)];
        let shape = Shape::Line { points, ink: Ink::Axis, width: 2.0, opacity: 1.0, dash: None };
        let pixels = raster(&Scene { width: 20.0, height: 10.0, shapes: vec![shape] });
        let at = |x: usize, y: usize| &pixels.bytes[3 * (y * pixels.width + x)..][..3];
        assert_eq!(at(20, 10), rgb(AXIS.0));
        assert_eq!(at(20, 2), rgb(GROUND.0));
        assert!(pixels.cover.iter().all(|cover| *cover == 0.0));
    }
}
