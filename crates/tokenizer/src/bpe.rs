//! Byte-pair encoding: turns words into ids by merging the pair of lowest rank until none is left.
//!
//! Two tables define it: the bytes of each id, and for each pair of ids the rank and result of its
//! merge. GPT-2's tables come from the vocabulary in the binary, others from a tokenizer.json. A
//! [`BpeEncoder`] adds a small cache of words, because most words of a text recur.

use crate::tokenizer::GPT2_IDS;
use crate::words::WordSplitter;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

/// Ids that 16-bit token files can hold.
pub const MOST_IDS: usize = 1 << 16;

/// Words of up to this many bytes fit into one `u128` key.
const SHORT: usize = 15;
/// Words that an encoder caches: with 48 bytes each they fit into a core's own cache.
const SLOTS: usize = 1 << 14;
/// Up to this many bytes, scanning all pairs is faster than a heap.
const FEW: usize = 96;

/// A vocabulary with its merges.
#[derive(Debug, PartialEq, Eq)]
pub struct Bpe {
    /// Bytes by id; empty if an id is unused or has no text.
    pieces: Vec<Vec<u8>>,
    /// The id of each single byte.
    bytes: [u16; 256],
    merges: HashMap<u32, (u32, u16), Fast>,
    /// Words of up to `SHORT` bytes that are a single token.
    whole: HashMap<u128, u16, Fast>,
}

/// A fast hash: the keys are numbers already, and a vocabulary needs no protection against attacks.
#[derive(Default)]
pub struct Fold(u64);

type Fast = BuildHasherDefault<Fold>;

const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }
    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }
    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(FACTOR);
        self.0 = mixed ^ (mixed >> 29);
    }
    fn write_u128(&mut self, number: u128) {
        self.write_u64(number as u64);
        self.write_u64((number >> 64) as u64);
    }
}

/// A merge: left id, right id and result. The order of merges is their rank.
pub type Merge = (u16, u16, u16);

impl Bpe {
    /// GPT-2's vocabulary. As in tiktoken, a pair merges if its joined bytes are a token, and the
    /// token's id is its rank.
    pub fn gpt2() -> Bpe {
        let core = tiktoken::encoding::gpt2();
        let pieces: Vec<Vec<u8>> = (0..GPT2_IDS).map(|id| core.decode(&[id])).collect();
        let ordinary = &pieces[..pieces.len() - 1]; // the last one is <|endoftext|>
        let ids: HashMap<&[u8], u16> =
            ordinary.iter().zip(0..).map(|(piece, id)| (piece.as_slice(), id)).collect();
        let mut merges = Vec::new();
        for (piece, id) in ordinary.iter().zip(0..) {
            for (left, right) in (1..piece.len()).map(|at| piece.split_at(at)) {
                if let (Some(&left), Some(&right)) = (ids.get(left), ids.get(right)) {
                    merges.push((left, right, id));
                }
            }
        }
        let bytes = std::array::from_fn(|byte| {
            ids.get(&[byte as u8][..]).copied().unwrap_or_default() // every byte is a token
        });
        Bpe::new(pieces, bytes, &merges, |(_, _, id)| u32::from(id))
    }

    /// A vocabulary whose merges are ranked by their order. If a pair occurs twice, its last place
    /// counts.
    pub fn ranked(pieces: Vec<Vec<u8>>, bytes: [u16; 256], merges: &[Merge]) -> Bpe {
        let last: HashMap<(u16, u16), usize> =
            merges.iter().enumerate().map(|(at, &(left, right, _))| ((left, right), at)).collect();
        let is_last = |at: &usize| last[&(merges[*at].0, merges[*at].1)] == *at;
        let merges: Vec<Merge> = (0..merges.len()).filter(is_last).map(|at| merges[at]).collect();
        let ranks: HashMap<(u16, u16), u32> =
            merges.iter().zip(0..).map(|(&(left, right, _), rank)| ((left, right), rank)).collect();
        Bpe::new(pieces, bytes, &merges, |(left, right, _)| ranks[&(left, right)])
    }

