//! A byte-level BPE vocabulary with its added tokens: GPT-2's, or that of a tokenizer.json.

use crate::added::{AddedToken, AddedTokens, Part, Specials};
use crate::bpe::{Bpe, BpeEncoder, Merge};
use crate::tokenizer::GPT2_IDS;
use crate::{json_text, letters};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Byte pairs, the tokens that were added to them, and the id that ends a document.
#[derive(Debug)]
pub struct BytePairs {
    pub(crate) bpe: Bpe,
    pub(crate) added: AddedTokens,
    pub(crate) end_of_text: u16,
    /// Names that are not the letters of their bytes, by id.
    odd_names: BTreeMap<u16, Box<str>>,
    /// All of it as a tokenizer.json, written on first use.
    json: OnceLock<String>,
}

impl PartialEq for BytePairs {
    fn eq(&self, other: &BytePairs) -> bool {
        let parts = |pairs: &BytePairs| (pairs.end_of_text, pairs.bpe.vocab_size());
        parts(self) == parts(other)
            && self.bpe == other.bpe
            && self.added == other.added
            && self.odd_names == other.odd_names
    }
}

impl Eq for BytePairs {}

impl BytePairs {
    pub(crate) fn new(
        bpe: Bpe,
        added: Vec<AddedToken>,
        end_of_text: u16,
        odd_names: BTreeMap<u16, Box<str>>,
    ) -> BytePairs {
        let added = AddedTokens::new(added);
        BytePairs { bpe, added, end_of_text, odd_names, json: OnceLock::new() }
    }

    /// GPT-2's, unpacked on first use.
    pub(crate) fn gpt2() -> &'static BytePairs {
        static GPT2: OnceLock<BytePairs> = OnceLock::new();
        GPT2.get_or_init(|| {
            let end_of_text = (GPT2_IDS - 1) as u16;
            let token = AddedToken {
                id: end_of_text,
                content: "<|endoftext|>".into(),
                special: true,
                normalized: false,
                lstrip: false,
                rstrip: false,
            };
            BytePairs::new(Bpe::gpt2(), vec![token], end_of_text, BTreeMap::new())
        })
    }

    /// The text of a tokenizer.json.
    pub(crate) fn to_json(&self) -> &str {
        self.json.get_or_init(|| json_text::write(self))
    }

    /// Whether an id is in use.
    #[must_use]
    pub fn is_used(&self, id: u16) -> bool {
        !self.piece(id).is_empty() || self.odd_names.contains_key(&id)
    }

    /// The bytes of an id; empty if it is unused.
    #[must_use]
    pub fn piece(&self, id: u16) -> &[u8] {
        self.bpe.piece(id)
    }

    /// The name of an id in vocabularies: one letter for each of its bytes. Empty if it is unused.
    #[must_use]
    pub fn name(&self, id: u16) -> String {
        match self.odd_names.get(&id) {
            Some(name) => name.to_string(),
            None => letters::byte_letters(self.piece(id)),
        }
    }

    /// Added tokens, by id.
    #[must_use]
    pub fn added_tokens(&self) -> &[AddedToken] {
        self.added.all()
    }

    /// The merges, by rank: left id, right id and result. One for each token that merges make.
    #[must_use]
    pub fn merges(&self) -> Vec<Merge> {
        self.bpe.merges()
    }

    /// The id that ends a document.
    #[must_use]
    pub fn end_of_text(&self) -> u16 {
        self.end_of_text
    }

    /// Number of ids, including added tokens.
    #[must_use]
    pub fn vocab_size(&self) -> u32 {
        self.bpe.vocab_size()
    }

    /// Whether it gives the same ids as GPT-2's for every text.
    #[must_use]
    pub fn is_gpt2(&self) -> bool {
        let gpt2 = BytePairs::gpt2();
        self.vocab_size() == gpt2.vocab_size()
            && self.added_tokens().len() == 1
            && self.added_tokens()[0].is_like(&gpt2.added_tokens()[0])
            && (0..=gpt2.end_of_text).all(|id| self.piece(id) == gpt2.piece(id))
            && self.merges() == gpt2.merges()
    }

    /// The ids of `text`, with the added tokens that it spells out.
    pub(crate) fn encode(&self, text: &str) -> Vec<u16> {
        let mut encoder = BpeEncoder::new(&self.bpe);
        let mut ids = Vec::new();
        self.added.split(text, Specials::AsTokens, &mut |part| match part {
            Part::Text(text) => encoder.encode(text, &mut ids),
            Part::Token(id) => ids.push(id),
        });
        ids
    }
}
