//! Whatever happens to the bytes of a file, the reader refuses it or returns what was saved, and
//! never panics. `PROPTEST_CASES=100000 cargo test -p fitgpt-checkpoint damage` searches longer.

use crate::fixture::{Saved, TempDir, raw_file, sample, sample_bytes};
use proptest::prelude::*;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

fn good() -> &'static [u8] {
    static GOOD: OnceLock<Vec<u8>> = OnceLock::new();
    GOOD.get_or_init(|| sample_bytes(&TempDir::new("damage-sample")))
}

/// Reads a file with these bytes; returns whether it was refused.
fn is_refused(dir: &TempDir, bytes: &[u8]) -> bool {
    let path = dir.file("given");
    // ext4 syncs a file that was truncated and rewritten, which is slow, so do not truncate it.
    let file = File::options().create(true).truncate(false).write(true).open(&path).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    match Saved::load(&path) {
        Ok(saved) => {
            assert!(saved == sample().by_name(), "a damaged file was accepted");
            false
        }
        Err(error) => {
            let message = error.to_string();
            assert!(!message.contains('\n') && message.len() < 2000, "{message}");
            true
        }
    }
}

#[test]
fn every_single_flipped_bit_is_refused() {
    let dir = TempDir::new("flips");
    let mut bytes = good().to_vec();
    for bit in 0..8 * bytes.len() {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(is_refused(&dir, &bytes), "bit {bit} of {}", 8 * bytes.len());
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(!is_refused(&dir, &bytes));
}

#[test]
fn every_shorter_file_is_refused() {
    let dir = TempDir::new("shorter");
    for length in 0..good().len() {
        assert!(is_refused(&dir, &good()[..length]), "{length} bytes");
    }
}

/// One thing that can happen to a file.
#[derive(Clone, Debug)]
enum Damage {
    Byte(usize, u8),
    Cut(usize),
    Extend(Vec<u8>),
    /// Removes some bytes.
    Hole(usize, usize),
    /// Writes bytes from one place over those at another.
    Move(usize, usize, usize),
    /// Writes another length of the header.
    HeaderLength(u64),
}

fn damage() -> impl Strategy<Value = Damage> {
    let place = || 0..good().len();
    prop_oneof![
        8 => (place(), any::<u8>()).prop_map(|(at, byte)| Damage::Byte(at, byte)),
        1 => place().prop_map(Damage::Cut),
        1 => proptest::collection::vec(any::<u8>(), 1..20).prop_map(Damage::Extend),
        1 => (place(), 1..40usize).prop_map(|(at, length)| Damage::Hole(at, length)),
        2 => (place(), place(), 1..40usize).prop_map(|(from, to, n)| Damage::Move(from, to, n)),
        1 => prop_oneof![0..5000u64, any::<u64>()].prop_map(Damage::HeaderLength),
    ]
}

fn apply(damage: &Damage, bytes: &mut Vec<u8>) {
    let length = bytes.len();
    match damage {
        Damage::Byte(at, byte) => {
            if let Some(place) = bytes.get_mut(*at) {
                *place = *byte;
            }
        }
        Damage::Cut(length) => bytes.truncate(*length),
        Damage::Extend(more) => bytes.extend(more),
        Damage::Hole(at, n) => drop(bytes.drain((*at).min(length)..(at + n).min(length))),
        Damage::Move(from, to, n) => {
            let n = (*n).min(length.saturating_sub(*from.max(to)));
            if n > 0 {
                bytes.copy_within(*from..from + n, *to);
            }
        }
        Damage::HeaderLength(value) => {
            bytes.iter_mut().zip(value.to_le_bytes()).for_each(|(place, byte)| *place = byte);
        }
    }
}

/// JSON that is almost a header: the right words in the wrong places.
fn header() -> impl Strategy<Value = String> {
    let number = || {
        prop_oneof![
            4 => (0..40u64).prop_map(|n| n.to_string()),
            1 => Just(u64::MAX.to_string()),
            1 => Just((1u64 << 63).to_string()),
            1 => Just((1u64 << 32).to_string()),
            1 => Just("-1".to_owned()),
            1 => Just("1e3".to_owned()),
            1 => Just("18446744073709551616".to_owned()),
            1 => Just("null".to_owned()),
        ]
    };
    let list = move || proptest::collection::vec(number(), 0..4).prop_map(|n| n.join(","));
    let dtype = || proptest::sample::select(vec!["F32", "U8", "BF16", "I64", "F64", ""]);
    let name = || proptest::sample::select(vec!["a", "b", "c", "__metadata__", ""]);
    let tensor = (name(), dtype(), list(), number(), number()).prop_map(|(n, d, s, from, to)| {
        format!(r#""{n}":{{"dtype":"{d}","shape":[{s}],"data_offsets":[{from},{to}]}}"#)
    });
    let key = proptest::sample::select(vec!["run", "xxh64/a", "xxh64/b", "header.xxh64", "x"]);
    let value = proptest::sample::select(vec!["", "0000000000000000", "+0", "{}", "é"]);
    let pair = (key, value).prop_map(|(key, value)| format!(r#","{key}":"{value}""#));
    let pairs = proptest::collection::vec(pair, 0..8).prop_map(|pairs| pairs.concat());
    let tensors = proptest::collection::vec(tensor, 0..4)
        .prop_map(|list| list.iter().map(|tensor| format!(",{tensor}")).collect::<String>());
    (pairs, tensors).prop_map(|(pairs, tensors)| {
        format!(r#"{{"__metadata__":{{"schema":"fitgpt.checkpoint/1"{pairs}}}{tensors}}}"#)
    })
}

fn cases(cases: u32) -> ProptestConfig {
    let wanted = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    let cases = wanted.unwrap_or(cases);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn damaged_files_are_refused(damages in proptest::collection::vec(damage(), 1..4)) {
        let dir = TempDir::new("random-damage");
        let mut bytes = good().to_vec();
        damages.iter().for_each(|damage| apply(damage, &mut bytes));
        is_refused(&dir, &bytes);
    }

    #[test]
    fn nearly_headers_are_refused(json in header(), data in 0..64usize) {
        let dir = TempDir::new("random-header");
        prop_assert!(is_refused(&dir, &raw_file(&json, &vec![0; data])));
    }

    #[test]
    fn any_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let dir = TempDir::new("random-bytes");
        prop_assert!(is_refused(&dir, &bytes));
        let length = (bytes.len() as u64).to_le_bytes();
        prop_assert!(is_refused(&dir, &[&length, &bytes[..]].concat()));
    }
}
