//! A table of characters: one id for each.

use std::collections::HashMap;

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

    /// The character of an id.
    #[must_use]
    pub fn character(&self, id: u32) -> Option<char> {
        self.characters.get(id as usize).copied()
    }

    /// The ids of `text`.
    pub(crate) fn encode(&self, text: &str) -> Result<Vec<i32>, UnknownCharacter> {
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
