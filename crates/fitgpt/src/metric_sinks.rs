//! The sinks that the keys `tensorboard`, `csv` and `trackio` ask for, and how their results are
//! seen.

use crate::invocation::program;
use crate::screen;
use data::disk::file_limit;
use events::{Event, Sink, SinkError};
use plots::{CsvSink, TensorBoardSink, TrackioRun, TrackioSink, trackio_inbox};
use spec::RunSpec;
use spec::shell::quoted;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A sink that remembers whether it failed.
struct Watched {
    sink: Box<dyn Sink>,
    has_failed: Arc<AtomicBool>,
}

impl Sink for Watched {
    fn name(&self) -> &'static str {
        self.sink.name()
    }

    fn takes_every_event(&self) -> bool {
        self.sink.takes_every_event()
    }

    fn take(&mut self, event: &Event) -> Result<(), SinkError> {
        let taken = self.sink.take(event);
        self.has_failed.fetch_or(taken.is_err(), Ordering::Relaxed);
        taken
    }
}

/// What the sinks of a run wrote: for each whether it failed, or none if it was not asked for.
#[derive(Default)]
pub struct Written {
    tensorboard: Option<Arc<AtomicBool>>,
    csv: Option<Arc<AtomicBool>>,
    trackio: Option<Arc<AtomicBool>>,
}

/// The sinks of a run. One that only evaluates is no point of a curve: it has none.
pub fn of(spec: &RunSpec) -> (Vec<Box<dyn Sink>>, Written) {
    let (out_dir, keys) = (Path::new(&spec.out_dir), &spec.metrics);
    let limit = file_limit().unwrap_or(u64::MAX);
    let (mut sinks, mut written) = (Vec::new(), Written::default());
    if spec.eval_only {
        return (sinks, written);
    }
    let mut add = |sink: Box<dyn Sink>| {
        let has_failed = Arc::new(AtomicBool::new(false));
        let watched: Box<dyn Sink> =
            Box::new(Watched { sink, has_failed: Arc::clone(&has_failed) });
        sinks.push(watched);
        Some(has_failed)
    };
    if keys.tensorboard {
        written.tensorboard = add(Box::new(TensorBoardSink::new(out_dir, limit)));
    }
    if keys.csv {
        written.csv = add(Box::new(CsvSink::new(out_dir, limit)));
    }
    if keys.trackio {
        match trackio_inbox(std::env::var_os("TRACKIO_DIR"), hub::home_folder()) {
            Some(inbox) => {
                let (project, name) = (keys.wandb_project.clone(), keys.wandb_run_name.clone());
                let run = TrackioRun { project, name };
                written.trackio = add(Box::new(TrackioSink::new(&inbox, out_dir, run, limit)));
            }
            None => screen::notice(
                "trackio=True is ignored: neither TRACKIO_DIR nor HOME says where its folder is",
            ),
        }
    }
    (sinks, written)
}

impl Written {
    /// Where the metrics are and what shows them, a line each.
    pub fn shown(&self, spec: &RunSpec) -> Vec<String> {
        let (keys, out_dir) = (&spec.metrics, &spec.out_dir);
        let folder = quoted(out_dir);
        let log = format!("Metrics: {out_dir}/log.jsonl; plot: {} compare {folder}", program());
        let project = quoted(&keys.wandb_project);
        let others = [
            ("TensorBoard", &self.tensorboard, format!("tensorboard --logdir {folder}")),
            ("CSV", &self.csv, format!("{out_dir}/metrics.csv")),
            ("trackio", &self.trackio, format!("trackio show --project {project}")),
        ];
        let line = |(name, has_failed, text): (&str, &Option<Arc<AtomicBool>>, String)| {
            let has_failed = has_failed.as_ref()?.load(Ordering::Relaxed);
            let text =
                if has_failed { "not everything was written (a note says why)" } else { &text };
            Some(format!("{name}: {text}"))
        };
        [Some(log)].into_iter().chain(others.map(line)).flatten().collect()
    }
}
