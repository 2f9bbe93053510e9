//! Reads a run's `log.jsonl` for a comparison, in bounded memory, while the run may still write it.

use super::curve::{At, Curve};
use crate::metrics::{METRICS, Recorder};
use events::{Entry, Event, LogReader, Reason, Start, Time, What};
use serde_json::{Map, Value};
use std::io::BufRead;

/// The metrics that a chart shows if none is named: a strong curve and a faint one.
pub const VAL_LOSS: &str = "val/loss";
/// The loss of single iterations.
pub const LOSS: &str = "loss";

/// The key that says `resume` in every process but the first.
const INIT_FROM: &str = "init_from";

/// Most losses that were the best when they came.
const MOST_RECORDS: usize = 4096;

/// What a log says about its run.
#[derive(Clone, Debug, Default)]
pub struct RunLog {
    /// Iterations done.
    pub iterations: u64,
    /// Tokens trained on, if the log says how many an iteration has.
    pub tokens: Option<f64>,
    /// Seconds of training; what a kill threw away is not counted.
    pub seconds: Option<f64>,
    /// How the last process ended; none while it runs, or if it was killed.
    pub end: Option<Reason>,
    /// Settings of the last process that trained; `init_from` is what the run began with, or is
    /// missing if the log does not say.
    pub config: Map<String, Value>,
    /// Lines that are events of a run.
    pub events: u64,
    /// Times that the run was resumed.
    pub resumed: u64,
    /// Lines that could not be read.
    pub unreadable: u64,
    /// Why the first of them could not.
    pub first_problem: Option<String>,
    /// Curves of the metrics that were asked for.
    pub curves: Vec<(&'static str, Curve)>,
    last_loss: Option<f64>,
    /// Validation losses that were the lowest when they came.
    records: Vec<(u64, f64)>,
    /// Tokens of the iterations that were timed, and their time.
    timed_tokens: Option<f64>,
    timed_ms: f64,
}

/// What is known between two lines.
struct Reading {
    log: RunLog,
    recorder: Recorder,
    /// Index of each curve's metric.
    metrics: Vec<usize>,
    /// Seconds before this process.
    before: f64,
    has_times: bool,
    /// The process only evaluates: it is no part of the curves.
    is_ignored: bool,
    /// The next iteration is the first of its process: slower than the others.
    is_first: bool,
}

impl RunLog {
    /// Reads a log, with the curves of these metrics. A line that cannot be read is counted.
    pub fn read<R: BufRead>(reader: LogReader<R>, metrics: &[&str]) -> RunLog {
        let index = |name: &&str| METRICS.iter().position(|metric| metric.name == *name);
        let metrics: Vec<usize> = metrics.iter().filter_map(index).collect();
        let curves = metrics.iter().map(|&at| (METRICS[at].name, Curve::default())).collect();
        let mut reading = Reading {
            log: RunLog { curves, ..RunLog::default() },
            recorder: Recorder::default(),
            metrics,
            before: 0.0,
            has_times: true,
            is_ignored: false,
            is_first: true,
        };
        for entry in reader {
            match entry {
                Ok(entry) => {
                    reading.log.events += 1;
                    reading.take(entry);
                }
                Err(error) => {
                    reading.log.unreadable += 1;
                    reading.log.first_problem.get_or_insert(error.to_string());
                }
            }
        }
        reading.finished()
    }

    /// The lowest validation loss, and its iteration.
    pub fn best(&self) -> Option<(u64, f64)> {
        self.records.last().copied()
    }

    /// The loss of the last logged iteration.
    pub fn last_loss(&self) -> Option<f64> {
        self.last_loss
    }

    /// Mean over the logged iterations, but for the first of each process.
    pub fn tokens_per_second(&self) -> Option<f64> {
        (self.timed_ms > 0.0).then_some(1e3 * self.timed_tokens? / self.timed_ms)
    }

