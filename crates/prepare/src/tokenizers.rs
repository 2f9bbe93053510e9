//! The files of a data set's tokenizer: the tokenizer.json that it is read from, and the `meta.pkl`
//! that it needs.

use crate::error::{PrepareError, Result};
use crate::{limits, regular};
use data::Meta;
use std::path::Path;
use tokenizer::Tokenizer;

/// Reads a tokenizer.json, which must be a regular file and not too large.
///
/// # Errors
///
/// When it cannot be read, is not a regular file or is too large.
pub fn read_json(path: &Path) -> Result<Vec<u8>> {
    regular::read(path, limits::TOKENIZER, "tokenizer.json")
}

/// The tokenizer of a tokenizer.json.
///
/// # Errors
///
/// When the file cannot be read or needs something unsupported.
pub fn open_json(path: &Path) -> Result<Tokenizer> {
    let name = path.display().to_string();
    Tokenizer::from_json(&read_json(path)?).map_err(|what| PrepareError::source(&name, what))
}

/// Content of the data set's `meta.pkl`; `None` for GPT-2, whose size nanoGPT assumes: then there
/// must be no such file.
#[must_use]
pub fn meta(tokenizer: &Tokenizer) -> Option<Meta> {
    match tokenizer {
        Tokenizer::Gpt2 => None,
        Tokenizer::Json(pairs) => Some(Meta::new(pairs.vocab_size(), None)),
        Tokenizer::Char(table) => Some(Meta::new(table.vocab_size(), Some(table.clone()))),
    }
}
