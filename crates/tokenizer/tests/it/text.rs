//! Characters and byte pairs, whole texts and streams.

use fitgpt_tokenizer::{CharTokenizer, Tokenizer};
use proptest::prelude::*;

fn letters() -> Tokenizer {
    Tokenizer::Char(CharTokenizer::new("\n abcdeé".chars().collect()).unwrap())
}

#[test]
fn characters() {
    let tokenizer = letters();
    let ids = tokenizer.encode("bad é\n").unwrap();
    assert_eq!(ids, [3, 2, 5, 1, 7, 0]);
    assert_eq!(tokenizer.decode(&ids), "bad é\n");
    assert_eq!(tokenizer.decode(&[2, 8, -1, 3]), "a\u{fffd}\u{fffd}b");
    assert_eq!(tokenizer.vocab_size(), 8);
    assert!(CharTokenizer::new(vec!['a', 'b', 'a']).is_none());
    let many = (0..).filter_map(char::from_u32).take(65_537).collect();
    assert!(CharTokenizer::new(many).is_none());
}

#[test]
fn an_unseen_character_is_named_with_its_place() {
    let error = letters().encode("abé?").unwrap_err();
    assert_eq!((error.character, error.position), ('?', 3));
    let message = error.to_string();
    assert!(message.contains("'?' (U+003F) at position 3 is not one of the 8"), "{message}");
    let message = letters().encode("\t").unwrap_err().to_string();
    assert!(message.contains(r"'\t' (U+0009) at position 0"), "{message}");
}

/// Ids from Python's tiktoken 0.14.0, `get_encoding("gpt2").encode(text, allowed_special=…)`.
#[test]
fn gpt2_ids() {
    let cases: [(&str, &[i32]); 5] = [
        ("Hello world", &[15496, 995]),
        ("<|endoftext|>", &[50256]),
        ("a<|endoftext|>b", &[64, 50256, 65]),
        ("\n", &[198]),
        ("", &[]),
    ];
    for (text, ids) in cases {
        assert_eq!(Tokenizer::Gpt2.encode(text).unwrap(), ids, "{text:?}");
        assert_eq!(Tokenizer::Gpt2.decode(ids), text);
    }
    assert_eq!(Tokenizer::Gpt2.vocab_size(), 50_257);
}

/// Byte pairs can end inside a character; the decoder returns nothing before it is complete.
#[test]
fn streams_hold_back_half_characters() {
    let text = "naïve 中文 😀!";
    let ids = Tokenizer::Gpt2.encode(text).unwrap();
    let mut decoder = Tokenizer::Gpt2.decoder();
    let parts: Vec<String> = ids.iter().map(|&id| decoder.push(id)).collect();
    assert!(parts.iter().all(|part| !part.contains('\u{fffd}')), "{parts:?}");
    assert!(parts.iter().any(String::is_empty), "no token ended inside a character: {parts:?}");
    assert_eq!(parts.concat() + &decoder.finish(), text);
}

#[test]
fn invalid_utf8_becomes_replacement_characters() {
    let tokenizer = Tokenizer::Gpt2;
    let face = tokenizer.encode("😀").unwrap();
    assert!(face.len() > 1);
    // A character that is never completed: at the end, before text, before a padding row.
    assert_eq!(tokenizer.decode(&face[..1]), "\u{fffd}");
    let broken = [face[0], 64];
    assert_eq!(tokenizer.decode(&broken), "\u{fffd}a");
    assert_eq!(tokenizer.decode(&[face[0], 50_257, 64]), "\u{fffd}\u{fffd}a");
    assert_eq!(tokenizer.decode(&[50_303, -7, i32::MAX]), "\u{fffd}".repeat(3));
}

proptest! {
    #[test]
    fn any_text_comes_back(text in any::<String>()) {
        // Text that spells out the special token survives too, because its id decodes to it.
        let ids = Tokenizer::Gpt2.encode(&text).unwrap();
        prop_assert_eq!(Tokenizer::Gpt2.decode(&ids), text);
    }

    #[test]
    fn any_ids_stream_as_they_decode(ids in prop::collection::vec(-5..50_400_i32, 0..60)) {
        let tokenizer = Tokenizer::Gpt2;
        let mut decoder = tokenizer.decoder();
        let mut parts: String = ids.iter().map(|&id| decoder.push(id)).collect();
        parts.push_str(&decoder.finish());
        prop_assert_eq!(parts, tokenizer.decode(&ids));
    }
}
