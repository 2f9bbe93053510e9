//! Text into 16-bit ids: GPT-2's byte pairs, those of a tokenizer.json, or a table of characters.
//!
//! Nothing in a text is special here (`encode_ordinary` in nanoGPT's scripts): a document that
//! holds the words `<|endoftext|>` does not end there.

mod bpe;
mod json;
mod words;

use crate::error::{PrepareError, Result};
use crate::{limits, regular};
use data::{CharTokenizer, GPT2_IDS, Meta};
use std::path::Path;

pub use bpe::{Bpe, Encoder as BpeEncoder};
pub use words::last_safe_cut;

/// The bytes of a tokenizer.json, which is no device and not too large.
///
/// # Errors
///
/// When it cannot be read, or is something else.
pub fn read_json(path: &Path) -> Result<Vec<u8>> {
    regular::read(path, limits::TOKENIZER, "tokenizer.json")
}

/// How text becomes ids.
#[derive(Debug)]
pub enum Tokens {
    /// Byte pairs, with the id that ends a document.
    Bpe {
        /// The vocabulary.
        bpe: Box<Bpe>,
        /// Behind each document.
        end_of_text: u16,
        /// What `meta.pkl` says; none for GPT-2, whose size nanoGPT assumes.
        meta: Option<Meta>,
    },
    /// One id per character.
    Char(CharTokenizer),
}

impl Tokens {
    /// GPT-2's.
    #[must_use]
    pub fn gpt2() -> Tokens {
        Tokens::Bpe { bpe: Box::new(Bpe::gpt2()), end_of_text: (GPT2_IDS - 1) as u16, meta: None }
    }

    /// Those of a tokenizer.json with byte-level pairs.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or asks for what is not known here.
    pub fn from_json(path: &Path) -> Result<Tokens> {
        let name = path.display().to_string();
        Tokens::parse_json(&read_json(path)?).map_err(|what| PrepareError::source(&name, what))
    }

    /// Those of the bytes of such a file, which need no file then.
    ///
    /// # Errors
    ///
    /// As [`Tokens::from_json`], without the file's name.
    pub fn parse_json(bytes: &[u8]) -> std::result::Result<Tokens, String> {
        json::parse(bytes)
    }

    /// The id behind each document; characters have none.
    #[must_use]
    pub fn end_of_text(&self) -> Option<u16> {
        match self {
            Tokens::Bpe { end_of_text, .. } => Some(*end_of_text),
            Tokens::Char(_) => None,
        }
    }

    /// What the data set's `meta.pkl` says; none where there must be no such file.
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

/// Text into ids, by one thread.
pub enum Encoder<'a> {
    /// By byte pairs.
    Bpe(BpeEncoder<'a>),
    /// By characters.
    Char(&'a CharTokenizer),
}

impl Encoder<'_> {
    /// Appends the ids of `text`.
    ///
    /// # Errors
    ///
    /// The character that is not in the table: the text changed since the table was made.
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