    /// Whether there is nothing to show.
    pub fn is_empty(&self) -> bool {
        self.iterations == 0 && self.curves.iter().all(|(_, curve)| curve.last().is_none())
    }
}

impl Reading {
    fn take(&mut self, entry: Entry) {
        if let What::Start(start) = &entry.what {
            self.start(start);
        }
        if self.is_ignored {
            return;
        }
        self.has_times &= entry.time.is_some();
        let seconds = self.before + entry.time.map_or(f64::NAN, |time| time.seconds);
        match &entry.what {
            What::Iteration(at) => {
                self.log.iterations = at.iter.saturating_add(1);
                self.log.last_loss = Some(at.loss);
                let is_timed = !std::mem::take(&mut self.is_first) && at.ms.is_finite();
                if let Some(tokens) = self.recorder.tokens_per_iteration().filter(|_| is_timed) {
                    self.log.timed_ms += at.ms;
                    *self.log.timed_tokens.get_or_insert(0.0) += tokens as f64;
                }
            }
            What::Evaluated(at) => self.evaluated(at.iter, at.val_loss),
            What::End(end) => {
                self.log.end = Some(end.reason);
                self.log.iterations = end.iter;
            }
            What::Save(save) => self.log.iterations = self.log.iterations.max(save.iter),
            _ => {}
        }
        if seconds.is_finite() {
            self.log.seconds = Some(seconds);
        }
        let time = entry.time.unwrap_or(Time { unix_time: 0.0, seconds: 0.0 });
        self.point(&Event { what: entry.what, time }, seconds);
    }

    fn start(&mut self, start: &Start) {
        let mut config = start.config.as_object().cloned().unwrap_or_default();
        self.is_ignored = config.get("eval_only") == Some(&Value::Bool(true));
        if self.is_ignored {
            return;
        }
        self.recorder.start(start);
        if config.get(INIT_FROM).and_then(Value::as_str) == Some("resume") {
            config.remove(INIT_FROM);
            let before = self.log.config.remove_entry(INIT_FROM);
            config.extend(before);
        }
        self.log.resumed += u64::from(start.iter > 0);
        (self.log.config, self.log.end, self.is_first) = (config, None, true);
        self.log.iterations = start.iter;
        for ((_, curve), &metric) in self.log.curves.iter_mut().zip(&self.metrics) {
            // An evaluation at this iteration may stay: if it is repeated, the later one counts.
            let is_evaluation = METRICS[metric].is_of_evaluations;
            curve.cut(start.iter.saturating_add(u64::from(is_evaluation)));
        }
        self.log.records.retain(|(iter, _)| *iter <= start.iter);
        let last = |(_, curve): &(&str, Curve)| curve.last().map(|at| at.seconds);
        let kept = self.log.curves.iter().filter_map(last).fold(0.0, f64::max);
        let kept = if start.iter == 0 { 0.0 } else { kept };
        // An evaluation at the end of a run comes after its last save.
        self.before = start.seconds_before.map_or(kept, |seconds| seconds.max(kept));
    }

    fn evaluated(&mut self, iter: u64, loss: f64) {
        let records = &mut self.log.records;
        records.retain(|(found, _)| *found < iter);
        if loss.is_finite() && records.last().is_none_or(|(_, best)| loss < *best) {
            records.push((iter, loss));
        }
        if records.len() > MOST_RECORDS {
            let mut index = 0;
            records.retain(|_| {
                index += 1;
                index % 2 == 1
            });
        }
    }

    fn point(&mut self, event: &Event, seconds: f64) {
        let Some(point) = self.recorder.point(event) else {
            return;
        };
        let done = point.iter.saturating_add(u64::from(!point.is_evaluation));
        let tokens = self.recorder.tokens_before(done).unwrap_or(f64::NAN);
        for ((_, curve), &metric) in self.log.curves.iter_mut().zip(&self.metrics) {
            if let Some(value) = point.values()[metric] {
                curve.push(At { iter: point.iter, tokens, seconds, value });
            }
        }
    }

    fn finished(mut self) -> RunLog {
        self.log.tokens = self.recorder.tokens_before(self.log.iterations);
        if !self.has_times {
            self.log.seconds = None;
        }
        self.log
    }
}
