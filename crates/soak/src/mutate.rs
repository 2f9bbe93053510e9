//! Damages bytes: flipped bits, cuts, splices, extreme numbers, repeated blocks, deep nesting,
//! noise. A pure function of its random stream.

use crate::draws::{between, pick};
use rng::Stream;

/// Most bytes of an input; small, because there are many cases.
pub const MOST: usize = 256 << 10;

/// Numbers that often break arithmetic.
const NUMBERS: [&str; 14] = [
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "4294967295",
    "4294967296",
    "2147483648",
    "65536",
    "-1",
    "0",
    "1e308",
    "1e999",
    "0.0000001",
];

/// The same as binary numbers.
const WORDS: [u64; 10] =
    [0, 1, 0xff, 0xffff, 1 << 16, u32::MAX as u64, 1 << 32, 1 << 62, 1 << 63, u64::MAX];

/// Opening and closing tokens to nest.
const NESTS: [(&str, &str); 6] =
    [("[", "]"), ("{\"a\":", "}"), ("(", ")"), ("\"", "\""), ("-", ""), ("<", ">")];

/// A damaged copy of one of the seeds; `words` are tokens that the format's reader looks for.
pub fn damaged(draws: &mut Stream, seeds: &[Vec<u8>], words: &[&str]) -> Vec<u8> {
    if draws.below(40) == 0 {
        return noise(draws, 400);
    }
    let mut bytes = pick(draws, seeds).clone();
    for _ in 0..between(draws, 1, 4) {
        once(draws, &mut bytes, seeds, words);
        bytes.truncate(MOST);
    }
    bytes
}

fn once(draws: &mut Stream, bytes: &mut Vec<u8>, seeds: &[Vec<u8>], words: &[&str]) {
    let length = bytes.len() as u64;
    let at = draws.below(length + 1) as usize;
    let end = (at + draws.below(64) as usize).min(bytes.len());
    match draws.below(13) {
        0..=2 => {
            for _ in 0..between(draws, 1, 8) {
                flip(draws, bytes);
            }
        }
        3 => bytes.truncate(at),
        4 => drop(bytes.drain(at..end)),
        5 => {
            let other = pick(draws, seeds);
            let from = draws.below(other.len() as u64 + 1) as usize;
            let to = (from + draws.below(512) as usize).min(other.len());
            bytes.splice(at..end, other[from..to].iter().copied());
        }
        6 => put(bytes, at..at, pick(draws, &NUMBERS).as_bytes()),
        7 => number(draws, bytes),
        8 => {
            let word = pick(draws, &WORDS).to_le_bytes();
            let size = *pick(draws, &[1, 2, 4, 8]);
            let end = (at + size).min(bytes.len());
            put(bytes, at..end, &word[..size]);
        }
        9 => {
            let block = bytes[at..end].to_vec();
            let times = between(draws, 2, 64) as usize;
            put(bytes, at..at, &block.repeat(times));
        }
        10 => {
            let (open, close) = pick(draws, &NESTS);
            let depth = 1 << draws.below(16);
            put(bytes, end..end, close.repeat(depth).as_bytes());
            put(bytes, at..at, open.repeat(depth).as_bytes());
        }
        11 if !words.is_empty() => put(bytes, at..at, pick(draws, words).as_bytes()),
        _ => {
            let noise = noise(draws, 16);
            put(bytes, at..end, &noise);
        }
    }
}

fn put(bytes: &mut Vec<u8>, range: std::ops::Range<usize>, new: &[u8]) {
    bytes.splice(range, new.iter().copied());
}

fn flip(draws: &mut Stream, bytes: &mut [u8]) {
    let bit = draws.below(8 * bytes.len() as u64) as usize;
    if let Some(byte) = bytes.get_mut(bit / 8) {
        *byte ^= 1 << (bit % 8);
    }
}

/// Replaces a run of digits by an extreme number.
fn number(draws: &mut Stream, bytes: &mut Vec<u8>) {
    let starts: Vec<usize> = (0..bytes.len())
        .filter(|&at| bytes[at].is_ascii_digit() && (at == 0 || !bytes[at - 1].is_ascii_digit()))
        .take(4096)
        .collect();
    if starts.is_empty() {
        return;
    }
    let at = *pick(draws, &starts);
    let digits = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    put(bytes, at..at + digits, pick(draws, &NUMBERS).as_bytes());
}

fn noise(draws: &mut Stream, most: u64) -> Vec<u8> {
    (0..draws.below(most)).map(|_| draws.next_u32() as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::of_case;

    #[test]
    fn damage_is_repeatable_bounded_and_of_every_length() {
        let seeds = [b"{\"a\": 12, \"b\": [1, 2]}".to_vec(), Vec::new()];
        let make = |case| damaged(&mut of_case(5, "mutate", case), &seeds, &["word"]);
        let all: Vec<Vec<u8>> = (0..3000).map(make).collect();
        assert!(all.iter().all(|bytes| bytes.len() <= MOST));
        assert_eq!(all[7], make(7));
        let different: std::collections::BTreeSet<&Vec<u8>> = all.iter().collect();
        assert!(different.len() > 2000, "{}", different.len());
        assert!(all.iter().any(|bytes| bytes.len() > 10_000) && all.iter().any(Vec::is_empty));
    }
}
