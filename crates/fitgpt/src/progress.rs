//! The console as a sink of events: nanoGPT's lines with what its users miss, and on a terminal a
//! bar below them. In a pipe or a file there are only lines.

use crate::numbers::{duration, short};
use crate::screen;
use events::{Evaluated, Event, Iteration, Sink, SinkError, What};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use plan::Bytes;
use std::path::Path;
use train::save::best_path;

/// Weight of the newest iteration in the smoothed time of one.
const NEWEST: f64 = 0.1;

/// Columns below which there is no room for a bar beside the metrics.
const NARROW: usize = 60;

/// What it takes to show a run.
pub struct ProgressSpec {
    /// The iteration it begins with.
    pub started_at: u64,
    /// The last iteration.
    pub max_iters: u64,
    /// Iterations from one evaluation to the next.
    pub eval_interval: u64,
    /// Operations of a token, as nanoGPT counts them.
    pub flops_per_token: f64,
    /// Operations a second that the device can do, where it is known.
    pub peak_flops: Option<f64>,
}

/// Shows a run.
pub struct Progress {
    spec: ProgressSpec,
    bar: ProgressBar,
    /// Columns of a line.
    width: usize,
    /// Seconds of an iteration, smoothed.
    seconds: Option<f64>,
    /// When the evaluation began, in seconds of the run, and how long the last one took.
    evaluation_began: Option<f64>,
    evaluation_seconds: f64,
    /// Resident memory, as it was last told.
    memory: Option<Bytes>,
    message: String,
}

impl Progress {
    /// A bar where somebody watches.
    pub fn new(spec: ProgressSpec) -> Progress {
        let bar = ProgressBar::new(spec.max_iters + 1);
        bar.set_draw_target(if screen::is_terminal() {
            ProgressDrawTarget::stdout_with_hz(5)
        } else {
            ProgressDrawTarget::hidden()
        });
        let width = if screen::is_terminal() { screen::width() } else { usize::MAX };
        let template = match width < NARROW {
            true => "{pos}/{len}  {msg}",
            false => "{wide_bar:.cyan} {pos}/{len}  {msg}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("━╸ "));
        }
        bar.set_position(spec.started_at);
        Progress {
            spec,
            bar,
            width,
            seconds: None,
            evaluation_began: None,
            evaluation_seconds: 0.0,
            memory: None,
            message: String::new(),
        }
    }

    /// What takes the bar away, once all events are shown.
    pub fn bar(&self) -> Bar {
        Bar(self.bar.clone())
    }

    fn line(&self, text: &str) {
        if self.bar.is_hidden() {
            screen::line(text);
        } else {
            self.bar.println(text);
        }
    }

    /// The share of the device's speed that is used. Who is faster than the measured peak has shown
    /// that the peak is higher.
    fn mfu(&mut self, tokens_per_second: f64) -> String {
        let rate = tokens_per_second * self.spec.flops_per_token;
        let Some(peak) = &mut self.spec.peak_flops else {
            return String::new();
        };
        *peak = peak.max(rate);
        format!("mfu {:.2}%", 100.0 * rate / *peak)
    }

    /// Seconds to the end, evaluations included.
    fn seconds_left(&self, iteration: u64, seconds: f64) -> f64 {
        let ProgressSpec { max_iters, eval_interval, .. } = self.spec;
        let iterations = max_iters.saturating_sub(iteration);
        let evaluations = (max_iters / eval_interval).saturating_sub(iteration / eval_interval);
        iterations as f64 * seconds + evaluations as f64 * self.evaluation_seconds
    }
}

/// A line of at most so many columns: its beginning, and behind commas as many of the parts as
/// there is room for, the smallest numbers first.
fn fitted(begin: String, parts: &[(u8, String)], width: usize) -> String {
    let mut room = width.saturating_sub(begin.chars().count());
    let mut ranks: Vec<u8> = parts.iter().map(|(rank, _)| *rank).collect();
    ranks.sort_unstable();
    let mut kept = Vec::new();
    for rank in ranks {
        let part = parts.iter().find(|(found, _)| *found == rank);
        let columns = part.map_or(0, |(_, text)| text.chars().count() + 2);
        if columns <= room {
            room -= columns;
            kept.push(rank);
        } else {
            break;
        }
    }
    let chosen = parts.iter().filter(|(rank, text)| kept.contains(rank) && !text.is_empty());
    chosen.fold(begin, |line, (_, text)| format!("{line}, {text}"))
}

