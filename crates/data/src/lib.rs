//! From files to batches: token files, data sets, samplers and the built-in corpus.
//!
//! A [`Dataset`] is two streams of token ids and, if known, a tokenizer that turns ids into text.
//! Its tokens come from nanoGPT's headerless files, from llm.c's shards, or from memory (the
//! built-in corpus); users of [`TokenStream`] see no difference. [`BatchSampler`], a pure function,
//! chooses the batches, or [`NanogptSampler`], which replays nanoGPT's own choices.

#![forbid(unsafe_code)]

mod dataset;
pub mod known;

mod token_stream;
mod token_file;
mod regular;
mod foreign;

mod meta;

mod batches;
mod nanogpt_sampler;

pub mod corpus;
mod ngram;

pub mod disk;
pub mod contained;
mod error;

pub use batches::{Batch, BatchSampler, Use, fill_rows};
pub use dataset::{BUILTIN, Dataset, Split, folder_tokenizer};
pub use error::DataError;
pub use meta::Meta;
pub use nanogpt_sampler::{NanogptSampler, NanogptSpec, NanogptState};
pub use ngram::Ngram;
pub use token_file::TokenFile;
pub use token_stream::TokenStream;
