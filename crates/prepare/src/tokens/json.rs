//! A tokenizer.json as Hugging Face writes it, as far as it is GPT-2's method with another
//! vocabulary: byte-level pairs without normalisation. Anything else is refused by name.

use super::Tokens;
use super::bpe::{Bpe, MOST_IDS, Merge};
use data::Meta;
use serde_json::Value;
use std::collections::HashMap;

/// Names of the token that ends a document, in the order they are looked for.
const ENDS: [&str; 5] =
    ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|end▁of▁sentence|>"];

/// The file's tokenizer.
pub fn parse(bytes: &[u8]) -> Result<Tokens, String> {
    let file: Value = serde_json::from_slice(bytes)
        .map_err(|error| format!("is no JSON: {error}; give Hugging Face's tokenizer.json"))?;
    check(&file)?;
    let model = &file["model"];
    let vocab = model["vocab"].as_object().ok_or("has no model.vocab: it is no tokenizer.json")?;
    let letters = byte_letters();
    let mut ids: HashMap<&str, u16> = HashMap::new();
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    let mut place = |name: &str, id: &Value, piece: Vec<u8>| -> Result<u16, String> {
        let id = id.as_u64().unwrap_or(u64::MAX);
        let small = u16::try_from(id).map_err(|_| {
            format!("token '{name}' has id {id}, but token files hold ids below {MOST_IDS}")
        })?;
        if pieces.len() <= usize::from(small) {
            pieces.resize(usize::from(small) + 1, Vec::new());
        }
        pieces[usize::from(small)] = piece;
        Ok(small)
    };
    for (name, id) in vocab {
        let piece = name.chars().map(|c| letters.get(&c).copied()).collect::<Option<Vec<u8>>>();
        // Special tokens in the vocabulary are not made of byte letters, and stand for no text.
        ids.insert(name, place(name, id, piece.unwrap_or_default())?);
    }
    for token in file["added_tokens"].as_array().unwrap_or(&Vec::new()) {
        let Some(name) = token["content"].as_str() else { continue };
        // Such a token is cut out of the text before anything else: other ids than ours.
        if token["special"].as_bool() == Some(false) {
            return Err(format!(
                "has an added token '{name}' that is not special; only such are read"
            ));
        }
        let id = place(name, &token["id"], Vec::new())?;
        ends_insert(&mut ids, name, id);
    }
    let merges = merges(&model["merges"], &ids)?;
    let mut single = [0; 256];
    for (letter, byte) in &letters {
        let id = ids.get(letter.to_string().as_str());
        let id = id.ok_or_else(|| format!("has no token for byte {byte}; byte-level is needed"))?;
        single[usize::from(*byte)] = *id;
    }
    let end = ENDS.iter().find_map(|name| ids.get(name));
    let end_of_text = *end.ok_or_else(|| {
        format!("names no token that ends a document (looked for {})", ENDS.join(", "))
    })?;
    let meta = Some(Meta::new(pieces.len() as u32, None));
    let bpe = Box::new(Bpe::ranked(pieces, single, &merges));
    Ok(Tokens::Bpe { bpe, end_of_text, meta })
}

/// Keeps only names that live as long as the constants they equal.
fn ends_insert(ids: &mut HashMap<&str, u16>, name: &str, id: u16) {
    if let Some(known) = ENDS.iter().find(|known| **known == name) {
        ids.insert(known, id);
    }
}

/// Refuses what would change ids and is not done here.
fn check(file: &Value) -> Result<(), String> {
    let model = &file["model"];
    let kind = model["type"].as_str().unwrap_or("BPE");
    if kind != "BPE" {
        return Err(format!("is a {kind} tokenizer; only byte-level BPE can be used"));
    }
    if !file["normalizer"].is_null() {
        return Err("normalises text before it encodes, which is not done here".to_owned());
    }
    let truthy = |value: &Value| value.as_bool() == Some(true) || value.as_f64() > Some(0.0);
    for key in ["dropout", "byte_fallback", "ignore_merges", "fuse_unk"] {
        if truthy(&model[key]) {
            return Err(format!("sets model.{key}, which is not known here"));
        }
    }
    for key in ["continuing_subword_prefix", "end_of_word_suffix"] {
        if model[key].as_str().is_some_and(|text| !text.is_empty()) {
            return Err(format!("sets model.{key}: it is not byte-level"));
        }
    }
    let before = &file["pre_tokenizer"];
    if before["type"].as_str() != Some("ByteLevel") {
        let kind = before["type"].as_str().unwrap_or("none");
        return Err(format!("cuts words by '{kind}'; only GPT-2's cut ('ByteLevel') can be used"));
    }
    if before["use_regex"].as_bool() == Some(false) {
        return Err("does not cut words (use_regex false), which is not known here".to_owned());
    }
    if before["add_prefix_space"].as_bool() == Some(true) {
        return Err("puts a space before each text (add_prefix_space), which is not done".into());
    }
    Ok(())
}

/// Pairs as `"a b"` or `["a", "b"]`, by rank.
fn merges(list: &Value, ids: &HashMap<&str, u16>) -> Result<Vec<Merge>, String> {
    let list = list.as_array().ok_or("has no model.merges")?;
    let mut merges = Vec::with_capacity(list.len());
    for entry in list {
        let parts = match (entry.as_str(), entry.as_array().map(Vec::as_slice)) {
            (Some(text), _) => text.split_once(' '),
            (_, Some([left, right])) => left.as_str().zip(right.as_str()),
            _ => None,
        };
        let (left, right) = parts.ok_or_else(|| format!("has {entry} among its merges"))?;
        let together = format!("{left}{right}");
        let id = |name: &str| {
            ids.get(name).copied().ok_or_else(|| format!("merges '{name}', which has no id"))
        };
        merges.push((id(left)?, id(right)?, id(&together)?));
    }
    Ok(merges)
}

/// The letter that stands for each byte in such files: printable bytes for themselves, the others
/// from U+0100 on.
fn byte_letters() -> HashMap<char, u8> {
    let mut others = 0x100..;
    let letter = |byte: u8| match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => Some(char::from(byte)),
        _ => others.next().and_then(char::from_u32),
    };
    let letters: Vec<Option<char>> = (0..=255).map(letter).collect();
    letters.into_iter().zip(0..=255).filter_map(|(letter, byte)| Some((letter?, byte))).collect()
}
