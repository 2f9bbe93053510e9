//! Events from the loop to the sinks and to the log, and back from old and new logs.
#![allow(clippy::unwrap_used, clippy::panic)]

mod fixture;
mod queues;
mod reading;
mod schema;
