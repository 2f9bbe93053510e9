//! A folder's tokenizer: the files that AutoTokenizer loads, written from ours, and ours recognised
//! in such files.

use crate::bounded_file;
use crate::byte_level::Tables;
use crate::error::ForeignError;
use model::{Dims, GPT2_ROWS};
use serde_json::{Map, Value, json};
use std::path::Path;
use tokenizer::{BytePairs, CharTokenizer, GPT2_IDS, MOST_KEPT, Tokenizer};

/// Most bytes of a tokenizer's file; GPT-2's have one to two million.
const MOST_BYTES: u64 = 64 << 20;

const TOKENIZER: &str = "tokenizer.json";
const VOCAB: &str = "vocab.json";
const MERGES: &str = "merges.txt";
const CONFIG: &str = "tokenizer_config.json";

/// The names of all files that a tokenizer may have.
pub(crate) const NAMES: [&str; 4] = [TOKENIZER, VOCAB, MERGES, CONFIG];

/// A file to write: its name and its content.
pub(crate) type Written = (&'static str, String);

/// The files of a tokenizer, for a model with this context.
pub(crate) fn files(tokenizer: &Tokenizer, block_size: u64) -> Vec<Written> {
    match (tokenizer, tokenizer.byte_pairs()) {
        (Tokenizer::Char(table), _) => vec![
            (TOKENIZER, character_json(table).to_string()),
            (CONFIG, format!("{:#}", general_config(block_size))),
        ],
        (_, Some(pairs)) => {
            let whole = tokenizer.to_json().unwrap_or_default();
            byte_pair_files(pairs, whole, block_size)
        }
        (_, None) => Vec::new(),
    }
}

/// The id that ends a text, if the tokenizer has one.
pub(crate) fn end_of_text(tokenizer: &Tokenizer) -> Option<u32> {
    tokenizer.end_of_text().map(u32::from)
}

fn byte_pair_files(pairs: &BytePairs, whole: &str, block_size: u64) -> Vec<Written> {
    let Tables { tokens, merges } = Tables::of(pairs);
    let used = tokens.iter().zip(0u32..).filter(|(token, _)| !token.is_empty());
    let vocab: Map<String, Value> = used.map(|(t, id)| (t.clone(), id.into())).collect();
    let lines: String = merges.iter().map(|(left, right)| format!("{left} {right}\n")).collect();
    let end = pairs.name(pairs.end_of_text());
    let config = json!({
        "tokenizer_class": "GPT2Tokenizer",
        "add_prefix_space": false,
        "bos_token": end,
        "eos_token": end,
        "unk_token": end,
        "clean_up_tokenization_spaces": false,
        "model_max_length": block_size,
    });
    vec![
        (TOKENIZER, whole.to_owned()),
        (VOCAB, Value::Object(vocab).to_string()),
        (MERGES, format!("#version: 0.2\n{lines}")),
        (CONFIG, format!("{config:#}")),
    ]
}

/// Every character is a word of its own, with its id; words are put together without spaces. A
/// character that the model does not know is an error, as in nanoGPT.
fn character_json(table: &CharTokenizer) -> Value {
    let ids = table.characters().iter().zip(0u32..);
    let vocab: Map<String, Value> = ids.map(|(c, id)| (c.to_string(), id.into())).collect();
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[\\s\\S]"}, "behavior": "Isolated",
                          "invert": false},
        "post_processor": null,
        "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"},
    })
}

fn general_config(block_size: u64) -> Value {
    json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": false,
        "model_max_length": block_size,
    })
}

/// The tokenizer of a folder; none if it is one that fitgpt does not have. Without any file, a
/// vocabulary of GPT-2's size means GPT-2's tokenizer, as in nanoGPT.
pub(crate) fn read(folder: &Path, dims: &Dims) -> Result<Option<Tokenizer>, ForeignError> {
    let file = |name: &str| Some(folder.join(name)).filter(|path| path.is_file());
    let found = match (file(TOKENIZER), file(VOCAB)) {
        (Some(path), _) => recognised(&bounded_file::read_json(&path, MOST_BYTES)?),
        (None, Some(path)) => {
            let vocab = bounded_file::read_json(&path, MOST_BYTES)?;
            vocab.as_object().filter(|vocab| is_gpt2(vocab)).map(|_| Tokenizer::Gpt2)
        }
        (None, None) => {
            let sizes = u64::from(GPT2_IDS)..=GPT2_ROWS;
            sizes.contains(&dims.vocab_size).then_some(Tokenizer::Gpt2)
        }
    };
    Ok(found.filter(|found| u64::from(found.vocab_size()) <= dims.vocab_size))
}

