//! The sinks that the keys `tensorboard`, `csv` and `trackio` ask for, and how their results are
//! seen.

use crate::invocation::program;
use crate::screen;
use data::disk::file_limit;
use events::Sink;
use plots::metrics::Recorder;
use plots::{CsvSink, TensorBoardSink, TrackioRun, TrackioSink, trackio_inbox};
use spec::RunSpec;
use spec::shell::quoted;
use std::path::Path;

/// The sinks of a run. One that only evaluates is no point of a curve: it has none.
pub fn of(spec: &RunSpec, flops_per_token: f64, peak_flops: Option<f64>) -> Vec<Box<dyn Sink>> {
    let (out_dir, keys) = (Path::new(&spec.out_dir), &spec.metrics);
    let recorder = Recorder::new(flops_per_token, peak_flops);
    let limit = file_limit().unwrap_or(u64::MAX);
    let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
    if spec.eval_only {
        return sinks;
    }
    if keys.tensorboard {
        sinks.push(Box::new(TensorBoardSink::new(out_dir, limit, recorder)));
    }
    if keys.csv {
        sinks.push(Box::new(CsvSink::new(out_dir, limit, recorder)));
    }
    if keys.trackio {
        match trackio_inbox(std::env::var_os("TRACKIO_DIR"), hub::home_folder()) {
            Some(inbox) => {
                let (project, name) = (keys.wandb_project.clone(), keys.wandb_run_name.clone());
                let run = TrackioRun { project, name };
                sinks.push(Box::new(TrackioSink::new(&inbox, out_dir, run, limit, recorder)));
            }
            None => screen::notice(
                "trackio=True is ignored: neither TRACKIO_DIR nor HOME says where its folder is",
            ),
        }
    }
    sinks
}

/// Where the metrics are and what shows them, a line each.
pub fn shown(spec: &RunSpec) -> Vec<String> {
    let (keys, out_dir) = (&spec.metrics, &spec.out_dir);
    let folder = quoted(out_dir);
    let mut lines =
        vec![format!("Metrics: {out_dir}/log.jsonl; plot: {} compare {folder}", program())];
    if spec.eval_only {
        return lines;
    }
    if keys.tensorboard {
        lines.push(format!("TensorBoard: tensorboard --logdir {folder}"));
    }
    if keys.csv {
        lines.push(format!("CSV: {out_dir}/metrics.csv"));
    }
    if keys.trackio {
        lines.push(format!("trackio: trackio show --project {}", quoted(&keys.wandb_project)));
    }
    lines
}
