//! A tiny run: settings as a person would type them, a feed from a stream, a folder of its own.

use crate::on_cpu::{THREADS, machine};
use cpu::{CpuBackend, CpuOptions, CpuScratch};
use data::Split;
use events::{Emitter, Event, Sink, SinkError, What};
use fitgpt_train::TrainError;
use fitgpt_train::engine::{Engine, Rows};
use fitgpt_train::feed::Feed;
use fitgpt_train::run::{HostBuffers, Outcome, Run};
use fitgpt_train::runlog;
use fitgpt_train::save::{self, Document, RunProgress, last_path};
use rng::torch::{Generator, State};
use rng::{Purpose, Stream};
use search::{HostBytes, Planned, plan_for};
use serde_json::{Value, json};
use spec::{Command, Environment, RunSpec, Settings, World, resolve};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

pub const VOCABULARY: u64 = 29;

/// A folder that is empty now and gone afterwards.
pub struct TempDir(pub PathBuf);

impl TempDir {
    pub fn new(name: &str) -> TempDir {
        let path = std::env::temp_dir().join(format!("fitgpt-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The settings of a tiny run, and more arguments.
pub fn run_spec(out_dir: &Path, more: &[&str]) -> RunSpec {
    let out_dir = format!("--out_dir={}", out_dir.display());
    let tiny = "--n_layer=2 --n_head=2 --n_embd=16 --block_size=12 --batch_size=3 --dropout=0.1 \
                --gradient_accumulation_steps=2 --max_iters=8 --eval_interval=3 --eval_iters=2 \
                --log_interval=1 --learning_rate=1e-2 --warmup_iters=2 --lr_decay_iters=8 \
                --dataset=tiny --device=cpu";
    let arguments: Vec<String> = tiny
        .split_whitespace()
        .chain([out_dir.as_str()])
        .chain(more.iter().copied())
        .map(str::to_string)
        .collect();
    let nothing = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    let world = World { read: &nothing, unix_time: 0.0 };
    let settings = Settings::read(Command::Train, &arguments, &world).unwrap();
    resolve(&settings, &Environment::default()).unwrap().0
}

pub fn planned(spec: &RunSpec) -> Planned {
    plan_for(spec, spec.dims(VOCABULARY).unwrap(), &machine().unwrap()).unwrap()
}

pub fn engine(spec: &RunSpec) -> Engine {
    let dims = spec.dims(VOCABULARY).unwrap();
    let planned = planned(spec);
    let (program, plan) = (planned.program, planned.plan);
    let proved = plan::verify(plan, CpuScratch { threads: THREADS }).unwrap();
    let backend = CpuBackend::new(proved, CpuOptions::new(THREADS)).unwrap();
    let mut engine = Engine::new(Box::new(backend), program, dims);
    engine.initialise(&mut rng::torch::Generator::new(spec.seed)).unwrap();
    engine
}

/// The host's buffers of its plan.
pub fn host_bytes(spec: &RunSpec, engine: &Engine) -> HostBytes {
    HostBytes::new(spec, engine.program(), &engine.plan().schedule)
}

/// Batches from one generator that training and evaluation share, as in nanoGPT. Every draw changes
/// the batches after it, so that a state restored at the wrong position shows in every loss.
pub struct SharedFeed(Generator, Generator);

impl SharedFeed {
    fn new() -> SharedFeed {
        SharedFeed(Generator::new(7), Generator::new(7))
    }

    fn fill(&mut self, rows: &mut Rows) {
        for id in rows.tokens.iter_mut().chain(&mut rows.targets) {
            *id = self.0.randint(VOCABULARY) as i32;
        }
    }
}

impl Feed for SharedFeed {
    fn train(&mut self, _: u64, rows: &mut Rows) -> Result<(), TrainError> {
        self.fill(rows);
        Ok(())
    }

    fn eval(&mut self, _: Split, _: u64, _: u64, rows: &mut Rows) -> Result<(), TrainError> {
        self.fill(rows);
        Ok(())
    }

    fn mark(&mut self) {
        self.1.clone_from(&self.0);
    }

    fn rewind(&mut self) {
        self.0.clone_from(&self.1);
    }

    fn state(&self) -> Value {
        let state = self.0.state();
        json!({ "words": state.words.to_vec(), "index": state.index })
    }

    fn restore(&mut self, state: &Value) -> Result<(), TrainError> {
        let words: Vec<u32> = serde_json::from_value(state["words"].clone()).unwrap();
        let index = state["index"].as_u64().unwrap() as u32;
        let state = State { words: words.try_into().unwrap(), index, cached_normal: None };
        self.0 = Generator::from_state(state).unwrap();
        Ok(())
    }
}

/// Batches as a pure function of the request.
pub struct TinyFeed;

impl TinyFeed {
    fn fill(purpose: Purpose, index: u64, rows: &mut Rows) {
        let mut stream = Stream::new(7, purpose, index);
        for id in rows.tokens.iter_mut().chain(&mut rows.targets) {
            *id = stream.below(VOCABULARY) as i32;
        }
    }
}

impl Feed for TinyFeed {
    fn train(&mut self, iteration: u64, rows: &mut Rows) -> Result<(), TrainError> {
        TinyFeed::fill(Purpose::TrainBatch, iteration % 2, rows);
        Ok(())
    }

    fn eval(
        &mut self,
        split: Split,
        _: u64,
        batch: u64,
        rows: &mut Rows,
    ) -> Result<(), TrainError> {
        let index = batch * 2 + u64::from(split == Split::Val);
        TinyFeed::fill(Purpose::EvalBatch, index, rows);
        Ok(())
    }

    fn mark(&mut self) {}

    fn rewind(&mut self) {}

    fn state(&self) -> Value {
        json!(null)
    }

    fn restore(&mut self, _: &Value) -> Result<(), TrainError> {
        Ok(())
    }
}

/// Collects the losses, and events that should not have happened.
#[derive(Clone, Default)]
struct Watcher {
    losses: Arc<Mutex<Vec<(u64, u64)>>>,
    wrong: Arc<Mutex<Vec<String>>>,
}

impl Sink for Watcher {
    fn name(&self) -> &'static str {
        "the test"
    }

    fn take(&mut self, event: &Event) -> Result<(), SinkError> {
        match &event.what {
            What::Iteration(report) => {
                self.losses.lock().unwrap().push((report.iter, report.loss.to_bits()));
            }
            What::Notice(notice) => self.wrong.lock().unwrap().push(notice.text.clone()),
            What::Save(save) if !Path::new(&save.path).exists() => {
                self.wrong.lock().unwrap().push(format!("{} is not there", save.path));
            }
            _ => {}
        }
        Ok(())
    }
}

/// A feed that calls a function when the batch of an iteration is drawn.
pub struct WatchedFeed<'a> {
    pub feed: &'a mut dyn Feed,
    pub draws: &'a mut dyn FnMut(u64),
}

impl Feed for WatchedFeed<'_> {
    fn train(&mut self, iteration: u64, rows: &mut Rows) -> Result<(), TrainError> {
        (self.draws)(iteration);
        self.feed.train(iteration, rows)
    }

    fn eval(&mut self, split: Split, at: u64, batch: u64, to: &mut Rows) -> Result<(), TrainError> {
        self.feed.eval(split, at, batch, to)
    }

    fn mark(&mut self) {
        self.feed.mark();
    }

    fn rewind(&mut self) {
        self.feed.rewind();
    }

    fn state(&self) -> Value {
        self.feed.state()
    }

    fn restore(&mut self, state: &Value) -> Result<(), TrainError> {
        self.feed.restore(state)
    }
}

/// Starts the run, or resumes it if the folder holds a checkpoint.
pub fn go(spec: &RunSpec, stop_after: Option<u64>) -> (Outcome, Engine, Vec<(u64, u64)>) {
    go_with(spec, stop_after, &mut TinyFeed)
}

/// The same with batches from one shared generator.
pub fn go_shared(spec: &RunSpec, stop: Option<u64>) -> (Outcome, Engine, Vec<(u64, u64)>) {
    go_with(spec, stop, &mut SharedFeed::new())
}

fn go_with(
    spec: &RunSpec,
    stop_after: Option<u64>,
    feed: &mut dyn Feed,
) -> (Outcome, Engine, Vec<(u64, u64)>) {
    let (outcome, engine, losses) = try_with(spec, stop_after, feed);
    (outcome.unwrap(), engine, losses)
}

/// The document of a new run's checkpoints.
pub fn document(engine: &Engine) -> Document {
    Document {
        progress: RunProgress::START,
        config: json!({}),
        dims: *engine.dims(),
        tokenizer: None,
        data: None,
        feed: Value::Null,
        plan: None,
        steps_hash: String::new(),
        choices: Vec::new(),
        version: String::new(),
        device: "test".to_string(),
        threads: None,
    }
}

/// A whole run that nobody stops, from its beginning.
pub fn execute(spec: &RunSpec, engine: &mut Engine, feed: &mut dyn Feed, events: &mut Emitter) {
    let mut host = HostBuffers::new(spec, &host_bytes(spec, engine)).unwrap();
    let document = document(engine);
    let run = Run {
        spec,
        engine,
        feed,
        events,
        document,
        peak_flops: None,
        evaluate_at_end: false,
        stop: &AtomicBool::new(false),
        others: &(),
        save_now: &AtomicBool::new(false),
        sampler: None,
        device_bytes: &|| None,
    };
    run.execute(&mut host).unwrap();
}

/// What [`go`] does, for a run that may fail.
pub fn try_with(
    spec: &RunSpec,
    stop_after: Option<u64>,
    feed: &mut dyn Feed,
) -> (Result<Outcome, TrainError>, Engine, Vec<(u64, u64)>) {
    let stop = AtomicBool::new(false);
    let mut engine = engine(spec);
    let mut document = document(&engine);
    let path = last_path(Path::new(&spec.out_dir));
    if path.exists() {
        let (reader, saved) = save::open(&path).unwrap();
        let mut buffer = save::buffer(&host_bytes(spec, &engine)).unwrap();
        save::load(&mut engine, &reader, &path, &mut buffer).unwrap();
        feed.restore(&saved.feed).unwrap();
        document.progress = saved.progress;
    }
    let watcher = Watcher::default();
    let log = runlog::open(Path::new(&spec.out_dir)).unwrap();
    let mut events = Emitter::new(vec![Box::new(watcher.clone()), Box::new(log)]).unwrap();
    let mut host = HostBuffers::new(spec, &host_bytes(spec, &engine)).unwrap();
    // A stop during an iteration makes it the last one. An iteration asks for the device's bytes,
    // as an evaluation does.
    let asked = Cell::new(0);
    let first = document.progress.iteration;
    let device_bytes = || {
        let is_due = |iteration: u64| iteration.is_multiple_of(spec.eval_interval);
        asked.set(asked.get() + 1);
        let at = stop_after.map(|last| {
            let evaluations = (first..=last).filter(|&iteration| is_due(iteration)).count() as u64;
            last - first + 1 + evaluations
        });
        if at == Some(asked.get()) {
            stop.store(true, Ordering::Relaxed);
        }
        None
    };
    let run = Run {
        spec,
        engine: &mut engine,
        feed,
        events: &mut events,
        document,
        peak_flops: Some(1e9),
        evaluate_at_end: false,
        stop: &stop,
        others: &(),
        save_now: &AtomicBool::new(false),
        sampler: None,
        device_bytes: &device_bytes,
    };
    let outcome = run.execute(&mut host);
    drop(events);
    assert_eq!(*watcher.wrong.lock().unwrap(), Vec::<String>::new());
    let losses = std::mem::take(&mut *watcher.losses.lock().unwrap());
    (outcome, engine, losses)
}

/// All weights, as bits.
pub fn weights(engine: &mut Engine) -> Vec<u8> {
    let id = engine.program().parameters[0].weight;
    let (root, _) = engine.plan().schedule.tensors.root(id);
    let mut content = vec![0; engine.plan().schedule.tensors.bytes(root).get() as usize];
    engine.backend().read(root, &mut content).unwrap();
    content
}
