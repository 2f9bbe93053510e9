//! Added tokens in texts. The expected ids are those of Python's `tokenizers` 0.23 with the same
//! file; `tests/peers/unicode_text.py` compares longer texts.

use crate::json::small;
use fitgpt_tokenizer::Tokenizer;
use serde_json::{Value, json};

fn token(id: u16, content: &str, special: bool) -> Value {
    json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
           "normalized": !special, "special": special})
}

fn with(tokens: Vec<Value>) -> Result<Tokenizer, String> {
    let mut file = small();
    let added = file["added_tokens"].as_array_mut().unwrap();
    added.extend(tokens);
    Tokenizer::from_json(file.to_string().as_bytes())
}

fn ids(tokenizer: &Tokenizer, text: &str) -> Vec<i32> {
    tokenizer.encode(text).unwrap()
}

#[test]
fn the_longest_token_at_the_first_place_wins() {
    let tokenizer =
        with(vec![token(300, "<a>", true), token(301, "<a><b>", true), token(302, "b><", false)])
            .unwrap();
    let lower = i32::from(b'a' - b'!'); // byte letters have the ids of their order
    assert_eq!(ids(&tokenizer, "<a><b>"), [301]);
    assert_eq!(ids(&tokenizer, "<a><a"), [300, i32::from(b'<' - b'!'), lower]);
    assert_eq!(ids(&tokenizer, "a<a><c"), [lower, 300, i32::from(b'<' - b'!'), lower + 2]);
    // Raw tokens are looked for first, whatever begins earlier.
    assert_eq!(ids(&tokenizer, "b><a>"), [lower + 1, i32::from(b'>' - b'!'), 300]);
    assert_eq!(tokenizer.decode(&[300, lower, 301]), "<a>a<a><b>");
}

#[test]
fn special_tokens_in_ordinary_text_are_text_and_others_are_tokens() {
    let tokenizer = with(vec![token(300, "<a>", true), token(301, "   ", false)]).unwrap();
    let mut out = Vec::new();
    tokenizer.encoder().encode("<a>   ", &mut out).unwrap();
    let plain = |byte: u8| u16::from(byte - b'!');
    assert_eq!(out, [plain(b'<'), plain(b'a'), plain(b'>'), 301]);
    assert_eq!(ids(&tokenizer, "<a>   "), [300, 301]);
    assert_eq!(tokenizer.text_bytes(300), Some(0));
    assert_eq!(tokenizer.text_bytes(301), Some(3));
    assert_eq!((tokenizer.text_bytes(299), tokenizer.text_bytes(-1)), (None, None));
}

#[test]
fn white_space_around_a_token_is_taken_if_it_says_so() {
    let mut left = token(300, "<m>", true);
    left["lstrip"] = json!(true);
    let mut right = token(301, "<n>", true);
    right["rstrip"] = json!(true);
    let tokenizer = with(vec![left, right]).unwrap();
    let a = i32::from(b'a' - b'!');
    assert_eq!(ids(&tokenizer, "a \n<m>a"), [a, 300, a]);
    assert_eq!(ids(&tokenizer, "<n> \u{3000}<m>a"), [301, 300, a]);
    assert_eq!(ids(&tokenizer, " <m> "), [300, tokenizer.encode(" ").unwrap()[0]]);
}

#[test]
fn what_is_not_implemented_is_refused_by_name() {
    let mut word = token(300, "word", true);
    word["single_word"] = json!(true);
    let mut strips = token(300, "<n>", false);
    strips["rstrip"] = json!(true);
    for (token, want) in [
        (word, "'word' that must be a single word"),
        (strips, "'<n>' that is not special and takes white space"),
        (token(300, "a b", false), "'a b' that is not special and takes white space"),
        (token(300, &"long".repeat(50), true), "of more than 190 bytes"),
        (token(5, "<x>", true), "gives id 5 to '&' and '<x>'"),
        (token(300, "a", true), "gives token 'a' the ids 64 and 300"),
    ] {
        let error = with(vec![token]).unwrap_err();
        assert!(error.contains(want), "{error}");
    }
}
