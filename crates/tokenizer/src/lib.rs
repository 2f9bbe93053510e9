//! Turns text into ids and back: GPT-2's byte pairs, those of a Hugging Face tokenizer.json, or a
//! table of characters.
//!
//! [`Tokenizer`] is the one type for all three. Whole texts go through [`Tokenizer::encode`] and
//! [`Tokenizer::decode`]. An [`Encoder`] is for many texts in one thread, a [`Decoder`] for ids
//! that arrive one at a time. Nothing here reads a file: callers give bytes.

#![forbid(unsafe_code)]

mod tokenizer;
mod encoder;
mod decoder;

mod characters;
mod byte_pairs;
mod added;
mod bpe;
mod words;
mod letters;

mod json;
mod json_text;

pub use added::AddedToken;
pub use bpe::MOST_IDS;
pub use byte_pairs::BytePairs;
pub use characters::{CharTokenizer, UnknownCharacter};
pub use decoder::Decoder;
pub use encoder::Encoder;
pub use json::{MOST_BYTES, MOST_MERGES};
pub use json_text::MOST_KEPT;
pub use letters::byte_letters;
pub use tokenizer::{GPT2_IDS, Tokenizer};
pub use words::last_safe_cut;
