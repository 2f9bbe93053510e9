//! Whole iterations allocate nothing: not in the loop, and not in the threads that log them.
//! Counted by the allocator, in a process of its own so that no other test is counted.

use crate::fixture::{self, TempDir, VOCABULARY, WatchedFeed};
use data::Dataset;
use events::{Emitter, Event, LogReader, Sink, SinkError, What};
use fitgpt_train::feed;
use fitgpt_train::runlog;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const CHILD: &str = "FITGPT_LOOP_CHILD";

/// Iterations before the count: buffers get their sizes, threads their first event.
const WARM_UP: usize = 20;

/// The last iteration; too few iterations to fill a queue.
const LAST: usize = 300;

/// What the allocator has counted when a batch is drawn.
#[derive(Clone, Copy, Debug)]
struct Count {
    /// Allocations of the loop's thread.
    here: u64,
    /// Allocations of all threads.
    all: u64,
    /// Bytes held by all threads.
    held: u64,
}

/// A sink that takes every iteration, like the console.
struct Every(Arc<AtomicUsize>);

impl Sink for Every {
    fn name(&self) -> &'static str {
        "every"
    }

    fn takes_every_event(&self) -> bool {
        true
    }

    fn take(&mut self, event: &Event) -> Result<(), SinkError> {
        self.0.fetch_add(matches!(event.what, What::Iteration(_)).into(), Ordering::SeqCst);
        Ok(())
    }
}

fn dataset(folder: &Path) -> Dataset {
    let ids = |count: u16| (0..count).flat_map(|at| (at % VOCABULARY as u16).to_le_bytes());
    for (name, count) in [("train.bin", 5000), ("val.bin", 500)] {
        std::fs::write(folder.join(name), Vec::from_iter(ids(count))).unwrap();
    }
    let mut dataset = Dataset::open(folder).unwrap();
    dataset.set_vocab_size(VOCABULARY as u32);
    dataset
}

/// Iterations in the log; a line that is just being written does not count.
fn logged(folder: &Path) -> usize {
    let entries = LogReader::open(&folder.join("log.jsonl")).unwrap().filter_map(Result::ok);
    entries.filter(|entry| matches!(entry.what, What::Iteration(_))).count()
}

/// The counts of a run that logs every second iteration.
fn counts(sampler: &str) -> Vec<Count> {
    let folder = TempDir::new(&format!("allocations-{sampler}"));
    let last = format!("--max_iters={LAST}");
    let sampler = format!("--sampler={sampler}");
    let more = [&last, &sampler, "--eval_interval=100000", "--log_interval=2"];
    let spec = &fixture::run_spec(&folder.0, &more);
    let (dataset, mut engine) = (dataset(&folder.0), fixture::engine(spec));
    let mut feed = feed::open(spec, &dataset, rng::torch::Generator::new(7)).unwrap();
    let log = runlog::open(&folder.0).unwrap();
    let taken = Arc::new(AtomicUsize::new(0));
    let every = Every(Arc::clone(&taken));
    let mut events = Emitter::new(vec![Box::new(every), Box::new(log)]).unwrap();
    // Whether all sinks have taken what came before the count; the batch is drawn one iteration
    // ahead.
    let before = WARM_UP - 1;
    let is_warm = || taken.load(Ordering::SeqCst) == before && logged(&folder.0) == WARM_UP / 2;
    // When a batch is drawn, so that two counts enclose one whole turn of the loop.
    let mut counts = Vec::with_capacity(LAST + 1);
    let mut draws = |iteration| {
        while iteration == WARM_UP as u64 && !is_warm() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (here, all) = (counting::calls_here(), counting::calls());
        counts.push(Count { here, all, held: counting::held() });
    };
    let mut watched = WatchedFeed { feed: &mut *feed, draws: &mut draws };
    fixture::execute(spec, &mut engine, &mut watched, &mut events);
    drop(events);
    let seen = (logged(&folder.0), counts.len());
    assert_eq!(seen, (LAST / 2 + 1, LAST + 1), "every logged iteration was taken");
    // A sink that is behind gets no unlogged ones.
    let taken = taken.load(Ordering::SeqCst);
    assert!((LAST / 2 + 1..=LAST + 1).contains(&taken), "{taken}");
    counts
}

#[test]
fn an_iteration_allocates_nothing() {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "allocations::child", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{text}{}", String::from_utf8_lossy(&child.stderr));
    assert!(text.contains("counted every iteration"), "the child did not run: {text}");
}

/// Does its work only in the process that the test above starts.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let before = counting::calls_here();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(counting::calls_here() - before, 1, "the counter counts");
    for sampler in ["fitgpt", "nanogpt"] {
        let counts = counts(sampler);
        for (at, turn) in counts.windows(2).enumerate().skip(WARM_UP) {
            let here = turn[1].here - turn[0].here;
            assert_eq!(here, 0, "{sampler}: allocations of the loop in iteration {at}");
        }
        let (first, last) = (counts[WARM_UP], counts[LAST]);
        assert_eq!(first.all, last.all, "{sampler}: allocations of the sinks' threads");
        assert_eq!(first.held, last.held, "{sampler}: bytes held");
    }
    println!("counted every iteration");
}
