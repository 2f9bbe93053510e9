//! The one table of metrics: their names in every sink, and where each value comes from. nanoGPT
//! logs `train/loss`, `val/loss`, `lr` and `mfu` to wandb; the other names are those of
//! `log.jsonl`. `docs/metrics.md` shows the same table; a test compares them.

mod tokens;

use events::{Evaluated, Event, Iteration, Start, Time, What};
use tokens::Tokens;

/// One row of the table.
pub struct Metric {
    /// Its name in every sink.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Whether evaluations have it; else iterations do.
    pub is_of_evaluations: bool,
    of: Of,
}

/// An event with values, and what was derived from it.
struct Moment<'a> {
    iteration: Option<&'a Iteration>,
    evaluated: Option<&'a Evaluated>,
    mfu: Option<f64>,
    tokens: Option<f64>,
}

type Of = fn(&Moment<'_>) -> Option<f64>;

const fn trained(name: &'static str, about: &'static str, of: Of) -> Metric {
    Metric { name, about, is_of_evaluations: false, of }
}

const fn evaluated(name: &'static str, about: &'static str, of: Of) -> Metric {
    Metric { name, about, is_of_evaluations: true, of }
}

/// Number of metrics.
pub const COUNT: usize = 14;

/// All metrics. Those of an evaluation come first, then those of an iteration.
#[rustfmt::skip]
pub const METRICS: [Metric; COUNT] = [
    evaluated("train/loss", "mean loss of batches of the training text, at evaluations",
            |at| Some(at.evaluated?.train_loss)),
    evaluated("val/loss", "mean loss of batches of the validation text, at evaluations",
            |at| Some(at.evaluated?.val_loss)),
    evaluated("train/standard_error", "standard error of `train/loss`",
            |at| Some(at.evaluated?.train_standard_error)),
    evaluated("val/standard_error", "standard error of `val/loss`",
            |at| Some(at.evaluated?.val_standard_error)),
    trained("loss", "loss of the iteration's last micro-batch",
            |at| Some(at.iteration?.loss)),
    trained("lr", "learning rate",
            |at| Some(at.iteration?.lr)),
    trained("mfu", "model FLOPs utilisation in percent, smoothed as nanoGPT does",
            |at| at.mfu),
    trained("grad_norm", "norm of the gradients before clipping",
            |at| Some(at.iteration?.grad_norm)),
    trained("loss_scale", "1 without loss scaling",
            |at| Some(at.iteration?.loss_scale)),
    trained("tokens_per_second", "of the iteration",
            |at| Some(at.iteration?.tokens_per_second)),
    trained("ms", "milliseconds of the iteration",
            |at| Some(at.iteration?.ms)),
    trained("tokens", "tokens trained on so far",
            |at| at.tokens),
    trained("device_bytes_seen", "bytes that the process holds on the device",
            |at| at.iteration?.device_bytes_seen.map(|bytes| bytes as f64)),
    trained("resident_bytes", "resident memory of the process in bytes",
            |at| at.iteration?.resident_bytes.map(|bytes| bytes as f64)),
];

/// The metrics of one event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The iteration; an evaluation happens before it.
    pub iter: u64,
    /// Whether it is an evaluation.
    pub is_evaluation: bool,
    /// When.
    pub time: Time,
    values: [Option<f64>; COUNT],
}

impl Point {
    /// Its kind in `log.jsonl`.
    pub fn kind(&self) -> &'static str {
        if self.is_evaluation { "eval" } else { "iter" }
    }

    /// Its values in the order of [`METRICS`].
    pub fn values(&self) -> &[Option<f64>; COUNT] {
        &self.values
    }

    /// The names and values that it has.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, f64)> {
        METRICS.iter().zip(self.values).filter_map(|(metric, value)| Some((metric.name, value?)))
    }
}

/// Weight of the newest logged iteration in the smoothed MFU, as in nanoGPT.
const NEWEST: f64 = 0.1;

/// Makes points of events.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recorder {
    tokens: Tokens,
    flops_per_token: Option<f64>,
    /// The device's peak in operations per second, if it is known.
    peak_flops: Option<f64>,
    mfu: Option<f64>,
}

impl Recorder {
    /// Called with the start of a run, whose points follow.
    pub fn start(&mut self, start: &Start) {
        self.tokens.start(start);
        (self.flops_per_token, self.peak_flops) = (start.flops_per_token, start.peak_flops);
        self.mfu = None;
    }

    /// Tokens that the run has trained on when this iteration begins, if the log says so.
    pub fn tokens_before(&self, iter: u64) -> Option<f64> {
        self.tokens.before(iter)
    }

    /// Tokens of an iteration of this process.
    pub fn tokens_per_iteration(&self) -> Option<u64> {
        self.tokens.each
    }

    /// The point of an event, if it has one.
    pub fn point(&mut self, event: &Event) -> Option<Point> {
        let (iter, moment) = match &event.what {
            What::Iteration(at) => {
                let tokens = self.tokens.before(at.iter.saturating_add(1));
                let mfu = self.smoothed_mfu(at.tokens_per_second);
                (at.iter, Moment { iteration: Some(at), evaluated: None, mfu, tokens })
            }
            What::Evaluated(at) => {
                // A metric has one value for each iteration number: no tokens here.
                (at.iter, Moment { iteration: None, evaluated: Some(at), mfu: None, tokens: None })
            }
            _ => return None,
        };
        let values = METRICS.each_ref().map(|metric| (metric.of)(&moment));
        let is_evaluation = moment.evaluated.is_some();
        Some(Point { iter, is_evaluation, time: event.time, values })
    }

    /// A rate above the measured peak shows that the peak is higher.
    fn smoothed_mfu(&mut self, tokens_per_second: f64) -> Option<f64> {
        let rate = tokens_per_second * self.flops_per_token?;
        let peak = self.peak_flops?.max(rate);
        self.peak_flops = Some(peak);
        let now = 100.0 * rate / peak;
        self.mfu = Some(self.mfu.map_or(now, |old| (1.0 - NEWEST) * old + NEWEST * now));
        self.mfu
    }
}
