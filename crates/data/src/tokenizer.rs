//! Turns text into ids and back, with a table of characters or GPT-2's byte-pair encoding.
//!
//! Decoding is streaming, one id at a time. GPT-2's tokens may end inside a character, so a
//! [`Decoder`] keeps such bytes until the rest arrives.

use std::collections::HashMap;
use std::sync::OnceLock;
use tiktoken::CoreBpe;

/// Size of GPT-2's vocabulary; models usually pad it to 50,304 rows.
pub const GPT2_IDS: u32 = 50_257;

/// The tokenizer of one data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tokenizer {
    /// One id per character.
    Char(CharTokenizer),
    /// GPT-2's byte-pair encoding; `<|endoftext|>` in a text is its only special token, 50256.
    Gpt2,
}

impl Tokenizer {
    /// The ids of `text`.
    ///
    /// # Errors
    ///
    /// When a character is not in the table. Byte pairs can encode everything.
    pub fn encode(&self, text: &str) -> Result<Vec<i32>, UnknownCharacter> {
        match self {
            Self::Char(characters) => characters.encode(text),
            Self::Gpt2 => {
                let ids = gpt2().encode_with_special_tokens(text);
                Ok(ids.into_iter().map(u32::cast_signed).collect())
            }
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
        Decoder { tokenizer: self, held: Vec::new() }
    }

    /// How many ids have a text.
    #[must_use]
    pub fn vocab_size(&self) -> u32 {
        match self {
            Self::Char(characters) => characters.vocab_size(),
            Self::Gpt2 => GPT2_IDS,
        }
    }
}

/// GPT-2's vocabulary, unpacked on first use (about 20 ms).
fn gpt2() -> &'static CoreBpe {
    static GPT2: OnceLock<CoreBpe> = OnceLock::new();
    GPT2.get_or_init(tiktoken::encoding::gpt2)
}

/// A table of characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CharTokenizer {
    characters: Vec<char>,
    ids: HashMap<char, u16>,
}

impl CharTokenizer {
    /// A table in which a character's index is its id; `None` if a character occurs twice or there
    /// are more than 65,536.
    #[must_use]
    pub fn new(characters: Vec<char>) -> Option<Self> {
        let ids: HashMap<char, u16> =
            characters.iter().zip(0..=u16::MAX).map(|(&c, id)| (c, id)).collect();
        (ids.len() == characters.len()).then_some(Self { characters, ids })
    }

    /// The characters, by id.
    #[must_use]
    pub fn characters(&self) -> &[char] {
        &self.characters
    }

    /// How many there are.
    #[must_use]
    pub fn vocab_size(&self) -> u32 {
        self.characters.len() as u32
    }

    /// The id of a character.
    #[must_use]
    pub fn id(&self, character: char) -> Option<u16> {
        self.ids.get(&character).copied()
    }

    fn encode(&self, text: &str) -> Result<Vec<i32>, UnknownCharacter> {
        let id = |(position, character)| match self.id(character) {
            Some(id) => Ok(i32::from(id)),
            None => Err(UnknownCharacter { character, position, vocab_size: self.vocab_size() }),
        };
        text.chars().enumerate().map(id).collect()
    }
}

/// A character of a prompt that the data set's vocabulary does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "character {character:?} (U+{:04X}) at position {position} is not one of the {vocab_size} \
     characters that the model knows; leave it out of the text",
    u32::from(*character)
)]
pub struct UnknownCharacter {
    /// The character.
    pub character: char,
    /// Its position in the text, in characters from 0.
    pub position: usize,
    /// Size of the vocabulary.
    pub vocab_size: u32,
}

/// Turns ids into text, one at a time.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    tokenizer: &'a Tokenizer,
    /// The first bytes of a character whose other bytes have not arrived yet.
    held: Vec<u8>,
}

impl Decoder<'_> {
    /// The text that `id` completes; empty while a character is incomplete.
    pub fn push(&mut self, id: i32) -> String {
        let id = u32::try_from(id).unwrap_or(u32::MAX);
        match self.tokenizer {
            Tokenizer::Char(table) => {
                let character = table.characters.get(id as usize).copied();
                character.unwrap_or(char::REPLACEMENT_CHARACTER).to_string()
            }
            Tokenizer::Gpt2 if id < GPT2_IDS => {
                self.held.extend(gpt2().decode(&[id]));
                self.take_complete()
            }
            Tokenizer::Gpt2 => {
                let mut text = self.finish();
                text.push(char::REPLACEMENT_CHARACTER);
                text
            }
        }
    }

    /// The end of the text: U+FFFD for a character that was never completed, otherwise empty.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.held)).into_owned()
    }

    /// Takes all complete characters. Bytes that can never become valid are replaced by U+FFFD at
    /// once.
    fn take_complete(&mut self) -> String {
        let mut text = String::new();
        loop {
            let (valid, bad) = match std::str::from_utf8(&self.held) {
                Ok(all) => (all.len(), 0),
                Err(error) => (error.valid_up_to(), error.error_len().unwrap_or(0)),
            };
            let rest = self.held.split_off(valid + bad);
            text.push_str(&String::from_utf8_lossy(&self.held));
            self.held = rest;
            if bad == 0 {
                return text;
            }
        }
    }
}
