//! The tokenizer inside the file, as byte-level BPE. llama.cpp wants a text for every row of the
//! embedding, and takes id 11 for the end of a text if none is named. So a vocabulary without such
//! a token uses a row without text for it, or gets one more row ([`Vocabulary::extra_row`]).

use crate::byte_level::{self, END_OF_TEXT, Tables};
use crate::export::ExportError;
use std::collections::HashSet;
use tokenizer::{AddedToken, Tokenizer, byte_letters};

/// llama.cpp's types of tokens.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;

/// What the file says about the tokenizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vocabulary {
    /// One for each row of the embedding, and one for the extra row.
    pub tokens: Vec<String>,
    /// One for each of `tokens`.
    pub types: Vec<i32>,
    /// By rank, left and right separated by a space.
    pub merges: Vec<String>,
    /// The token that ends a text.
    pub end: u32,
    /// Whether the last token has no row in the model. Its row is the mean of all others: its logit
    /// is then the mean of theirs, so that it is never the most likely token.
    pub extra_row: bool,
}

impl Vocabulary {
    /// The vocabulary of a model with this many rows.
    pub fn new(tokenizer: &Tokenizer, rows: u64) -> Result<Vocabulary, ExportError> {
        let pairs = tokenizer.byte_pairs();
        let end = tokenizer.end_of_text();
        let (mut tokens, merges) = match tokenizer {
            Tokenizer::Gpt2 | Tokenizer::Json(_) => {
                let tables = pairs.map(Tables::of);
                tables.map(|Tables { tokens, merges }| (tokens, merges)).unwrap_or_default()
            }
            Tokenizer::Char(table) => {
                let characters = table.characters();
                let mut bytes = [0; 4];
                let tokens = characters
                    .iter()
                    .map(|c| byte_letters(c.encode_utf8(&mut bytes).as_bytes()))
                    .collect();
                (tokens, byte_level::character_merges(characters))
            }
        };
        let rows = usize::try_from(rows).ok().filter(|rows| *rows >= tokens.len());
        let rows = rows.ok_or_else(|| ExportError::Refused {
            what: format!("the tokenizer has {} tokens, more than the model", tokens.len()),
        })?;
        let known = tokens.len();
        let extra_row = end.is_none() && known == rows;
        let end = end.map_or(known, usize::from);
        tokens.resize(rows.max(end + 1), String::new());
        fill_in(&mut tokens, end);
        let added = |id: usize| -> Option<&AddedToken> {
            let all = pairs.map_or(&[][..], |pairs| pairs.added_tokens());
            all.binary_search_by_key(&id, |token| token.id.into()).ok().map(|at| &all[at])
        };
        let is_used = |id: usize| {
            pairs.is_none_or(|pairs| u16::try_from(id).is_ok_and(|id| pairs.is_used(id)))
        };
        let kind = |id: usize| match added(id) {
            Some(token) if token.special => CONTROL,
            Some(_) => USER_DEFINED,
            None if id == end => CONTROL,
            None if id < known && is_used(id) => NORMAL,
            None => UNUSED,
        };
        Ok(Vocabulary {
            types: (0..tokens.len()).map(kind).collect(),
            merges: merges.iter().map(|(left, right)| format!("{left} {right}")).collect(),
            end: end as u32,
            tokens,
            extra_row,
        })
    }
}

/// Gives every token without text a text of its own: llama.cpp ends the process if two are equal.
fn fill_in(tokens: &mut [String], end: usize) {
    let taken: HashSet<String> = tokens.iter().cloned().collect();
    for (id, token) in tokens.iter_mut().enumerate().filter(|(_, token)| token.is_empty()) {
        *token = if id == end { END_OF_TEXT.to_owned() } else { format!("[PAD{id}]") };
        while taken.contains(token.as_str()) {
            token.push('_');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokenizer::CharTokenizer;

    #[test]
    fn gpt2_is_padded_to_the_rows() {
        let vocabulary = Vocabulary::new(&Tokenizer::Gpt2, 50_304).unwrap();
        let Vocabulary { tokens, types, merges, end, extra_row } = &vocabulary;
        assert_eq!((tokens.len(), types.len(), merges.len()), (50_304, 50_304, 50_000));
        assert_eq!((*end, *extra_row), (50_256, false));
        assert_eq!(
            [&tokens[50_255], &tokens[50_256], &tokens[50_257]],
            ["Ġgazed", END_OF_TEXT, "[PAD50257]"]
        );
        assert_eq!(types[50_255..50_258], [NORMAL, CONTROL, UNUSED]);
        assert_eq!(merges[0], "Ġ t");
        let error = Vocabulary::new(&Tokenizer::Gpt2, 50_256).unwrap_err().to_string();
        assert_eq!(error, "the tokenizer has 50257 tokens, more than the model");
    }

    /// Added tokens have types of their own, unused ids a text.
    #[test]
    fn a_tokenizer_json_has_gaps_and_added_tokens() {
        let json = Tokenizer::Gpt2.to_json().unwrap();
        let token = r#""added_tokens":[{"id":50260,"content":"<own>","special":false},"#;
        let json = json.replacen("\"added_tokens\":[", token, 1);
        let own = Tokenizer::from_json(json.as_bytes()).unwrap();
        let vocabulary = Vocabulary::new(&own, 50_262).unwrap();
        assert_eq!(vocabulary.tokens[50_259..], ["[PAD50259]", "<own>", "[PAD50261]"]);
        assert_eq!(vocabulary.types[50_256..], [CONTROL, UNUSED, UNUSED, UNUSED, 4, UNUSED]);
        assert_eq!((vocabulary.end, vocabulary.merges.len()), (50_256, 50_000));
    }

    #[test]
    fn texts_of_unused_ids_are_new() {
        let mut tokens = ["a", "", "[PAD1]", ""].map(str::to_owned);
        fill_in(&mut tokens, 3);
        assert_eq!(tokens, ["a", "[PAD1]_", "[PAD1]", END_OF_TEXT]);
    }

    #[test]
    fn characters_get_an_end_of_text_of_their_own() {
        let table = CharTokenizer::new("\n aé".chars().collect()).unwrap();
        let tokenizer = Tokenizer::Char(table);
        let vocabulary = Vocabulary::new(&tokenizer, 4).unwrap();
        assert_eq!(vocabulary.tokens, ["Ċ", "Ġ", "a", "Ã©", END_OF_TEXT]);
        assert_eq!(vocabulary.types, [NORMAL, NORMAL, NORMAL, NORMAL, CONTROL]);
        assert_eq!(vocabulary.merges, ["Ã ©"]);
        assert!(vocabulary.extra_row && vocabulary.end == 4);
        let padded = Vocabulary::new(&tokenizer, 6).unwrap();
        assert_eq!(padded.tokens[4..], [END_OF_TEXT, "[PAD5]"]);
        assert!(!padded.extra_row && padded.end == 4 && padded.types[5] == UNUSED);
    }
}