    fn new(
        pieces: Vec<Vec<u8>>,
        bytes: [u16; 256],
        merges: &[Merge],
        rank: impl Fn(Merge) -> u32,
    ) -> Bpe {
        let mut table: HashMap<u32, (u32, u16), Fast> = HashMap::default();
        for &merge in merges {
            table.insert(pair(merge.0, merge.1), (rank(merge), merge.2));
        }
        let mut bpe = Bpe { pieces, bytes, merges: table, whole: HashMap::default() };
        let mut whole: HashMap<u128, u16, Fast> = HashMap::default();
        let mut ids = Vec::new();
        // Only short tokens: a file may have a token of any length, and merging takes 27 times its
        // length.
        for (piece, id) in bpe.pieces.iter().zip(0..).filter(|(piece, _)| piece.len() <= SHORT) {
            ids.clear();
            bpe.merge(piece, &mut ids);
            // A token that its own merges do not produce never occurs.
            if ids == [id] {
                whole.insert(key(piece, 0, piece.len()), id);
            }
        }
        bpe.whole = whole;
        bpe
    }

    /// The bytes of an id; empty if it has no text.
    #[must_use]
    pub fn piece(&self, id: u16) -> &[u8] {
        self.pieces.get(usize::from(id)).map_or(&[], Vec::as_slice)
    }

    /// Number of ids, including special tokens.
    #[must_use]
    pub fn vocab_size(&self) -> u32 {
        self.pieces.len() as u32
    }

    /// One merge for each token that merges make, by rank: the pair that is left of its bytes after
    /// all merges of lower rank. These alone give the same ids.
    #[must_use]
    pub fn merges(&self) -> Vec<Merge> {
        let mut all: Vec<(u32, Merge)> = self
            .merges
            .iter()
            .map(|(&pair, &(rank, id))| (rank, ((pair >> 16) as u16, pair as u16, id)))
            .collect();
        all.sort_unstable();
        let shared = |at: usize, by: usize| {
            all.get(at.wrapping_add(by)).is_some_and(|(rank, _)| *rank == all[at].0)
        };
        let keep = |at: &usize| {
            let (rank, (left, right, id)) = all[*at];
            let alone = !shared(*at, 1) && !shared(*at, usize::MAX);
            alone || self.merge_below(self.piece(id), rank) == [left, right]
        };
        (0..all.len()).filter(keep).map(|at| all[at].1).collect()
    }

    /// The ids of one word by the merges below a rank.
    fn merge_below(&self, word: &[u8], limit: u32) -> Vec<u16> {
        let mut ids: Vec<u16> = word.iter().map(|&byte| self.bytes[usize::from(byte)]).collect();
        loop {
            let merge = |at: usize| {
                let &(rank, id) = self.merges.get(&pair(ids[at], ids[at + 1]))?;
                (rank < limit).then_some((rank, at, id))
            };
            let Some((_, at, id)) = (0..ids.len().saturating_sub(1)).filter_map(merge).min() else {
                return ids;
            };
            ids[at] = id;
            ids.remove(at + 1);
        }
    }

    /// Appends the ids of one word.
    fn merge(&self, word: &[u8], out: &mut Vec<u16>) {
        if word.len() > FEW {
            return self.merge_long(word, out);
        }
        let first = out.len();
        out.extend(word.iter().map(|&byte| self.bytes[usize::from(byte)]));
        loop {
            let mut best: Option<(u32, u16, usize)> = None;
            for at in first..out.len().saturating_sub(1) {
                if let Some(&(rank, id)) = self.merges.get(&pair(out[at], out[at + 1]))
                    && best.is_none_or(|(lowest, ..)| rank < lowest)
                {
                    best = Some((rank, id, at));
                }
            }
            let Some((_, id, at)) = best else {
                return;
            };
            out[at] = id;
            out.remove(at + 1);
        }
    }

