//! Turns any text into nanoGPT's token files, in memory that does not grow with the text.
//!
//! A [`Request`] is what the user asks for. It becomes a [`Job`], which knows what will be read,
//! how it is split and whether the disk has room. [`run()`] makes the data set: one thread reads
//! documents as streams, all cores encode batches of about a mebibyte, and one thread writes them
//! in order and keeps a journal. Peak memory stays under a GiB whatever the sources are. A reader's
//! memory is bounded by the size of its file, whatever the file claims (`limits.rs`).

#![forbid(unsafe_code)]

mod request;
mod run;

mod sources;
mod pattern;
mod sniff;
mod listing;

mod shelf;

mod readers;
mod segment;
mod split;
mod survey;

mod tokenizers;

mod pipeline;
mod output;
mod journal;
mod lock;
mod disk;

mod limits;
mod regular;
mod error;

pub use error::{PrepareError, Result};
pub use hub::{Client, ENDPOINT, Hub};
pub use journal::{Journal, Totals};
pub use listing::files;
pub use pipeline::MOST_WORKERS;
// The readers alone, so that the soak can give them any bytes without a whole preparation.
pub use readers::{Packing, ReadSpec, read};
pub use request::{Job, Request, TokenizerChoice};
pub use run::{Observer, Outcome, Progress, run};
pub use segment::Sink;
pub use sources::{Format, Locator, Source};
pub use split::{DOCUMENTS, SEED, TAIL};
pub use tokenizers::open_json;
