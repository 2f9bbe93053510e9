//! From any text to nanoGPT's token files, in memory that does not grow with the text.
//!
//! A [`Request`] becomes a [`Job`] (what will be read, how it is divided, whether there is room),
//! and [`run()`] makes the data set: one thread reads documents as streams, all cores encode
//! batches of about a mebibyte, one writes them in order and keeps a journal. Peak memory stays
//! under a GiB whatever the sources are; that of a reader is bounded by its file's size, whatever
//! the file claims (`limits.rs`).

#![forbid(unsafe_code)]

mod contained;
mod error;
mod limits;
mod pick;
mod regular;

mod pattern;
mod sniff;
mod sources;

mod download;
mod hub;
mod part;
mod shelf;
mod wire;

mod readers;
mod segment;
mod split;
mod survey;

mod tokens;

mod journal;
mod lock;
mod output;
mod pipeline;

mod disk;
mod request;
mod run;

pub use download::Client;
pub use error::{PrepareError, Result};
pub use hub::{ENDPOINT, Hub};
pub use journal::{Journal, Totals};
pub use pipeline::MOST_WORKERS;
// The readers by themselves: any bytes can be given to them without a preparation around it.
pub use readers::{Packing, ReadSpec, read};
pub use request::{Choice, Job, Request};
pub use run::{Observer, Outcome, Progress, run};
pub use segment::Sink;
pub use sources::{Format, Place, Source};
pub use split::{DOCUMENTS, SEED, TAIL};
pub use tokens::{Bpe, BpeEncoder, Encoder, Tokens};
