//! Files that Python 3.11 wrote (`fixtures/make.py`), read as the same values in all protocols.

use fitgpt_pickle::{PickleError, Value, parse, write};

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!("fixtures/", $name, ".pkl")).as_slice()
    };
}

fn ints(numbers: impl IntoIterator<Item = i64>) -> Vec<Value> {
    numbers.into_iter().map(Value::Int).collect()
}

fn text(text: &str) -> Value {
    Value::Str(text.to_owned())
}

/// The list `plain` of `make.py`.
fn plain() -> Value {
    let mut parts = vec![Value::None, Value::Bool(true), Value::Bool(false)];
    parts.extend(ints([0, 1, 255, 256, 65535, 65536, -1, 2147483647, -2147483648, 1 << 40]));
    parts.extend(ints([i64::MIN, i64::MAX]));
    parts.extend([0.0, 1.5, -2.25e-300, f64::INFINITY].map(Value::Float));
    let texts = ["", "text", "line\nfeed \\ and 'quotes'", "é中😀", &"x".repeat(300)];
    parts.extend(texts.map(text));
    parts.extend((0..5).map(|n| Value::Tuple(ints(1..=n))));
    parts.extend([vec![], ints([7]), ints(0..5)].map(Value::List));
    parts.push(Value::Dict(vec![]));
    parts.push(Value::Dict(vec![(text("a"), Value::Int(1)), (Value::Int(2), text("b"))]));
    let deep = Value::Dict(vec![(text("deep"), Value::Tuple(vec![Value::None]))]);
    parts.push(Value::Dict(vec![(text("k"), Value::List(vec![deep]))]));
    let shared = Value::List(vec![text("shared")]);
    parts.extend([shared.clone(), shared]);
    Value::List(parts)
}

#[test]
fn plain_values_of_every_protocol() {
    let files = [
        fixture!("plain0"),
        fixture!("plain1"),
        fixture!("plain2"),
        fixture!("plain3"),
        fixture!("plain4"),
        fixture!("plain5"),
    ];
    for (protocol, bytes) in files.into_iter().enumerate() {
        assert_eq!(parse(bytes).unwrap(), plain(), "protocol {protocol}");
    }
}

#[test]
fn a_vocabulary_of_every_protocol() {
    let files = [
        fixture!("meta0"),
        fixture!("meta1"),
        fixture!("meta2"),
        fixture!("meta3"),
        fixture!("meta4"),
        fixture!("meta5"),
    ];
    for (protocol, bytes) in files.into_iter().enumerate() {
        let meta = parse(bytes).unwrap();
        assert_eq!(meta.get("vocab_size").and_then(Value::as_int), Some(7), "{protocol}");
        let stoi = meta.get("stoi").unwrap();
        for (id, character) in ["\n", " ", "!", "a", "b", "c", "é"].into_iter().enumerate() {
            assert_eq!(stoi.get(character).and_then(Value::as_int), Some(id as i64));
        }
        let itos = meta.get("itos").and_then(Value::as_dict).unwrap();
        assert_eq!(itos[6], (Value::Int(6), text("é")));
    }
}

#[test]
fn what_later_protocols_add() {
    let mut power = vec![0; 251];
    power[250] = 1; // 2^2000
    let above = [0, 0, 0, 0, 0, 0, 0, 0x80, 0].to_vec();
    let below = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0xff].to_vec();
    let big = Value::List([above, below, power].map(Value::BigInt).to_vec());
    for bytes in [fixture!("big2"), fixture!("big3"), fixture!("big4"), fixture!("big5")] {
        assert_eq!(parse(bytes).unwrap(), big);
    }
    let strings = [vec![], vec![0, 0xff], b"y".repeat(300)].map(Value::Bytes);
    for bytes in [fixture!("bytes3"), fixture!("bytes4"), fixture!("bytes5")] {
        assert_eq!(parse(bytes).unwrap(), Value::List(strings.to_vec()));
    }
    let sets = Value::List(vec![Value::Set(ints([1])), Value::FrozenSet(ints([2]))]);
    for bytes in [fixture!("sets4"), fixture!("sets5")] {
        assert_eq!(parse(bytes).unwrap(), sets);
    }
    assert_eq!(parse(fixture!("bytearray5")).unwrap(), Value::Bytes(b"abc".to_vec()));
}

#[test]
fn what_would_run_code_is_refused_by_name() {
    let cases = [
        (fixture!("callable0"), "GLOBAL", "__builtin__.print"),
        (fixture!("callable4"), "STACK_GLOBAL", "builtins.print"),
        (fixture!("object2"), "GLOBAL", "pickle.PicklingError"),
        (fixture!("set2"), "GLOBAL", "__builtin__.set"),
    ];
    for (bytes, want_opcode, want_subject) in cases {
        let error = parse(bytes).unwrap_err();
        let PickleError::Refused { opcode, subject, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!((*opcode, subject.as_str()), (want_opcode, want_subject));
        assert!(error.to_string().contains("nothing of it is executed"), "{error}");
    }
}

/// Python 3.11 reads these bytes as [None, True, 255, -1, 2**40, 1.5, 'é', b'\xff', (1,), {2},
/// frozenset({3}), {'a': []}].
#[test]
fn written_bytes_are_pinned() {
    let value = Value::List(vec![
        Value::None,
        Value::Bool(true),
        Value::Int(255),
        Value::Int(-1),
        Value::Int(1 << 40),
        Value::Float(1.5),
        text("é"),
        Value::Bytes(vec![0xff]),
        Value::Tuple(ints([1])),
        Value::Set(ints([2])),
        Value::FrozenSet(ints([3])),
        Value::Dict(vec![(text("a"), Value::List(vec![]))]),
    ]);
    let mut want = b"\x80\x04](N\x88K\xffJ\xff\xff\xff\xff".to_vec();
    want.extend(b"\x8a\x08\0\0\0\0\0\x01\0\0G\x3f\xf8\0\0\0\0\0\0\x8c\x02\xc3\xa9C\x01\xff");
    want.extend(b"(K\x01t\x8f(K\x02\x90(K\x03\x91}(\x8c\x01a](eue.");
    assert_eq!(write(&value), want);
}
