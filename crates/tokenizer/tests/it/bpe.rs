//! Our byte pairs compared with another implementation.

use fitgpt_tokenizer::Tokenizer;
use proptest::prelude::*;
use std::sync::OnceLock;

fn ours(text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    Tokenizer::Gpt2.encoder().encode(text, &mut ids).unwrap();
    ids.into_iter().map(u32::from).collect()
}

fn theirs(text: &str) -> Vec<u32> {
    static BPE: OnceLock<tiktoken::CoreBpe> = OnceLock::new();
    BPE.get_or_init(tiktoken::encoding::gpt2).encode(text)
}

/// Every token encodes to itself, and every character has the same class in both.
#[test]
fn tokens_and_characters() {
    let gpt2 = Tokenizer::Gpt2;
    let pairs = gpt2.byte_pairs().unwrap();
    for id in 0..=u16::MAX {
        if let Ok(text) = std::str::from_utf8(pairs.piece(id)) {
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

/// The merges that a tokenizer.json lists: one for each token but bytes and the special one. The
/// first ones are those of OpenAI's merges.txt.
#[test]
fn gpt2_has_one_merge_for_each_token() {
    let gpt2 = Tokenizer::Gpt2;
    let pairs = gpt2.byte_pairs().unwrap();
    let merges = pairs.merges();
    assert_eq!(merges.len(), 50_000);
    let names = |&(left, right, _)| format!("{} {}", pairs.name(left), pairs.name(right));
    let first: Vec<String> = merges[..6].iter().map(names).collect();
    assert_eq!(first, ["Ġ t", "Ġ a", "h e", "i n", "r e", "o n"]);
    assert!((256..).zip(&merges).all(|(id, merge)| merge.2 == id));
}
