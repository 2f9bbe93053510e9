//! The sinks that the keys `tensorboard`, `csv` and `trackio` ask for, and how their results are
//! seen.

use crate::invocation::program;
use crate::screen;
use data::disk::file_limit;
use events::{Event, Sink, SinkError, What};
use plots::{CsvSink, TensorBoardSink, TrackioRun, TrackioSink, trackio_inbox};
use spec::RunSpec;
use spec::shell::quoted;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// What became of a sink; the highest that happened counts.
type State = Arc<AtomicU8>;
const NO_POINTS: u8 = 0;
const WRITTEN: u8 = 1;
const FAILED: u8 = 2;

/// A sink that remembers what became of it.
struct Watched {
    sink: Box<dyn Sink>,
    state: State,
}

impl Sink for Watched {
    fn name(&self) -> &'static str {
        self.sink.name()
    }

    fn takes_every_event(&self) -> bool {
        self.sink.takes_every_event()
    }

    fn keeps_record(&self) -> bool {
        self.sink.keeps_record()
    }

    fn settle(&mut self) -> Result<(), SinkError> {
        let settled = self.sink.settle();
        if settled.is_err() {
            self.state.fetch_max(FAILED, Ordering::Relaxed);
        }
        settled
    }

    fn take(&mut self, event: &Event) -> Result<(), SinkError> {
        let taken = self.sink.take(event);
        let is_point = matches!(event.what, What::Iteration(_) | What::Evaluated(_));
        let state = match &taken {
            Err(_) => FAILED,
            Ok(()) if is_point => WRITTEN,
            Ok(()) => NO_POINTS,
        };
        self.state.fetch_max(state, Ordering::Relaxed);
        taken
    }
}

/// What the sinks of a run wrote; none for those that were not asked for.
#[derive(Default)]
pub struct Written {
    tensorboard: Option<State>,
    csv: Option<State>,
    trackio: Option<State>,
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
        let state = State::default();
        sinks.push(Box::new(Watched { sink, state: Arc::clone(&state) }) as Box<dyn Sink>);
        Some(state)
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
        let line = |(name, state, text): (&str, &Option<State>, String)| match state
            .as_ref()?
            .load(Ordering::Relaxed)
        {
            NO_POINTS => None,
            WRITTEN => Some(format!("{name}: {text}")),
            _ => Some(format!("{name}: not everything was written (a note says why)")),
        };
        [Some(log)].into_iter().chain(others.map(line)).flatten().collect()
    }
}
