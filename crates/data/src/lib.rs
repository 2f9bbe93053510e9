//! From files to batches: token files, data sets, tokenizers, samplers and the built-in corpus.
//!
//! A [`Dataset`] is two streams of token ids and, where it is known, the way from ids to text. Its
//! tokens come from nanoGPT's headerless files, from llm.c's shards, or from memory (the built-in
//! corpus); nothing behind [`TokenStream`] can tell them apart. Batches are chosen by [`Sampler`],
//! a pure function, or by [`NanogptSampler`], which replays nanoGPT's own choices.

#![forbid(unsafe_code)]

mod error;
mod foreign;
mod regular;
mod token_file;
mod token_stream;

mod tokenizer;

mod meta;

mod dataset;

mod batches;
mod nanogpt_sampler;

mod ngram;

pub mod corpus;
pub mod disk;

pub use batches::{Batch, Sampler, Use, fill_rows};
pub use dataset::{BUILTIN, Dataset, KNOWN_DATASETS, Split};
pub use error::DataError;
pub use meta::Meta;
pub use nanogpt_sampler::{NanogptSampler, NanogptSpec, NanogptState};
pub use ngram::Ngram;
pub use token_file::TokenFile;
pub use token_stream::TokenStream;
pub use tokenizer::{CharTokenizer, Decoder, GPT2_IDS, Tokenizer, UnknownCharacter};
