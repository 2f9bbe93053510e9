//! Sends events from the loop to the sinks. Each sink has its own thread and queue, so that a
//! stalled terminal does not delay the log.

use crate::event::{Event, Notice, Time, What};
use crate::queue::{Dropped, PATIENCE, Queue, Taken};
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Why a sink failed to handle an event.
pub type SinkError = Box<dyn Error + Send + Sync>;

/// Receives the events of a run.
pub trait Sink: Send {
    /// Its name in notices.
    fn name(&self) -> &'static str;

    /// Whether it also receives what the log leaves out: iterations between two logged ones, and
    /// the progress of evaluations.
    fn takes_every_event(&self) -> bool {
        false
    }

    /// Whether what it writes is a record of the run, which a checkpoint must not be ahead of.
    fn keeps_record(&self) -> bool {
        false
    }

    /// Writes what it has collected, because a checkpoint is about to be put in its place.
    fn settle(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    /// Handles an event. The first error becomes a notice for the other sinks. The run continues,
    /// and this sink still gets events.
    fn take(&mut self, event: &Event) -> Result<(), SinkError>;
}

/// The loop's end of the stream. Dropping it waits until the sinks have handled everything, but not
/// for a sink that stalls.
pub struct Emitter {
    clock: Clock,
    queues: Arc<[Queue]>,
    /// One per queue.
    sinks: Vec<SinkThread>,
}

struct SinkThread {
    takes_every_event: bool,
    keeps_record: bool,
    thread: Option<JoinHandle<()>>,
}

impl Emitter {
    /// Starts a thread for each sink. The first sink is closed last, so that it still gets notices
    /// about the others.
    pub fn new(sinks: Vec<Box<dyn Sink>>) -> std::io::Result<Emitter> {
        let clock = Clock(Instant::now());
        let queues: Arc<[Queue]> = sinks.iter().map(|_| Queue::new(PATIENCE)).collect();
        let threads = Vec::with_capacity(sinks.len());
        let mut emitter = Emitter { clock, queues, sinks: threads };
        for (index, sink) in sinks.into_iter().enumerate() {
            let (takes_every_event, name) = (sink.takes_every_event(), sink.name());
            let keeps_record = sink.keeps_record();
            let queues = Arc::clone(&emitter.queues);
            let mut worker = Worker { sink, index, queues, clock, has_failed: false };
            let thread = Builder::new().name(name.to_string()).spawn(move || worker.run())?;
            let thread = Some(thread);
            emitter.sinks.push(SinkThread { takes_every_event, keeps_record, thread });
        }
        Ok(emitter)
    }

    /// Sends an event to the sinks. Iterations and the progress of evaluations never wait: if a
    /// queue is full they are dropped, and a notice says how many logged iterations were. Other
    /// events wait for a free slot, but only once for a sink that stalls.
    pub fn emit(&mut self, what: What) {
        let event = Event { what, time: self.clock.now() };
        for (queue, sink) in self.queues.iter().zip(&self.sinks) {
            match &event.what {
                What::Iteration(iteration) if iteration.is_logged => queue.offer(&event),
                What::Iteration(_) | What::Evaluating(_) if sink.takes_every_event => {
                    queue.offer_unlogged(&event);
                }
                What::Iteration(_) | What::Evaluating(_) => {}
                _ => queue.send(&event),
            }
        }
    }

    /// Seconds since the stream was started: what [`Time::seconds`] of an event would be now.
    pub fn seconds(&self) -> f64 {
        self.clock.now().seconds
    }

    /// Asks the sinks that keep a record to write what they were sent so far.
    pub fn settle(&self) -> Settling {
        let keeps_record = |index: &usize| self.sinks.get(*index).is_some_and(|s| s.keeps_record);
        let records = (0..self.queues.len()).filter(keeps_record);
        let asked = records.map(|index| (index, self.queues[index].ask_to_settle())).collect();
        Settling { queues: Arc::clone(&self.queues), asked }
    }