    /// Like [`Bpe::merge`], in nearly linear time: tokens are a linked list, and a heap orders the
    /// pairs by rank, then by position.
    fn merge_long(&self, word: &[u8], out: &mut Vec<u16>) {
        const NONE: u32 = u32::MAX;
        let count = word.len() as u32;
        let mut ids: Vec<u16> = word.iter().map(|&byte| self.bytes[usize::from(byte)]).collect();
        let mut next: Vec<u32> = (1..=count).collect();
        let mut before: Vec<u32> = (0..count).map(|at| at.wrapping_sub(1)).collect();
        if let Some(last) = next.last_mut() {
            *last = NONE;
        }
        let mut heap = BinaryHeap::new();
        let offer = |ids: &[u16], left: u32, right: u32, heap: &mut BinaryHeap<_>| {
            if left == NONE || right == NONE {
                return;
            }
            let pair = pair(ids[left as usize], ids[right as usize]);
            if let Some(&(rank, id)) = self.merges.get(&pair) {
                heap.push(Reverse((rank, left, pair, id)));
            }
        };
        for left in 0..count.saturating_sub(1) {
            offer(&ids, left, left + 1, &mut heap);
        }
        let mut gone = vec![false; word.len()];
        while let Some(Reverse((_, left, seen, id))) = heap.pop() {
            let right = next[left as usize];
            let stale = gone[left as usize]
                || right == NONE
                || pair(ids[left as usize], ids[right as usize]) != seen;
            if stale {
                continue;
            }
            ids[left as usize] = id;
            gone[right as usize] = true;
            let behind = next[right as usize];
            next[left as usize] = behind;
            if behind != NONE {
                before[behind as usize] = left;
            }
            offer(&ids, left, behind, &mut heap);
            offer(&ids, before[left as usize], left, &mut heap);
        }
        out.extend(ids.iter().zip(&gone).filter(|(_, gone)| !**gone).map(|(id, _)| id));
    }
}

#[inline]
fn pair(left: u16, right: u16) -> u32 {
    u32::from(left) << 16 | u32::from(right)
}

/// A short word as a number, with its length in the highest byte.
#[inline]
fn key(text: &[u8], start: usize, end: usize) -> u128 {
    let length = end - start;
    let bytes = match text.get(start..start + 16).map(<[u8; 16]>::try_from) {
        Some(Ok(bytes)) => u128::from_le_bytes(bytes) & ((1 << (8 * length)) - 1),
        _ => {
            let mut padded = [0; 16];
            padded[..length].copy_from_slice(&text[start..end]);
            u128::from_le_bytes(padded)
        }
    };
    bytes | (length as u128) << 120
}

/// A cached word and its ids.
#[derive(Clone, Copy, Default)]
struct Remembered {
    key: u128,
    count: u8,
    ids: [u16; SHORT],
}

/// Encodes text in one thread.
pub struct BpeEncoder<'a> {
    bpe: &'a Bpe,
    memory: Vec<Remembered>,
}

impl<'a> BpeEncoder<'a> {
    /// An encoder with an empty cache.
    #[must_use]
    pub fn new(bpe: &'a Bpe) -> Self {
        Self { bpe, memory: vec![Remembered::default(); SLOTS] }
    }

    /// Appends the ids of `text`, without special tokens.
    pub fn encode(&mut self, text: &str, out: &mut Vec<u16>) {
        let bytes = text.as_bytes();
        for (start, end) in WordSplitter::new(text) {
            if end - start > SHORT {
                self.bpe.merge(&bytes[start..end], out);
                continue;
            }
            let key = key(bytes, start, end);
            let mixed = (key as u64 ^ ((key >> 64) as u64).rotate_left(32)).wrapping_mul(FACTOR);
            let slot = &mut self.memory[(mixed >> 50) as usize % SLOTS];
            if slot.key != key {
                let first = out.len();
                match self.bpe.whole.get(&key) {
                    Some(&id) => out.push(id),
                    None => self.bpe.merge(&bytes[start..end], out),
                }
                let made = &out[first..];
                slot.key = key;
                slot.count = made.len() as u8;
                slot.ids[..made.len()].copy_from_slice(made);
                continue;
            }
            match slot.count {
                1 => out.push(slot.ids[0]),
                count => out.extend_from_slice(&slot.ids[..usize::from(count)]),
            }
        }
    }
}