impl Progress {
    fn iteration(&mut self, report: &Iteration) {
        let now = report.ms / 1e3;
        let smooth = self.seconds.map_or(now, |old| (1.0 - NEWEST) * old + NEWEST * now);
        self.seconds = Some(smooth);
        let left = duration(self.seconds_left(report.iter, smooth));
        let tokens_per_second = report.tokens_per_second * now / smooth;
        let rate = short(tokens_per_second);
        let mfu = self.mfu(tokens_per_second);
        let memory = report.device_bytes_seen.or(report.resident_bytes);
        self.memory = memory.and_then(Bytes::new).or(self.memory);
        let memory = self.memory.map_or(String::new(), |bytes| format!("{bytes}  "));
        self.message = match self.width < NARROW {
            true => format!("loss {:.4}  {left} left", report.loss),
            false => format!("loss {:.4}  {rate} tok/s  {memory}{left} left", report.loss),
        };
        self.bar.set_position(report.iter + 1);
        self.bar.set_message(self.message.clone());
        if !report.is_logged {
            return;
        }
        let memory = self.memory.map_or(String::new(), |bytes| bytes.to_string());
        // What is told first when there is little room; then the order on the line is nanoGPT's.
        let parts = [
            (2, format!("time {:.2}ms", report.ms)),
            (3, mfu),
            (1, format!("{rate} tok/s")),
            (4, memory),
            (5, format!("lr {:.2e}", report.lr)),
            (6, format!("norm {:.3}", report.grad_norm)),
            (0, format!("{left} left")),
        ];
        let begin = format!("iter {}: loss {:.4}", report.iter, report.loss);
        self.line(&fitted(begin, &parts, self.width));
    }

    fn evaluating(&mut self, share: f64, now: f64) {
        self.evaluation_began.get_or_insert(now);
        let more = if self.width < NARROW { "" } else { &self.message };
        self.bar.set_message(format!("evaluating {:.0}%  {more}", 100.0 * share));
        self.bar.tick();
    }

    fn evaluated(&mut self, found: &Evaluated, now: f64) {
        let began = self.evaluation_began.take();
        self.evaluation_seconds = began.map_or(0.0, |began| now - began);
        let Evaluated { iter, train_loss, val_loss, val_standard_error, best, .. } = found;
        let best = if *best == Some(true) && *iter > 0 { "best so far" } else { "" };
        let parts = [
            (1, format!("train loss {train_loss:.4}")),
            (0, format!("val loss {val_loss:.4}")),
            (3, format!("± {val_standard_error:.4}")),
            (2, best.to_string()),
        ];
        let begin = format!("step {iter}:");
        // nanoGPT's line, followed by the metrics it lacks.
        let text =
            fitted(begin, &parts, self.width).replacen(":,", ":", 1).replacen(", ±", " ±", 1);
        self.line(&screen::strong(&text));
    }

    fn saved(&self, path: &Path) {
        let folder = path.parent().unwrap_or(path);
        if path == best_path(folder) {
            return; // the evaluation said "best so far"
        }
        self.line(&screen::faint(&format!("saving checkpoint to {}", folder.display())));
    }
}

impl Sink for Progress {
    fn name(&self) -> &'static str {
        "the console"
    }

    fn takes_every_event(&self) -> bool {
        true
    }

    fn take(&mut self, event: &Event) -> Result<(), SinkError> {
        let now = event.time.seconds;
        match &event.what {
            What::Iteration(iteration) => self.iteration(iteration),
            What::Evaluating(evaluating) => self.evaluating(evaluating.share, now),
            What::Evaluated(found) => self.evaluated(found, now),
            What::Save(save) => self.saved(Path::new(&save.path)),
            What::Notice(notice) => {
                self.line(&format!("note: {}; the run goes on", notice.text));
            }
            // The command says what comes before the first step and after the last.
            What::Start(_) | What::Sample(_) | What::End(_) => {}
        }
        Ok(())
    }
}

/// The bar of a run that is shown elsewhere.
pub struct Bar(ProgressBar);

impl Bar {
    /// Takes the bar away.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::fitted;

    #[test]
    fn what_has_no_room_is_left_out() {
        let parts = [(1, "time 5ms".to_string()), (2, String::new()), (0, "9s left".to_string())];
        for (width, want) in [
            (usize::MAX, "iter 1: loss 2.0, time 5ms, 9s left"),
            (34, "iter 1: loss 2.0, 9s left"),
            (20, "iter 1: loss 2.0"),
        ] {
            assert_eq!(fitted("iter 1: loss 2.0".to_string(), &parts, width), want);
        }
    }
}
