//! Draws the arena: predicted time across, address up, one rectangle for the lifetime of each
//! tensor, coloured by its role. Hovering shows its name and size.

use super::PlanReport;
use super::timeline::{Moment, moments, shown};
use plan::{Bytes, Placement, Role, SegmentId};
use std::fmt::Write;

/// Size of the drawing, and margins around the map.
const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 800.0;
const LEFT: f64 = 90.0;
const TOP: f64 = 104.0;
const RIGHT: f64 = 24.0;
const BOTTOM: f64 = 104.0;

/// The axes of the map.
struct Frame {
    moments: Vec<Moment>,
    arena: f64,
}

impl Frame {
    fn x(&self, share: f64) -> f64 {
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, address: f64) -> f64 {
        HEIGHT - BOTTOM - address / self.arena * (HEIGHT - TOP - BOTTOM)
    }
}

/// The picture as SVG.
pub fn svg(report: &PlanReport) -> String {
    let segments = shown(report);
    let plan = &report.planned.plan;
    let frame = Frame {
        moments: moments(plan, &segments, &report.machine.hardware),
        arena: plan.arena_bytes.get().max(1) as f64,
    };
    let mut text = head(report);
    let mut first = 0;
    for &segment in &segments {
        let steps = plan.schedule.segment(segment).steps.len();
        for place in &plan.layout(segment).placements {
            if !plan.is_on_host(place.tensor) {
                tensor(&mut text, report, &frame, segment, first, place);
            }
        }
        first += steps;
    }
    axes(&mut text, &frame, plan.arena_bytes);
    legend(&mut text, report);
    text += "</svg>\n";
    text
}

fn head(report: &PlanReport) -> String {
    let names: Vec<String> = shown(report)
        .iter()
        .map(|&id| report.planned.plan.schedule.segment(id).name.clone())
        .collect();
    let sentence = escaped(&super::sentence::of(report));
    let (cut, metrics) = sentence.split_once(": ").unwrap_or((&sentence, ""));
    let what = format!(
        "The arena of {} over {}: predicted time across, address up; plan {:016x}",
        report.bill.arena_bytes,
        names.join(" and "),
        report.planned.hash()
    );
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"30\" font-size=\"16\" font-weight=\"600\">{}</text>\n\
         <text x=\"{LEFT}\" y=\"52\" font-size=\"15\">{}</text>\n\
         <text x=\"{LEFT}\" y=\"76\" fill=\"#555\">{}</text>\n",
        clipped(cut, 118),
        clipped(metrics, 130),
        escaped(&what)
    )
}

fn tensor(
    text: &mut String,
    report: &PlanReport,
    frame: &Frame,
    segment: SegmentId,
    first: usize,
    place: &Placement,
) {
    let plan = &report.planned.plan;
    let steps = plan.schedule.segment(segment).steps.len();
    let at = |step: usize| frame.moments.get(first + step.min(steps.saturating_sub(1)));
    let (Some(born), Some(dead)) = (at(place.live.first), at(place.live.last)) else {
        return;
    };
    let [x0, x1] = [born.from, dead.to].map(|share| frame.x(share));
    let [y0, y1] = [place.end(), place.offset.get()].map(|byte| frame.y(byte as f64));
    let row = plan.schedule.tensors.get(place.tensor);
    let (name, role, colour) = (escaped(&row.name), row.role.name(), colour(row.role));
    let (dtype, shape) = (row.dtype, row.shape);
    let _ = writeln!(
        text,
        "<rect x=\"{x0:.2}\" y=\"{y0:.2}\" width=\"{:.2}\" height=\"{:.2}\" fill=\"{colour}\" \
         stroke=\"#fff\" stroke-width=\"{}\">\
         <title>{name} {dtype} {shape}: {} ({role})</title></rect>",
        (x1 - x0).max(0.2),
        (y1 - y0).max(0.2),
        if y1 - y0 > 4.0 && x1 - x0 > 4.0 { 0.5 } else { 0.0 },
        place.size
    );
}

fn axes(text: &mut String, frame: &Frame, arena: Bytes) {
    for tick in 0..=4u64 {
        let bytes = arena.get() / 4 * tick;
        let (y, label) = (frame.y(bytes as f64), label(bytes));
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#333\">{label}</text>\
             <line x1=\"{:.1}\" x2=\"{LEFT}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#999\"/>",
            LEFT - 8.0,
            y + 4.0,
            LEFT - 5.0
        );
    }
    let base = HEIGHT - BOTTOM;
    for run in frame.moments.chunk_by(|a, b| a.part == b.part) {
        if let (Some(start), Some(end)) = (run.first(), run.last()) {
            let [x0, x1] = [start.from, end.to].map(|share| frame.x(share));
            let _ = writeln!(
                text,
                "<line x1=\"{x0:.1}\" x2=\"{x0:.1}\" y1=\"{base}\" y2=\"{:.1}\" stroke=\"#999\"/>",
                base + 6.0
            );
            if x1 - x0 > 48.0 {
                let _ = writeln!(
                    text,
                    "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"#333\">{}</text>",
                    x0 + 4.0,
                    base + 18.0,
                    start.part
                );
            }
        }
    }
}

fn legend(text: &mut String, report: &PlanReport) {
    let rows = report.bill.segments.iter().max_by_key(|segment| segment.top);
    let (mut x, mut y) = (LEFT, HEIGHT - 52.0);
    for (role, bytes) in rows.map_or(&[][..], |segment| &segment.by_role) {
        let label = format!("{} {bytes}", role.name());
        let width = 36.0 + 7.6 * label.len() as f64;
        if x + width > WIDTH - RIGHT {
            (x, y) = (LEFT, y + 20.0);
        }
        let _ = writeln!(
            text,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{}\"/>\
             <text x=\"{:.1}\" y=\"{y:.1}\" fill=\"#333\">{label}</text>",
            y - 11.0,
            colour(*role),
            x + 17.0
        );
        x += width;
    }
    let _ = writeln!(
        text,
        "<text x=\"{LEFT}\" y=\"{:.1}\" fill=\"#777\">bytes at the fullest moment; hover for \
         names</text>",
        HEIGHT - 10.0
    );
}

/// One colour per role: persistent state in blues, temporary tensors in warm colours.
const fn colour(role: Role) -> &'static str {
    match role {
        Role::Weight => "#1f4e79",
        Role::Master => "#2f75b5",
        Role::Gradient => "#7aa6d6",
        Role::Moment => "#b4cde8",
        Role::Activation => "#f2a65a",
        Role::Logits => "#c8553d",
        Role::Cache => "#7b9e6b",
        Role::Workspace | Role::Partials => "#9a8fb8",
        Role::Tokens => "#444444",
        Role::State => "#888888",
    }
}

fn label(bytes: u64) -> String {
    Bytes::new(bytes).map_or_else(String::new, |bytes| bytes.to_string())
}

fn clipped(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
