//! A folder's tokenizer: the files that AutoTokenizer loads, written from ours, and ours recognised
//! in such files.

use crate::bounded_file;
use crate::byte_level::Tables;
use crate::error::ForeignError;
use model::Dims;
use serde_json::{Map, Value, json};
use std::path::Path;
use tokenizer::{BytePairs, CharTokenizer, GPT2_IDS, MOST_KEPT, Tokenizer};

/// Most bytes of a tokenizer's file; GPT-2's have one to two million.
const MOST_BYTES: u64 = 64 << 20;

const TOKENIZER: &str = "tokenizer.json";
const VOCAB: &str = "vocab.json";
const MERGES: &str = "merges.txt";
const CONFIG: &str = "tokenizer_config.json";
/// Tokens beside a vocabulary in the form from before `tokenizer.json`.
const ADDED: &str = "added_tokens.json";

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

/// What a folder says about its tokenizer.
pub(crate) struct Found {
    /// The tokenizer, or why there is none that can be used.
    pub tokenizer: Result<Tokenizer, String>,
    /// What was assumed.
    pub notice: Option<String>,
}

/// The tokenizer of a folder. Without any file, a vocabulary of GPT-2's size means GPT-2's
/// tokenizer, as in nanoGPT.
pub(crate) fn read(folder: &Path, dims: &Dims) -> Result<Found, ForeignError> {
    let file = |name: &str| Some(folder.join(name)).filter(|path| path.is_file());
    let mut notice = None;
    let found = match (file(TOKENIZER), file(VOCAB), file(MERGES)) {
        (Some(path), ..) => recognised(&bounded_file::read_json(&path, MOST_BYTES)?)
            .map_err(|why| format!("its {TOKENIZER} {why}")),
        (None, Some(vocab), Some(merges)) => pair(folder, &vocab, &merges)?,
        (None, None, None) if dims.vocab_size == u64::from(GPT2_IDS) => {
            notice = Some(format!(
                "{} has no tokenizer: GPT-2's is used, because the vocabulary has its size",
                folder.display()
            ));
            Ok(Tokenizer::Gpt2)
        }
        (None, None, None) => Err(format!("it has no {TOKENIZER}")),
        (None, vocab, _) => {
            let (has, lacks) = if vocab.is_some() { (VOCAB, MERGES) } else { (MERGES, VOCAB) };
            Err(format!("it has {has}, but no {lacks}"))
        }
    };
    let tokenizer = found.and_then(|found| {
        let (ids, rows) = (found.vocab_size(), dims.vocab_size);
        match u64::from(ids) <= rows {
            true => Ok(found),
            false => Err(format!("its tokenizer has {ids} tokens, but its model only {rows}")),
        }
    });
    Ok(Found { tokenizer, notice })
}

/// The tokenizer of `vocab.json` and `merges.txt`, the form from before `tokenizer.json`.
fn pair(
    folder: &Path,
    vocab: &Path,
    merges: &Path,
) -> Result<Result<Tokenizer, String>, ForeignError> {
    let advice = "save the tokenizer as tokenizer.json, with AutoTokenizer's save_pretrained";
    if folder.join(ADDED).is_file() {
        return Ok(Err(format!("it has an {ADDED}, which is not supported; {advice}")));
    }
    let config = folder.join(CONFIG);
    if config.is_file() {
        let config = bounded_file::read_json(&config, MOST_BYTES)?;
        if config.get("add_prefix_space") == Some(&Value::Bool(true)) {
            return Ok(Err(
                "its tokenizer adds a space before each text (add_prefix_space), which \
                           is not supported"
                    .to_owned(),
            ));
        }
    }
    let [vocab, merges] =
        [bounded_file::read(vocab, MOST_BYTES)?, bounded_file::read(merges, MOST_BYTES)?];
    let Ok(merges) = std::str::from_utf8(&merges) else {
        return Ok(Err(format!("its {MERGES} is not UTF-8")));
    };
    let found = Tokenizer::from_vocab_and_merges(&vocab, merges);
    Ok(found.and_then(kept).map_err(|why| format!("its {VOCAB} and {MERGES}: {why}")))
}

/// A table of characters, GPT-2's byte pairs or others, if a `tokenizer.json` has one.
fn recognised(json: &Value) -> Result<Tokenizer, String> {
    let model = json.get("model");
    if model.and_then(|model| model.get("type")).and_then(Value::as_str) == Some("WordLevel") {
        let vocab = model.and_then(|model| model.get("vocab")).and_then(Value::as_object);
        let table = vocab.and_then(characters).map(Tokenizer::Char);
        return table.ok_or_else(|| {
            "is a WordLevel tokenizer whose words are not single characters".to_owned()
        });
    }
    Tokenizer::from_json(json.to_string().as_bytes()).and_then(kept)
}

/// GPT-2's byte pairs under their own name; others if a checkpoint has room for them.
fn kept(found: Tokenizer) -> Result<Tokenizer, String> {
    if found.byte_pairs().is_some_and(BytePairs::is_gpt2) {
        return Ok(Tokenizer::Gpt2);
    }
    match found.to_json().is_some_and(|text| text.len() <= MOST_KEPT) {
        true => Ok(found),
        false => Err(format!("has more than {MOST_KEPT} bytes, too many for a checkpoint")),
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
        assert_eq!(recognised(&whole), Ok(Tokenizer::Gpt2));
        let merges: Vec<&str> = content(&written, MERGES).lines().collect();
        assert_eq!((merges.len(), merges[0], merges[1]), (50_001, "#version: 0.2", "Ġ t"));
    }

    #[test]
    fn characters_are_recognised_in_what_is_written() {
        let table = CharTokenizer::new("\n !aé🦀\"\\".chars().collect()).unwrap();
        let written = files(&Tokenizer::Char(table.clone()), 8);
        let json: Value = serde_json::from_str(content(&written, TOKENIZER)).unwrap();
        assert_eq!(recognised(&json), Ok(Tokenizer::Char(table)));
        for vocab in [
            json!({"a": 0, "b": 2}),
            json!({"a": 0, "bc": 1}),
            json!({"a": 0, "b": 0}),
            json!({"a": 0, "": 1}),
            json!({"a": 0, "b": -1}),
        ] {
            let json = json!({"model": {"type": "WordLevel", "vocab": vocab}});
            assert!(recognised(&json).unwrap_err().starts_with("is a WordLevel"), "{json}");
        }
        for json in [json!(1), json!({}), json!({"model": {"type": "Unigram", "vocab": []}})] {
            assert!(recognised(&json).is_err(), "{json}");
        }
    }
}
