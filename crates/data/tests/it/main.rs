//! Token files, data sets, samplers and the corpus, as their callers see them.
#![allow(clippy::unwrap_used, clippy::panic)]

mod corpus;
mod datasets;
mod meta;
mod nanogpt;
mod ngram;
mod samplers;
mod scratch;
mod token_files;
