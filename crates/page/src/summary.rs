//! A run in a few numbers, as lists and the live stream show it.

use crate::run::Run;
use events::{Reason, Start};
use serde_json::{Value, json};

/// A run without news for longer than this many seconds, and for longer than a few of its own
/// steps, is stale: killed, or its folder is no longer copied here.
const PATIENCE: f64 = 60.0;
const STEPS: f64 = 20.0;

/// What the summary says beside the run's own numbers.
pub struct Around<'a> {
    /// Its number in addresses.
    pub id: usize,
    /// Its name.
    pub name: &'a str,
    /// Whether this process trains it.
    pub is_own: bool,
    /// The share of its log that was read; none if all was.
    pub reading: Option<f64>,
    /// Seconds since 1970.
    pub now: f64,
    /// Which checkpoints there are.
    pub checkpoints: Vec<&'static str>,
}

/// The summary.
pub fn of(run: &Run, around: &Around<'_>) -> Value {
    let start = run.start.as_deref();
    let newest = run.newest.as_ref();
    let iter = run.end.as_ref().map_or(newest.map(|at| at.iter + 1), |end| Some(end.iter));
    let iter = iter.or(start.map(|start| start.iter));
    let max_iters = start.and_then(max_iters);
    let status = status(run, around);
    let left = max_iters.zip(iter).map(|(most, iter)| most.saturating_add(1).saturating_sub(iter));
    let eta = left.zip(run.pace()).map(|(left, pace)| left as f64 / pace);
    let last = run.evals.last().map(|eval| eval.json());
    json!({
        "id": around.id,
        "name": around.name,
        "own": around.is_own,
        "status": status,
        "reading": around.reading,
        "iter": iter,
        "max_iters": max_iters,
        "tokens": run.tokens(),
        "seconds": run.seconds,
        "eta_seconds": eta.filter(|_| status == "running"),
        "loss": newest.map(|at| at.loss),
        "lr": newest.map(|at| at.lr),
        "grad_norm": newest.map(|at| at.grad_norm),
        "tokens_per_second": newest.map(|at| at.tokens_per_second),
        "ms": newest.map(|at| at.ms),
        "last_eval": last,
        "best": run.best.map(|(iter, loss)| json!({ "iter": iter, "val_loss": loss })),
        "evaluating": run.evaluating.filter(|_| status == "running"),
        "arena_bytes": start.and_then(|start| start.arena_bytes),
        "most_device_bytes": run.most_device_bytes,
        "most_resident_bytes": run.most_resident,
        "device": start.map(|start| start.device.as_str()),
        "version": start.map(|start| start.version.as_str()),
        "began": run.began,
        "updated": run.updated,
        "points": run.points.total(),
        "samples": run.samples.len(),
        "unreadable": run.unreadable,
        "problem": run.problem,
        "message": run.end.as_ref().and_then(|end| end.message.as_deref()),
        "checkpoints": around.checkpoints,
        "generation": run.generation,
        "news": run.newest_news(),
    })
}

/// The number of the last iteration.
fn max_iters(start: &Start) -> Option<u64> {
    start.config.get("max_iters")?.as_u64()
}

/// One word for the state of a run.
fn status(run: &Run, around: &Around<'_>) -> &'static str {
    if around.reading.is_some() {
        return "reading";
    }
    if run.events == 0 {
        return if run.problem.is_some() { "broken" } else { "waiting" };
    }
    if let Some(end) = &run.end {
        return match end.reason {
            Reason::Finished => "finished",
            Reason::Interrupted => "interrupted",
            Reason::Diverged => "diverged",
            Reason::Error => "error",
        };
    }
    let step = run.newest.as_ref().map_or(0.0, |at| at.ms / 1e3);
    let patience = PATIENCE.max(STEPS * step);
    let silence = run.updated.map_or(0.0, |updated| around.now - updated);
    if silence > patience && !around.is_own { "stale" } else { "running" }
}
