//! Our byte pairs compared with another implementation, and tokenizer.json.

use crate::fixture::{TempDir, documents, expected, fails, jsonl, run, twentieth};
use fitgpt_prepare::{Bpe, BpeEncoder, TokenizerChoice};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::OnceLock;

fn ours(text: &str) -> Vec<u32> {
    static BPE: OnceLock<Bpe> = OnceLock::new();
    let mut ids = Vec::new();
    BpeEncoder::new(BPE.get_or_init(Bpe::gpt2)).encode(text, &mut ids);
    ids.into_iter().map(u32::from).collect()
}

fn theirs(text: &str) -> Vec<u32> {
    static BPE: OnceLock<tiktoken::CoreBpe> = OnceLock::new();
    BPE.get_or_init(tiktoken::encoding::gpt2).encode(text)
}

/// Every token encodes to itself, and every character has the same class in both.
#[test]
fn tokens_and_characters() {
    let bpe = Bpe::gpt2();
    for id in 0..=u16::MAX {
        if let Ok(text) = std::str::from_utf8(bpe.piece(id)) {
            assert_eq!(ours(text), theirs(text), "{text:?}");
        }
    }
    for block in (0..=char::MAX as u32).step_by(64) {
        let characters: Vec<char> = (block..block + 64).filter_map(char::from_u32).collect();
        let text: String =
            characters.iter().flat_map(|c| [' ', *c, 'a', *c, '1', *c, '!']).collect();
        assert_eq!(ours(&text), theirs(&text), "U+{block:04X}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn any_text(text in "\\PC{0,80}") {
        prop_assert_eq!(ours(&text), theirs(&text));
    }

    #[test]
    fn soup(parts in prop::collection::vec(
        prop::sample::select(vec![" ", "  ", "\n", "\t", "a", "ab", "'s", "'ll", "'", "1", "é", "！",
            "\u{3000}", "\u{85}", "aaaaaaaaaa", "-------", "ſ", "Ⅷ", "中", "\r\n"]), 0..200)
    ) {
        let text = parts.concat();
        prop_assert_eq!(ours(&text), theirs(&text));
    }
}

/// GPT-2's vocabulary as Hugging Face writes it.
fn gpt2_json() -> Value {
    let bpe = Bpe::gpt2();
    let mut others = 0x100..;
    let letters: Vec<char> = (0..=255_u8)
        .map(|byte| match byte {
            b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
            _ => char::from_u32(others.next().unwrap()).unwrap(),
        })
        .collect();
    let name = |bytes: &[u8]| bytes.iter().map(|b| letters[usize::from(*b)]).collect::<String>();
    let mut vocab = serde_json::Map::new();
    let mut merges = Vec::new();
    for id in 0..50256_u16 {
        let piece = bpe.piece(id);
        vocab.insert(name(piece), json!(id));
        if piece.len() > 1 {
            // The merge that makes a token: its bytes after all earlier merges.
            let parts = parts_before(piece, id);
            merges.push(json!([name(&parts.0), name(&parts.1)]));
        }
    }
    vocab.insert("<|endoftext|>".to_owned(), json!(50256));
    json!({
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
        "added_tokens": [{"id": 50256, "content": "<|endoftext|>", "special": true}],
        "normalizer": null,
    })
}

/// The two tokens whose merge gives `piece`.
fn parts_before(piece: &[u8], id: u16) -> (Vec<u8>, Vec<u8>) {
    static IDS: OnceLock<std::collections::HashMap<Vec<u8>, u16>> = OnceLock::new();
    let ids = IDS.get_or_init(|| {
        let bpe = Bpe::gpt2();
        (0..50256).map(|id| (bpe.piece(id).to_vec(), id)).collect()
    });
    let mut parts: Vec<Vec<u8>> = piece.iter().map(|byte| vec![*byte]).collect();
    while parts.len() > 2 {
        let rank = |at: usize| ids.get(&parts[at..at + 2].concat()).filter(|rank| **rank < id);
        let best = (0..parts.len() - 1).filter_map(|at| Some((*rank(at)?, at))).min().unwrap().1;
        let right = parts.remove(best + 1);
        parts[best].extend(right);
    }
    (parts[0].clone(), parts[1].clone())
}

#[test]
fn a_tokenizer_json_is_followed() {
    let dir = TempDir::new("json");
    let documents = documents(100);
    let source = dir.write("a.jsonl", &jsonl(&documents));
    let mut file = gpt2_json();
    let path = dir.write("tokenizer.json", file.to_string().as_bytes());
    let mut request = twentieth(dir.request(&source, "out"));
    request.tokenizer = Some(TokenizerChoice::Json(path.clone().into()));
    run(request.clone()).unwrap();
    assert!(dir.ids("out/train.bin") == expected(&documents).0);
    let meta = data::Meta::read(&dir.path("out/meta.pkl")).unwrap();
    assert_eq!(meta.vocab_size, 50257);
    assert_eq!(dir.read("out/tokenizer.json"), dir.read("tokenizer.json"));

    file["model"]["vocab"]["too far"] = json!(65536);
    let mut unigram = gpt2_json();
    unigram["model"]["type"] = json!("Unigram");
    let mut lower = gpt2_json();
    lower["normalizer"] = json!({"type": "Lowercase"});
    let mut digits = gpt2_json();
    digits["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": []});
    for (file, words) in [
        (file, "token 'too far' has id 65536"),
        (unigram, "is a Unigram tokenizer"),
        (lower, "normalises text"),
        (digits, "splits words with 'Sequence'"),
        (json!([]), "is not a tokenizer.json"),
    ] {
        std::fs::write(&path, file.to_string()).unwrap();
        request.out = dir.path("refused");
        let _ = std::fs::remove_dir_all(&request.out);
        let words =
            if words == "is not a tokenizer.json" { "splits words with 'none'" } else { words };
        fails(request.clone(), &[words]);
    }
}
