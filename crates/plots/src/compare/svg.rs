//! A chart as SVG, with colours for a light and for a dark ground.

use super::axis::By;
use super::chart::Chart;
use super::scene::{AXIS, Anchor, COLOURS, GRID, GROUND, Ink, STRONG, Scene, Shape, TEXT, scene};
use std::fmt::Write;

/// Draws a panel for each of these.
pub fn svg(chart: &Chart, over: &[By]) -> String {
    let Scene { width, height, shapes } = scene(chart, over);
    let names: Vec<String> = chart.series.iter().map(|series| escaped(&series.name)).collect();
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\" \
         font-family=\"ui-sans-serif, system-ui, 'Segoe UI', Helvetica, Arial, sans-serif\">\n\
         <title>{} of {}</title>\n<style>\n{}@media (prefers-color-scheme: dark) {{\n{}}}\n\
         </style>\n<rect class=\"ground\" width=\"{width}\" height=\"{height}\"/>\n",
        escaped(&chart.title),
        names.join(", "),
        style(|(light, _)| light),
        style(|(_, dark)| dark),
    );
    for shape in &shapes {
        draw(&mut out, shape);
    }
    out + "</svg>\n"
}

fn style(of: impl Fn((u32, u32)) -> u32) -> String {
    let mut out = format!(".ground {{ fill: #{:06x} }}\n", of(GROUND));
    for (name, ink) in [("strong", STRONG), ("text", TEXT), ("axis", AXIS), ("grid", GRID)] {
        let colour = of(ink);
        let _ = writeln!(out, ".{name} {{ fill: #{colour:06x}; stroke: #{colour:06x} }}");
    }
    for (index, ink) in COLOURS.iter().enumerate() {
        let colour = of(*ink);
        let _ = writeln!(out, ".s{index} {{ fill: #{colour:06x}; stroke: #{colour:06x} }}");
    }
    out
}

fn class(ink: Ink) -> String {
    match ink {
        Ink::Strong => "strong".to_string(),
        Ink::Text => "text".to_string(),
        Ink::Axis => "axis".to_string(),
        Ink::Grid => "grid".to_string(),
        Ink::Series(index) => format!("s{}", index % COLOURS.len()),
    }
}

// Writing to a string cannot fail.
fn draw(out: &mut String, shape: &Shape) {
    match shape {
        Shape::Line { points, ink, width, opacity, dash } => {
            let mut path = String::new();
            for (index, (x, y)) in points.iter().enumerate() {
                let _ = write!(path, "{}{x:.1} {y:.1}", if index == 0 { "M" } else { " " });
            }
            let opacity = match opacity {
                1.0 => String::new(),
                opacity => format!(" stroke-opacity=\"{opacity}\""),
            };
            let dash = dash.map(|(on, off)| format!(" stroke-dasharray=\"{on} {off}\""));
            let _ = writeln!(
                out,
                "<path class=\"{}\" d=\"{path}\" style=\"fill: none\" stroke-width=\"{width}\" \
                 stroke-linejoin=\"round\" stroke-linecap=\"round\"{opacity}{}/>",
                class(*ink),
                dash.unwrap_or_default(),
            );
        }
        Shape::Dot { at: (x, y), radius, ink } => {
            let class = class(*ink);
            let _ = writeln!(
                out,
                "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" \
                 stroke=\"none\"/>"
            );
        }
        Shape::Text { at: (x, y), size, ink, anchor, text } => {
            let anchor = match anchor {
                Anchor::Start => "start",
                Anchor::Middle => "middle",
                Anchor::End => "end",
            };
            let _ = writeln!(
                out,
                "<text class=\"{}\" x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" \
                 text-anchor=\"{anchor}\" style=\"stroke: none\">{}</text>",
                class(*ink),
                escaped(text),
            );
        }
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        match character {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            // XML allows no other control characters, not even escaped.
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
