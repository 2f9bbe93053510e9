//! A run's metrics for the tools that people plot with. [`metrics`] is the one table of names;
//! `sinks` has TensorBoard, CSV and trackio; [`compare`] reads logs back and draws them. This
//! crate knows the events of a run and nothing else.
#![forbid(unsafe_code)]

pub mod metrics;
mod sinks;
pub mod compare;
mod utc;

pub use sinks::{CsvSink, TensorBoardSink, TrackioRun, TrackioSink, trackio_inbox};
pub use utc::utc;
