//! What happens in a run, as a stream of events. The loop emits them; sinks (the console,
//! `log.jsonl`) take them, each on a thread of its own behind a bounded queue. The loop neither
//! allocates for an iteration nor waits for a terminal or a disk.
//!
//! A new sink is one file that implements [`Sink`] and one line where the [`Emitter`] is made.
#![forbid(unsafe_code)]

mod event;
mod queue;

mod emitter;

mod log;
mod read;

pub use emitter::{Emitter, Sink, SinkError};
pub use event::{
    End, Evaluated, Evaluating, Event, Iteration, KINDS, Notice, Reason, SCHEMA, Sample, Save,
    Start, Time, What,
};
pub use log::LogSink;
pub use read::{Entry, LineError, LogReader};
