//! From many texts to 16-bit ids, in one thread.

use crate::added::{Part, Specials};
use crate::bpe::BpeEncoder;
use crate::byte_pairs::BytePairs;
use crate::characters::CharTokenizer;

/// Turns text into ids in one thread. Text never encodes to special tokens (like `encode_ordinary`
/// in nanoGPT's scripts): a document that contains the words `<|endoftext|>` does not end there.
pub struct Encoder<'a>(Method<'a>);

enum Method<'a> {
    /// Words only.
    Words(BpeEncoder<'a>),
    /// Words, and added tokens that are not special.
    WordsAndTokens(BpeEncoder<'a>, &'a BytePairs),
    Characters(&'a CharTokenizer),
}

impl<'a> Encoder<'a> {
    pub(crate) fn characters(table: &'a CharTokenizer) -> Self {
        Self(Method::Characters(table))
    }

    pub(crate) fn byte_pairs(pairs: &'a BytePairs) -> Self {
        let words = BpeEncoder::new(&pairs.bpe);
        Self(match pairs.added.all().iter().all(|token| token.special) {
            true => Method::Words(words),
            false => Method::WordsAndTokens(words, pairs),
        })
    }

    /// Appends the ids of `text`.
    ///
    /// # Errors
    ///
    /// The character that is not in the table. Byte pairs can encode everything.
    pub fn encode(&mut self, text: &str, out: &mut Vec<u16>) -> Result<(), char> {
        match &mut self.0 {
            Method::Words(encoder) => encoder.encode(text, out),
            Method::WordsAndTokens(encoder, pairs) => {
                pairs.added.split(text, Specials::AsText, &mut |part| match part {
                    Part::Text(text) => encoder.encode(text, out),
                    Part::Token(id) => out.push(id),
                });
            }
            Method::Characters(table) => {
                out.reserve(text.len());
                for character in text.chars() {
                    out.push(table.id(character).ok_or(character)?);
                }
            }
        }
        Ok(())
    }
}