    /// Waits until the sinks have handled everything sent so far, but not for one that stalls. For
    /// the first it waits until `stop` is set: false if that one stalls even then.
    pub fn flush(&self, stop: &AtomicBool) -> bool {
        let mut is_whole = true;
        // The other sinks may still send notices to the first, so it is flushed last.
        for (index, queue) in self.queues.iter().enumerate().rev() {
            is_whole = queue.flush(&|| index > 0 || stop.load(Ordering::Relaxed));
        }
        is_whole
    }
}

/// Sinks that write what they were sent.
pub struct Settling {
    queues: Arc<[Queue]>,
    /// Indices of queues, and what to wait for in each.
    asked: Vec<(usize, u64)>,
}

impl Settling {
    /// Waits until they have, but not for one that stalls.
    pub fn wait(&self) {
        for &(index, events) in &self.asked {
            self.queues[index].wait_settled(events);
        }
    }
}

impl Drop for Emitter {
    fn drop(&mut self) {
        for (queue, sink) in self.queues.iter().zip(&mut self.sinks).rev() {
            // A thread that stalls cannot be ended; it ends with the process.
            if queue.finish()
                && let Some(thread) = sink.thread.take()
            {
                // A panic was already reported; the run's own result counts.
                let _ = thread.join();
            }
        }
    }
}

/// Stamps events with the time.
#[derive(Clone, Copy)]
struct Clock(Instant);

impl Clock {
    fn now(self) -> Time {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let micros = |seconds: f64| (seconds * 1e6).round() / 1e6;
        let [unix_time, seconds] = [unix, self.0.elapsed()].map(|time| micros(time.as_secs_f64()));
        Time { unix_time, seconds }
    }
}

/// One sink on its thread.
struct Worker {
    sink: Box<dyn Sink>,
    /// Index of its own queue.
    index: usize,
    queues: Arc<[Queue]>,
    clock: Clock,
    has_failed: bool,
}

impl Worker {
    fn run(&mut self) {
        let queues = Arc::clone(&self.queues);
        let own = Abandoned(&queues[self.index]);
        while let Some(taken) = own.0.take() {
            let Taken::Event { dropped, event } = taken else {
                if !self.call(|sink| sink.settle()) {
                    return;
                }
                continue;
            };
            // The notice takes the place of the dropped events, with the time of the next event.
            let time = event.as_ref().map_or_else(|| self.clock.now(), |event| event.time);
            let is_whole = dropped == Dropped::default();
            let notice = (!is_whole).then(|| Event { time, ..self.dropped(dropped) });
            if !notice.into_iter().chain(event).all(|event| self.give(&event)) {
                return;
            }
        }
    }

    /// Hands the sink an event. False if it panicked: then it gets no more.
    fn give(&mut self, event: &Event) -> bool {
        self.call(|sink| sink.take(event))
    }

    /// Calls the sink. False if it panicked.
    fn call(&mut self, work: impl FnOnce(&mut dyn Sink) -> Result<(), SinkError>) -> bool {
        match catch_unwind(AssertUnwindSafe(|| work(&mut *self.sink))) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    self.tell_others(error.to_string(), None);
                }
            }
            Err(_) => {
                let text = format!("{} stopped because of a bug in fitgpt", self.sink.name());
                self.tell_others(text, None);
                return false;
            }
        }
        true
    }

    /// Notifies all sinks how many events this one did not get.
    fn dropped(&self, dropped: Dropped) -> Event {
        let Dropped { iterations, others } = dropped;
        let counted = |count: u64, one: &str| match count {
            0 => None,
            1 => Some(format!("1 {one}")),
            _ => Some(format!("{count} {one}s")),
        };
        let parts = [counted(iterations, "iteration"), counted(others, "other event")];
        let parts = Vec::from_iter(parts.into_iter().flatten()).join(" and ");
        let count = iterations + others;
        let (verb, name) = (if count == 1 { "is" } else { "are" }, self.sink.name());
        let text = format!("{parts} {verb} missing in {name}: it was slower than training");
        self.tell_others(text, Some(count))
    }

    fn tell_others(&self, text: String, dropped: Option<u64>) -> Event {
        let what = What::Notice(Arc::new(Notice { text, dropped }));
        let event = Event { what, time: self.clock.now() };
        for (index, queue) in self.queues.iter().enumerate() {
            if index != self.index {
                queue.send(&event);
            }
        }
        event
    }
}

/// However the thread ends, its queue is abandoned so that nobody waits for it.
struct Abandoned<'a>(&'a Queue);

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
