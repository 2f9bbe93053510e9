//! Hostile and damaged inputs: always an error, never a panic, never much memory.

use fitgpt_pickle::{Limits, PickleError, parse, parse_within};
use proptest::prelude::*;

/// Bytes that are mostly instructions, so that random programs run for a while.
fn program() -> impl Strategy<Value = Vec<u8>> {
    let known = b".(012NIJKMLFGSTUVXBC]lae)t}dsupqrgjh\x80\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\
        \x8e\x8f\x90\x91\x94\x95\x96";
    let byte = prop_oneof![
        6 => prop::sample::select(known.to_vec()),
        1 => any::<u8>(),
        2 => prop::sample::select(vec![0_u8, 1, 2, b'\n', b'1']),
    ];
    prop::collection::vec(byte, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn random_programs_never_panic(bytes in program()) {
        let _ = parse(&bytes);
    }

    #[test]
    fn damaged_files_never_panic(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        for file in [include_bytes!("fixtures/plain0.pkl").as_slice(),
                     include_bytes!("fixtures/plain4.pkl")] {
            let mut bytes = file.to_vec();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = parse(&bytes);
        }
    }
}

#[test]
fn every_truncation_is_an_error() {
    for file in [
        include_bytes!("fixtures/plain0.pkl").as_slice(),
        include_bytes!("fixtures/plain2.pkl"),
        include_bytes!("fixtures/plain5.pkl"),
    ] {
        for length in 0..file.len() {
            let error = parse(&file[..length]).unwrap_err();
            assert!(matches!(error, PickleError::Truncated { .. }), "{length}: {error}");
        }
    }
}

/// "A billion laughs": each list holds the previous one twice.
#[test]
fn shared_parts_cannot_multiply_without_end() {
    let mut bytes = b"]q\x00".to_vec();
    for level in 1..60 {
        bytes.extend([b']', b'q', level, b'h', level - 1, b'a', b'h', level - 1, b'a']);
    }
    bytes.push(b'.');
    let error = parse(&bytes).unwrap_err();
    assert!(matches!(error, PickleError::Limit { what: "values", .. }), "{error}");
}

#[test]
fn shared_text_cannot_multiply_without_end() {
    let mut bytes = b"X\x00\x00\x10\x00".to_vec();
    bytes.resize(bytes.len() + (1 << 20), b'x');
    bytes.extend(b"q\x000](");
    bytes.extend(b"h\x00".repeat(100));
    bytes.extend(b"e.");
    let error = parse(&bytes).unwrap_err();
    assert!(matches!(error, PickleError::Limit { what: "bytes of text", .. }), "{error}");
}

#[test]
fn depth_is_bounded_and_cycles_end() {
    let nested = [b"(".repeat(100), b"t".repeat(100), b".".to_vec()].concat();
    let own_part = b"]q\x00h\x00a.".to_vec();
    for bytes in [nested, own_part] {
        let error = parse(&bytes).unwrap_err();
        assert!(matches!(error, PickleError::Limit { limit: 64, .. }), "{error}");
    }
    let allowed = [b"(".repeat(60), b"t".repeat(60), b".".to_vec()].concat();
    assert!(parse(&allowed).is_ok());
}

#[test]
fn limits_bound_the_work_before_the_end() {
    let limits = Limits { input_bytes: 1000, values: 10, ..Limits::default() };
    let cases: [(Vec<u8>, &str); 4] = [
        (b"N".repeat(1001), "bytes of input"),
        (b"N".repeat(100), "intermediate values"),
        (b"(".repeat(100), "intermediate values"),
        ((0..50).flat_map(|n| [b'N', b'q', n, b'0']).collect(), "memo entries"),
    ];
    for (bytes, want) in cases {
        match parse_within(&bytes, &limits).unwrap_err() {
            PickleError::Limit { what, .. } => assert_eq!(what, want),
            other => panic!("{want}: {other}"),
        }
    }
    // A length beyond the end of the input allocates nothing.
    let huge = b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7f.";
    assert!(matches!(parse(huge), Err(PickleError::Truncated { offset: 0, length: 10 })));
}

#[test]
fn nonsense_is_named_with_its_place() {
    let cases: [(&[u8], &str); 12] = [
        (b"", "the file ends at byte 0"),
        (b".", "the stack is empty"),
        (b"\x80\x06N.", "unknown pickle protocol 6"),
        (b"N\xfe", "byte 1 is 0xfe"),
        (b"PK\x03\x04", "the pickle uses PERSID"),
        (b"h\x00.", "BINGET at byte 0: a memo entry that was never stored"),
        (b"}(K\x01u.", "SETITEMS at byte 4: a key without a value"),
        (b"NNa.", "APPEND at byte 2: its target has the wrong type"),
        (b"e.", "APPENDS at byte 0: no MARK is open"),
        (b"(N0a.", "the stack is empty"),
        (b"Iabc\n.", "INT at byte 0: not a number"),
        (b"X\x01\x00\x00\x00\xff.", "BINUNICODE at byte 0: not UTF-8"),
    ];
    for (bytes, want) in cases {
        let message = parse(bytes).unwrap_err().to_string();
        assert!(message.contains(want), "{want:?} in {message:?}");
        assert!(!message.contains('\n') && message.contains("; "), "{message}");
    }
}
