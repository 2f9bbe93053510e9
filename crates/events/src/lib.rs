//! The stream of events of a run. The loop emits them; sinks (the console, `log.jsonl`) handle
//! them, each on its own thread behind a bounded queue. The loop does not allocate for an
//! iteration, and it does not wait for a terminal or a disk.
//!
//! A new sink is one file that implements [`Sink`] and one line where the [`Emitter`] is created.
#![forbid(unsafe_code)]

mod event;
mod queue;

mod emitter;

mod log;
mod read;

pub use emitter::{Emitter, Settling, Sink, SinkError};
pub use event::{
    End, Evaluated, Evaluating, Event, Iteration, KINDS, Notice, Reason, SCHEMA, Sample, Save,
    Start, Time, What,
};
pub use log::LogSink;
pub use read::{Entry, LONGEST, LineError, LogReader, parse_line};
