//! A small chart of live bytes over one slice and the update: predicted time across, bytes up.
//! Memory that lives for the whole run is faint, the rest is coloured.

use super::PlanReport;
use crate::screen::{coloured, faint, strong};
use plan::hardware::Hardware;
use plan::ops::Op;
use plan::overlap::step_ends;
use plan::report::live_bytes;
use plan::{Bytes, Lane, Pass, Plan, SegmentId};

/// Rows of the chart.
const ROWS: usize = 7;

/// Columns left of it.
const MARGIN: usize = 13;

/// Most columns of it.
const WIDEST: usize = 84;

/// One step on the axis of time.
pub struct Moment {
    /// Its start, as a share of the whole time.
    pub from: f64,
    /// Its end, as a share of the whole time.
    pub to: f64,
    /// Bytes in use.
    pub live: u64,
    /// The part it belongs to: forward, head, backward, update.
    pub part: &'static str,
}

/// The steps of all segments on one time axis. Only steps that compute move along it: a copy beside
/// them takes no room, except that a segment lasts until its last copy has ended.
pub fn moments(plan: &Plan, segments: &[SegmentId], device: &Hardware) -> Vec<Moment> {
    let mut all = Vec::new();
    let mut now: f64 = 0.0;
    for &id in segments {
        let steps = &plan.schedule.segment(id).steps;
        let (start, ends) = (now, step_ends(&plan.schedule, id, device));
        let latest = ends.iter().copied().fold(0.0, f64::max);
        let last = steps.len().saturating_sub(1);
        let live = live_bytes(plan, id).into_iter().zip(ends);
        for (index, (step, (live, end))) in steps.iter().zip(live).enumerate() {
            let from = now;
            match step.lane {
                _ if index == last => now = start + latest,
                Lane::Compute => now = start + end,
                Lane::Upload | Lane::Download | Lane::Communication => {}
            }
            let part = match (step.pass, &step.op) {
                (_, Op::HeadTrain(_) | Op::HeadEval(_)) => "head",
                (Pass::Forward, _) => "forward",
                (Pass::Backward, _) => "backward",
                (Pass::Update, _) => "update",
            };
            all.push(Moment { from, to: now, live, part });
        }
    }
    let whole = now.max(f64::MIN_POSITIVE);
    for moment in &mut all {
        moment.from /= whole;
        moment.to /= whole;
    }
    all
}

/// The segments of the chart: the first training slice and the update, or an evaluation slice.
pub fn shown(report: &PlanReport) -> Vec<SegmentId> {
    let program = &report.planned.program;
    let train = program.train.first().map(|slice| slice.segment);
    match (train, program.update) {
        (Some(slice), Some(update)) => vec![slice, update],
        _ => program.eval.first().map(|slice| slice.segment).into_iter().collect(),
    }
}

/// The chart for a screen of `width` columns.
pub fn text(report: &PlanReport, width: usize) -> String {
    let moments = moments(&report.planned.plan, &shown(report), &report.machine.hardware);
    let columns = width.saturating_sub(MARGIN + 2).clamp(16, WIDEST);
    let arena = report.bill.arena_bytes.get().max(1);
    let held = report.held().get();
    let heights: Vec<u64> = (0..columns)
        .map(|column| {
            let (from, to) = (column as f64, (column + 1) as f64);
            let within =
                |m: &&Moment| m.from * (columns as f64) < to && m.to * (columns as f64) > from;
            moments.iter().filter(within).map(|moment| moment.live).max().unwrap_or(held)
        })
        .collect();
    let what = match report.planned.cut() {
        Some(_) => "memory over one slice and the update, in predicted time",
        None => "memory over one slice of an evaluation, in predicted time",
    };
    let mut text = strong(what) + "\n";
    for row in (0..ROWS).rev() {
        let label = match row {
            r if r == ROWS - 1 => bytes(arena),
            0 => "0".to_string(),
            _ => String::new(),
        };
        let mut line = String::new();
        for &height in &heights {
            let eighths = |bytes: u64| {
                let full = bytes as f64 / arena as f64 * (ROWS * 8) as f64;
                (full.round() as usize).saturating_sub(row * 8).min(8)
            };
            line += &match (eighths(height), eighths(held)) {
                (0, _) => " ".to_string(),
                (_, 8) => faint("█"),
                (block, _) => coloured(BLOCKS[block]),
            };
        }
        text += &format!("  {label:>10} {}\n", line.trim_end());
    }
    text + &format!("  {:>10} {}\n", "", faint(&parts(&moments, columns)))
}

const BLOCKS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

fn bytes(bytes: u64) -> String {
    Bytes::new(bytes).map_or_else(String::new, |bytes| bytes.to_string())
}

/// The names of the parts below the columns where they begin, if there is room.
fn parts(moments: &[Moment], columns: usize) -> String {
    let mut line = String::new();
    let runs = moments.chunk_by(|a, b| a.part == b.part);
    for run in runs {
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            continue;
        };
        let [from, to] = [first.from, last.to].map(|at| (at * columns as f64).round() as usize);
        let start = line.chars().count();
        if start > from && from > 0 {
            continue;
        }
        line += &" ".repeat(from - start);
        let label = format!("└{}", first.part);
        if label.chars().count() <= to - from {
            line += &label;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planning::{Elsewhere, Planning};
    use plan::overlap::segment_seconds;

    /// Activations of some layers are copied beside kernels, and the optimizer's state beside the
    /// update.
    #[test]
    fn copies_take_no_room_beside_kernels() {
        let card = Elsewhere { gpu: Some("H200"), vram: Some("11.69GiB"), fleet: None };
        let sizes = ["--dataset=x", "--n_layer=48", "--n_head=25", "--n_embd=1600"];
        let levers = ["--batch_size=4", "--offload=auto", "--optimizer_state=auto"];
        let arguments: Vec<String> = sizes.iter().chain(&levers).map(|s| s.to_string()).collect();
        let report = Planning::new(&card, &arguments).unwrap().plan().unwrap();
        let cut = report.planned.cut().unwrap();
        assert!(cut.layers_on_host() > 0 && cut.state_options.offload, "{cut:?}");
        let (plan, device) = (&report.planned.plan, &report.machine.hardware);
        let segments = shown(&report);
        let [slice, update] = [segments[0], segments[1]];
        let moments = moments(plan, &segments, device);
        assert_eq!((moments[0].from, moments[moments.len() - 1].to), (0.0, 1.0));
        assert!(moments.windows(2).all(|pair| pair[0].to == pair[1].from));
        assert!(moments.iter().all(|moment| moment.from <= moment.to));
        let steps = |id: SegmentId| plan.schedule.segment(id).steps.iter();
        let lanes: Vec<Lane> = steps(slice).chain(steps(update)).map(|step| step.lane).collect();
        let (in_slice, all) = (steps(slice).len(), moments.len());
        for (index, (moment, lane)) in moments.iter().zip(lanes).enumerate() {
            let is_last = index + 1 == in_slice || index + 1 == all;
            let is_beside = lane != Lane::Compute && !is_last;
            assert!(!is_beside || moment.from == moment.to, "step {index}");
        }
        let [of_slice, of_update] =
            [slice, update].map(|id| segment_seconds(&plan.schedule, id, device));
        let share = of_slice / (of_slice + of_update);
        assert!((moments[in_slice].from - share).abs() < 1e-9);
    }
}
