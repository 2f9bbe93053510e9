//! The tokenizer of a data set or a model.

use crate::byte_pairs::BytePairs;
use crate::characters::{CharTokenizer, UnknownCharacter};
use crate::decoder::Decoder;
use crate::encoder::Encoder;
use crate::json;
use std::sync::Arc;

/// Size of GPT-2's vocabulary; models usually pad it to 50,304 rows.
pub const GPT2_IDS: u32 = 50_257;

/// The tokenizer of one data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tokenizer {
    /// One id per character.
    Char(CharTokenizer),
    /// GPT-2's byte-pair encoding; `<|endoftext|>` in a text is its only special token, 50256.
    Gpt2,
    /// The byte-pair encoding of a tokenizer.json.
    Json(Arc<BytePairs>),
}

impl Tokenizer {
    /// Reads the text of a Hugging Face tokenizer.json with byte-level BPE.
    ///
    /// # Errors
    ///
    /// What is wrong with it or not supported, without the file's name.
    pub fn from_json(text: &[u8]) -> Result<Tokenizer, String> {
        json::parse(text).map(|pairs| Tokenizer::Json(Arc::new(pairs)))
    }

    /// Reads the texts of a `vocab.json` and a `merges.txt`, the form that GPT-2 was published in.
    ///
    /// # Errors
    ///
    /// What is wrong with them or not supported, without the files' folder.
    pub fn from_vocab_and_merges(vocab: &[u8], merges: &str) -> Result<Tokenizer, String> {
        json::parse_pair(vocab, merges).map(|pairs| Tokenizer::Json(Arc::new(pairs)))
    }

    /// The text of a tokenizer.json with this vocabulary, which [`Tokenizer::from_json`] and
    /// Hugging Face's `tokenizers` read; `None` for characters.
    #[must_use]
    pub fn to_json(&self) -> Option<&str> {
        self.byte_pairs().map(BytePairs::to_json)
    }

    /// The vocabulary and its merges; `None` for characters.
    #[must_use]
    pub fn byte_pairs(&self) -> Option<&BytePairs> {
        match self {
            Self::Char(_) => None,
            Self::Gpt2 => Some(BytePairs::gpt2()),
            Self::Json(pairs) => Some(pairs),
        }
    }

    /// The ids of `text`. Added tokens that it spells out, special ones too, become their ids.
    ///
    /// # Errors
    ///
    /// When a character is not in the table. Byte pairs can encode everything.
    pub fn encode(&self, text: &str) -> Result<Vec<i32>, UnknownCharacter> {
        match (self, self.byte_pairs()) {
            (Self::Char(characters), _) => characters.encode(text),
            (_, pairs) => {
                let ids = pairs.map(|pairs| pairs.encode(text)).unwrap_or_default();
                Ok(ids.into_iter().map(i32::from).collect())
            }
        }
    }

    /// An encoder for many texts in one thread, without special tokens.
    #[must_use]
    pub fn encoder(&self) -> Encoder<'_> {
        match self {
            Self::Char(table) => Encoder::characters(table),
            Self::Gpt2 => Encoder::byte_pairs(BytePairs::gpt2()),
            Self::Json(pairs) => Encoder::byte_pairs(pairs),
        }
    }

    /// The text of `ids`. Unknown ids and invalid UTF-8 become U+FFFD.
    #[must_use]
    pub fn decode(&self, ids: &[i32]) -> String {
        let mut decoder = self.decoder();
        let mut text: String = ids.iter().map(|&id| decoder.push(id)).collect();
        text.push_str(&decoder.finish());
        text
    }

    /// A decoder at the beginning of a text.
    #[must_use]
    pub fn decoder(&self) -> Decoder<'_> {
        Decoder::new(self)
    }

    /// How many ids have a text.
    #[must_use]
    pub fn vocab_size(&self) -> u32 {
        match self {
            Self::Char(characters) => characters.vocab_size(),
            Self::Gpt2 => GPT2_IDS,
            Self::Json(pairs) => pairs.vocab_size(),
        }
    }

    /// The id that ends a document; `None` for characters.
    #[must_use]
    pub fn end_of_text(&self) -> Option<u16> {
        match self {
            Self::Char(_) => None,
            Self::Gpt2 => Some((GPT2_IDS - 1) as u16),
            Self::Json(pairs) => Some(pairs.end_of_text),
        }
    }

    /// Bytes of the text that an id stands for. Special tokens stand for none, as they are not part
    /// of the text; `None` for an unused id.
    #[must_use]
    pub fn text_bytes(&self, id: i32) -> Option<u64> {
        let id = u32::try_from(id).ok()?;
        if let Self::Char(table) = self {
            return table.character(id).map(|character| character.len_utf8() as u64);
        }
        let pairs = self.byte_pairs()?;
        let special = |at: usize| pairs.added_tokens()[at].special;
        let small = u16::try_from(id).ok()?;
        match pairs.added_tokens().binary_search_by_key(&small, |token| token.id) {
            Ok(at) if special(at) => Some(0),
            _ => Some(self.piece(id).len() as u64).filter(|bytes| *bytes > 0),
        }
    }

    /// The bytes of an id; empty for an unused one and for characters.
    pub(crate) fn piece(&self, id: u32) -> &[u8] {
        match (self.byte_pairs(), u16::try_from(id)) {
            (Some(pairs), Ok(id)) => pairs.piece(id),
            _ => &[],
        }
    }
}
