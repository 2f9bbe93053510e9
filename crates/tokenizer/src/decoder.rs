//! From ids to text, one at a time. A byte pair may end inside a character, so a [`Decoder`] keeps
//! such bytes until the rest arrives.

use crate::tokenizer::Tokenizer;

/// Turns ids into text, one at a time.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    tokenizer: &'a Tokenizer,
    /// The first bytes of a character whose other bytes have not arrived yet.
    held: Vec<u8>,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, held: Vec::new() }
    }

    /// The text that `id` completes; empty while a character is incomplete. U+FFFD for an id that
    /// has no text.
    pub fn push(&mut self, id: i32) -> String {
        let id = u32::try_from(id).unwrap_or(u32::MAX);
        if let Tokenizer::Char(table) = self.tokenizer {
            return table.character(id).unwrap_or(char::REPLACEMENT_CHARACTER).to_string();
        }
        match self.tokenizer.piece(id) {
            [] => {
                let mut text = self.finish();
                text.push(char::REPLACEMENT_CHARACTER);
                text
            }
            piece => {
                self.held.extend(piece);
                self.take_complete()
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
