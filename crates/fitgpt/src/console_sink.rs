//! The sink that prints a run's events: nanoGPT's lines with more metrics, and on a terminal a
//! progress bar below them. A pipe or a file gets only the lines.

use crate::numbers::{duration, short};
use crate::screen;
use events::{Evaluated, Event, Iteration, Sink, SinkError, What};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use plan::Bytes;
use std::path::Path;
use train::save::best_path;

/// Weight of the newest iteration in the smoothed time per iteration.
const NEWEST: f64 = 0.1;

/// Below this many columns the bar's message has no room for a bar.
const NARROW: usize = 60;

/// What the sink needs to know about a run.
pub struct ConsoleSpec {
    /// The first iteration.
    pub started_at: u64,
    /// The last iteration.
    pub max_iters: u64,
    /// The run evaluates every so many iterations.
    pub eval_interval: u64,
    /// Floating-point operations per token, as nanoGPT counts them.
    pub flops_per_token: f64,
    /// The device's peak in operations per second, if it is known.
    pub peak_flops: Option<f64>,
}

/// Prints a run's events.
pub struct ConsoleSink {
    spec: ConsoleSpec,
    bar: ProgressBar,
    /// The most columns of a line.
    width: usize,
    /// Smoothed seconds per iteration.
    seconds: Option<f64>,
    /// When the current evaluation began, in seconds of the run, and how long the last one took.
    evaluation_began: Option<f64>,
    evaluation_seconds: f64,
    /// Memory of the process in the last event that had it.
    memory: Option<Bytes>,
    message: String,
}

impl ConsoleSink {
    /// Shows a bar if standard output is a terminal.
    pub fn new(spec: ConsoleSpec) -> ConsoleSink {
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
        ConsoleSink {
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

    /// A handle to remove the bar once all events are printed.
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

    /// Model FLOPs utilisation. A rate above the measured peak shows that the peak is higher.
    fn mfu(&mut self, tokens_per_second: f64) -> String {
        let rate = tokens_per_second * self.spec.flops_per_token;
        let Some(peak) = &mut self.spec.peak_flops else {
            return String::new();
        };
        *peak = peak.max(rate);
        format!("mfu {:.2}%", 100.0 * rate / *peak)
    }

    /// Seconds until the end, evaluations included.
    fn seconds_left(&self, iteration: u64, seconds: f64) -> f64 {
        let ConsoleSpec { max_iters, eval_interval, .. } = self.spec;
        let iterations = max_iters.saturating_sub(iteration);
        let evaluations = (max_iters / eval_interval).saturating_sub(iteration / eval_interval);
        iterations as f64 * seconds + evaluations as f64 * self.evaluation_seconds
    }
}

/// A line of at most `width` columns: its beginning, then as many parts as there is room for,
/// separated by commas. The parts with the smallest rank are kept first.
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

impl ConsoleSink {
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
        // The number is the rank: what to keep if there is little room. The order is nanoGPT's.
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
        // One sequence alone has no spread.
        let error = Some(val_standard_error).filter(|error| **error != 0.0);
        let best = if *best == Some(true) && *iter > 0 { "best so far" } else { "" };
        let parts = [
            (1, format!("train loss {train_loss:.4}")),
            (0, format!("val loss {val_loss:.4}")),
            (3, error.map(|error| format!("± {error:.4}")).unwrap_or_default()),
            (2, best.to_string()),
        ];
        let begin = format!("step {iter}:");
        // nanoGPT's line, followed by metrics that it lacks.
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

impl Sink for ConsoleSink {
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
                self.line(&format!("note: {}; the run continues", notice.text));
            }
            // The command prints what comes before the first step and after the last.
            What::Start(_) | What::Sample(_) | What::End(_) => {}
        }
        Ok(())
    }
}

/// The bar of a [`ConsoleSink`] that runs on another thread.
pub struct Bar(ProgressBar);

impl Bar {
    /// Removes the bar.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::fitted;

    #[test]
    fn parts_without_room_are_left_out() {
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
