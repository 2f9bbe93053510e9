//! Turns text into 16-bit ids with GPT-2's BPE, the BPE of a tokenizer.json, or a table of
//! characters.
//!
//! Text never encodes to special tokens (like `encode_ordinary` in nanoGPT's scripts): a document
//! that contains the words `<|endoftext|>` does not end there.

mod bpe;
mod json;
mod words;

use crate::error::{PrepareError, Result};
use crate::{limits, regular};
use data::{CharTokenizer, GPT2_IDS, Meta};
use std::path::Path;

pub use bpe::{Bpe, Encoder as BpeEncoder};
pub use words::last_safe_cut;

/// Reads a tokenizer.json, which must be a regular file and not too large.
///
/// # Errors
///
/// When it cannot be read, is not a regular file or is too large.
pub fn read_json(path: &Path) -> Result<Vec<u8>> {
    regular::read(path, limits::TOKENIZER, "tokenizer.json")
}

/// A tokenizer.
#[derive(Debug)]
pub enum Tokens {
    /// Byte pairs, with the id that ends a document.
    Bpe {
        /// The vocabulary and its merges.
        bpe: Box<Bpe>,
        /// The id written after each document.
        end_of_text: u16,
        /// Content of `meta.pkl`; `None` for GPT-2, whose size nanoGPT assumes.
        meta: Option<Meta>,
    },
    /// One id per character.
    Char(CharTokenizer),
}

impl Tokens {
    /// GPT-2's tokenizer.
    #[must_use]
    pub fn gpt2() -> Tokens {
        Tokens::Bpe { bpe: Box::new(Bpe::gpt2()), end_of_text: (GPT2_IDS - 1) as u16, meta: None }
    }

    /// Reads a tokenizer.json with byte-level pairs.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or needs something unsupported.
    pub fn from_json(path: &Path) -> Result<Tokens> {
        let name = path.display().to_string();
        Tokens::parse_json(&read_json(path)?).map_err(|what| PrepareError::source(&name, what))
    }

    /// Parses the bytes of a tokenizer.json.
    ///
    /// # Errors
    ///
    /// Like [`Tokens::from_json`], without the file's name.
    pub fn parse_json(bytes: &[u8]) -> std::result::Result<Tokens, String> {
        json::parse(bytes)
    }

    /// The id that ends a document; `None` for characters.
    #[must_use]
    pub fn end_of_text(&self) -> Option<u16> {
        match self {
            Tokens::Bpe { end_of_text, .. } => Some(*end_of_text),
            Tokens::Char(_) => None,
        }
    }

    /// Content of the data set's `meta.pkl`; `None` if there must be no such file.
    #[must_use]
    pub fn meta(&self) -> Option<Meta> {
        match self {
            Tokens::Bpe { meta, .. } => meta.clone(),
            Tokens::Char(table) => Some(Meta::new(table.vocab_size(), Some(table.clone()))),
        }
    }

    /// An encoder for one thread.
    #[must_use]
    pub fn encoder(&self) -> Encoder<'_> {
        match self {
            Tokens::Bpe { bpe, .. } => Encoder::Bpe(BpeEncoder::new(bpe)),
            Tokens::Char(table) => Encoder::Char(table),
        }
    }
}

/// Turns text into ids in one thread.
pub enum Encoder<'a> {
    /// By BPE.
    Bpe(BpeEncoder<'a>),
    /// By characters.
    Char(&'a CharTokenizer),
}

impl Encoder<'_> {
    /// Appends the ids of `text`.
    ///
    /// # Errors
    ///
    /// The character that is not in the table; the text must have changed since the table was made.
    pub fn encode(&mut self, text: &str, out: &mut Vec<u16>) -> std::result::Result<(), char> {
        match self {
            Encoder::Bpe(encoder) => encoder.encode(text, out),
            Encoder::Char(table) => {
                out.reserve(text.len());
                for character in text.chars() {
                    out.push(table.id(character).ok_or(character)?);
                }
            }
        }
        Ok(())
    }
}