/// A table of characters, GPT-2's byte pairs or others, if a `tokenizer.json` has one.
fn recognised(json: &Value) -> Option<Tokenizer> {
    let model = json.get("model")?;
    if model.get("type").and_then(Value::as_str) == Some("WordLevel") {
        return characters(model.get("vocab")?.as_object()?).map(Tokenizer::Char);
    }
    let found = Tokenizer::from_json(json.to_string().as_bytes()).ok()?;
    match found.byte_pairs()?.is_gpt2() {
        true => Some(Tokenizer::Gpt2),
        false => Some(found).filter(|found| found.to_json().is_some_and(|t| t.len() <= MOST_KEPT)),
    }
}

/// The characters by id, if every word is one character and the ids have no gap.
fn characters(vocab: &Map<String, Value>) -> Option<CharTokenizer> {
    let mut table = vec![None; vocab.len()];
    for (word, id) in vocab {
        let mut letters = word.chars();
        let (Some(letter), None) = (letters.next(), letters.next()) else {
            return None;
        };
        *table.get_mut(usize::try_from(id.as_u64()?).ok()?)? = Some(letter);
    }
    CharTokenizer::new(table.into_iter().collect::<Option<Vec<char>>>()?)
}

/// Whether a vocabulary is GPT-2's. Ids are ranks of merges, so those are the same, too.
fn is_gpt2(vocab: &Map<String, Value>) -> bool {
    let has = |token: &str, id: u16| vocab.get(token).and_then(Value::as_u64) == Some(id.into());
    let is_all = |gpt2: &BytePairs| (0..=gpt2.end_of_text()).all(|id| has(&gpt2.name(id), id));
    vocab.len() == GPT2_IDS as usize && Tokenizer::Gpt2.byte_pairs().is_some_and(is_all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content<'a>(files: &'a [Written], name: &str) -> &'a str {
        &files.iter().find(|(found, _)| *found == name).unwrap().1
    }

    #[test]
    fn gpt2_is_recognised_in_what_is_written() {
        let written = files(&Tokenizer::Gpt2, 1024);
        let names: Vec<&str> = written.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, NAMES);
        let whole: Value = serde_json::from_str(content(&written, TOKENIZER)).unwrap();
        assert_eq!(recognised(&whole), Some(Tokenizer::Gpt2));
        let mut vocab: Value = serde_json::from_str(content(&written, VOCAB)).unwrap();
        assert!(is_gpt2(vocab.as_object().unwrap()));
        vocab["Ġthe"] = 5.into();
        assert!(!is_gpt2(vocab.as_object().unwrap()));
        let merges: Vec<&str> = content(&written, MERGES).lines().collect();
        assert_eq!((merges.len(), merges[0], merges[1]), (50_001, "#version: 0.2", "Ġ t"));
    }

    #[test]
    fn characters_are_recognised_in_what_is_written() {
        let table = CharTokenizer::new("\n !aé🦀\"\\".chars().collect()).unwrap();
        let written = files(&Tokenizer::Char(table.clone()), 8);
        let json: Value = serde_json::from_str(content(&written, TOKENIZER)).unwrap();
        assert_eq!(recognised(&json), Some(Tokenizer::Char(table)));
        for vocab in [
            json!({"a": 0, "b": 2}),
            json!({"a": 0, "bc": 1}),
            json!({"a": 0, "b": 0}),
            json!({"a": 0, "": 1}),
            json!({"a": 0, "b": -1}),
        ] {
            let json = json!({"model": {"type": "WordLevel", "vocab": vocab}});
            assert_eq!(recognised(&json), None, "{json}");
        }
        for json in [json!(1), json!({}), json!({"model": {"type": "Unigram", "vocab": []}})] {
            assert_eq!(recognised(&json), None);
        }
    }
}
