//! `meta.pkl`: Python's, ours, and every way in which one can contradict itself.

use fitgpt_data::Meta;
use pickle::Value;
use proptest::prelude::*;
use std::path::Path;
use tokenizer::CharTokenizer;

/// `{'vocab_size': 3, 'itos': {0: '\n', 1: 'a', 2: 'é'}, 'stoi': {'\n': 0, 'a': 1, 'é': 2}}`, as
/// Python 3.11 pickles it by default (protocol 4).
const PYTHON: &[u8] = b"\x80\x04\x95I\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\nvocab_size\x94K\x03\
    \x8c\x04itos\x94}\x94(K\x00\x8c\x01\n\x94K\x01\x8c\x01a\x94K\x02\x8c\x02\xc3\xa9\x94u\x8c\
    \x04stoi\x94}\x94(h\x04K\x00h\x05K\x01h\x06K\x02uu.";

fn parse(bytes: &[u8]) -> Result<Meta, String> {
    Meta::parse(bytes, Path::new("data/x/meta.pkl")).map_err(|error| error.to_string())
}

fn text(text: &str) -> Value {
    Value::Str(text.to_owned())
}

fn dict(entries: Vec<(Value, Value)>) -> Value {
    Value::Dict(entries)
}

/// A whole `meta.pkl` with these parts.
fn meta(size: Value, itos: Value, stoi: Value) -> Vec<u8> {
    let entries = [("vocab_size", size), ("itos", itos), ("stoi", stoi)];
    pickle::write(&dict(entries.map(|(key, value)| (text(key), value)).to_vec()))
}

#[test]
fn pythons_file() {
    let characters = CharTokenizer::new(vec!['\n', 'a', 'é']);
    assert_eq!(parse(PYTHON), Ok(Meta::new(3, characters)));
}

#[test]
fn ours_is_read_again() {
    let characters: Vec<char> = (0..300).filter_map(char::from_u32).collect();
    for meta in [Meta::new(300, CharTokenizer::new(characters)), Meta::new(50_304, None)] {
        assert_eq!(parse(&meta.to_pickle()), Ok(meta));
    }
}

#[test]
fn contradictions_are_named() {
    let id = Value::Int;
    let itos = |pairs: &[(i64, &str)]| dict(pairs.iter().map(|&(i, c)| (id(i), text(c))).collect());
    let stoi = |pairs: &[(&str, i64)]| dict(pairs.iter().map(|&(c, i)| (text(c), id(i))).collect());
    let good_itos = || itos(&[(0, "a"), (1, "b")]);
    let good_stoi = || stoi(&[("a", 0), ("b", 1)]);
    assert!(parse(&meta(id(2), good_itos(), good_stoi())).is_ok());
    assert!(parse(&meta(id(3), good_itos(), good_stoi())).unwrap().characters.is_some());
    for (bytes, want) in [
        (
            meta(id(1), good_itos(), good_stoi()),
            "itos has 2 entries and stoi 2, but vocab_size is 1",
        ),
        (meta(id(2), good_itos(), stoi(&[("a", 0)])), "itos has 2 entries and stoi 1"),
        (meta(id(2), Value::None, good_stoi()), "itos is a None"),
        (meta(id(2), itos(&[(0, "a"), (0, "b")]), good_stoi()), "id 0 to 'a' and 'b'"),
        (meta(id(2), itos(&[(0, "a"), (2, "b")]), good_stoi()), "has 2 instead of an id below 2"),
        (meta(id(2), itos(&[(0, "a"), (1, "bb")]), good_stoi()), "'bb' instead of one character"),
        (meta(id(2), itos(&[(0, "a"), (1, "")]), good_stoi()), "'' instead of one character"),
        (meta(id(2), good_itos(), stoi(&[("a", 1), ("b", 0)])), "stoi gives id 1 to 'a', but itos"),
        (meta(id(2), good_itos(), stoi(&[("a", 0), ("a", 0)])), "stoi gives id 0 twice"),
        (
            meta(id(2), itos(&[(0, "a"), (1, "a")]), stoi(&[("a", 0), ("a", 1)])),
            "a character twice",
        ),
    ] {
        let found = parse(&bytes).unwrap();
        assert_eq!(found.characters, None);
        let why = found.unusable.unwrap();
        assert!(why.contains(want), "{want:?} in {why:?}");
    }
}

#[test]
fn files_that_are_not_a_meta_are_refused() {
    let size = |value: Value| pickle::write(&dict(vec![(text("vocab_size"), value)]));
    let cases = [
        (size(Value::Int(0)), "vocab_size is 0"),
        (size(Value::Int(-1)), "vocab_size is -1"),
        (size(Value::Int(65_537)), "allow 1 to 65536"),
        (size(text("2")), "vocab_size is a str"),
        (pickle::write(&dict(vec![])), "no 'vocab_size'"),
        (pickle::write(&Value::List(vec![])), "it holds a list"),
        (b"\x80\x04\x8c\x08builtins\x8c\x04exec\x93.".to_vec(), "STACK_GLOBAL"),
        (PYTHON[..40].to_vec(), "the pickle is truncated"),
        (b"\x00hello".to_vec(), "not a pickle"),
    ];
    for (bytes, want) in cases {
        let message = parse(&bytes).unwrap_err();
        assert!(message.contains(want), "{want:?} in {message:?}");
        assert!(message.starts_with("data/x/meta.pkl: "), "{message}");
        assert!(message.contains("; ") && !message.contains('\n'), "{message}");
    }
}

proptest! {
    #[test]
    fn damaged_files_never_panic(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        length in any::<prop::sample::Index>(),
    ) {
        let mut bytes = PYTHON.to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes.truncate(length.index(PYTHON.len() + 1));
        let _ = parse(&bytes);
    }
}
