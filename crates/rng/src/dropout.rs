//! Which elements dropout keeps. Every backend must mirror this definition.
//!
//! The mask is never stored. An element's draw depends on seed, iteration, layer, site, row and
//! column, and not on tile, thread, micro-batch or rank. So the forward pass, its recomputation,
//! the backward pass and any split of the batch see the same mask. [`MaskKey`] has the exact
//! layout.

use crate::philox::philox4x32_rounds;
use crate::stream::{Purpose, Stream};

/// Bits below the layer in a tag; room for eight sites.
const SITE_BITS: u32 = 3;

/// Where GPT-2 applies dropout. The numbers are part of every mask: never renumber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Site {
    /// The sum of token and position embeddings. Its layer is 0.
    Embedding = 0,
    /// The attention weights, after softmax.
    Attention = 1,
    /// The output of the attention projection.
    AttentionProjection = 2,
    /// The output of the second MLP matrix.
    MlpProjection = 3,
}

/// Draws of one call of the generator.
pub const DRAWS: usize = 8;

/// The mask of one site in one iteration.
///
/// A draw has 16 bits; one call of Philox4x32-7 gives eight. Draw i is the lower half of word i / 2
/// if i is even, else the upper half. The draw of element (row, column) is draw `column % 8` at
///
/// ```text
/// key     = words 0 and 1 of Philox4x32-10 at
///             key     = [seed low, seed high]
///             counter = [0, iteration low, iteration high, 5 << 24]
///           (the head of `Stream::new(seed, Purpose::Dropout, iteration)`)
/// counter = [row low, row high, column / 8, layer << 3 | site]
/// ```
///
/// and the element is kept when its draw is at least [`threshold`] of the drop probability.
///
/// The row counts over the whole iteration: all ranks and all micro-batches. With B sequences of T
/// positions, the row of position t of global sequence b is `b * T + t`, and the column is the
/// channel.
///
/// At [`Site::Attention`] the elements of a call are those that one lane of a tensor core has in 16
/// queries x 16 keys. With head `b * heads + head`, the draw of (query, key) is draw
/// `key % 2 * 4 + key / 8 % 2 * 2 + query / 8 % 2` at
///
/// ```text
/// counter = [head low, query / 16 * 8 + query % 8, key / 16 * 4 + key % 8 / 2, layer << 3 | site]
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MaskKey {
    key: [u32; 2],
    tag: u32,
}

impl MaskKey {
    /// The key of a site; costs one Philox call. Layers must be below 2^29 to get distinct keys.
    #[must_use]
    pub const fn new(seed: u64, iteration: u64, layer: u32, site: Site) -> Self {
        let [key_0, key_1, ..] = Stream::new(seed, Purpose::Dropout, iteration).block(0);
        Self { key: [key_0, key_1], tag: layer << SITE_BITS | site as u32 }
    }

    /// The two key words, the same for all sites of an iteration.
    #[must_use]
    pub const fn key(self) -> [u32; 2] {
        self.key
    }

    /// The last counter word, the same in all iterations.
    #[must_use]
    pub const fn tag(self) -> u32 {
        self.tag
    }

    /// The draws of columns `8 * column_group ..` of a row.
    #[inline(always)]
    #[must_use]
    pub const fn draws(self, row: u64, column_group: u32) -> [u16; DRAWS] {
        self.at(row as u32, (row >> 32) as u32, column_group)
    }

    /// The draws of the call that [`attention_draw`] takes one of. Heads of an iteration must be
    /// below 2^32 to get distinct draws.
    #[inline(always)]
    #[must_use]
    pub const fn attention_draws(self, head: u64, query: u32, key: u32) -> [u16; DRAWS] {
        self.at(head as u32, query / 16 * 8 + query % 8, key / 16 * 4 + key % 8 / 2)
    }

    #[inline(always)]
    const fn at(self, c0: u32, c1: u32, c2: u32) -> [u16; DRAWS] {
        let [w0, w1, w2, w3] = philox4x32_rounds::<7>([c0, c1, c2, self.tag], self.key);
        [
            w0 as u16,
            (w0 >> 16) as u16,
            w1 as u16,
            (w1 >> 16) as u16,
            w2 as u16,
            (w2 >> 16) as u16,
            w3 as u16,
            (w3 >> 16) as u16,
        ]
    }
}

/// Which of its call's draws decides about a query and a key.
#[inline(always)]
#[must_use]
pub const fn attention_draw(query: u32, key: u32) -> usize {
    (key % 2 * 4 + key / 8 % 2 * 2 + query / 8 % 2) as usize
}

/// The smallest draw that is kept: `floor(probability * 2^16)`, within the range of `u16`.
///
/// Probabilities are in [0, 1). Values outside are clamped, and NaN counts as 0. Below 2^-16
/// nothing is dropped. However near to 1, one element of 65,536 is kept.
#[inline]
#[must_use]
pub const fn threshold(probability: f32) -> u16 {
    // Exact: an f32 times a power of two fits an f64, and the cast saturates.
    (probability as f64 * 65_536.0) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::philox::philox4x32;
    use std::collections::{HashMap, HashSet};

    const SITES: [Site; 4] =
        [Site::Embedding, Site::Attention, Site::AttentionProjection, Site::MlpProjection];

    fn is_kept(mask: MaskKey, row: u64, column: u32, threshold: u16) -> bool {
        mask.draws(row, column / 8)[(column % 8) as usize] >= threshold
    }

    fn is_weight_kept(mask: MaskKey, head: u64, query: u32, key: u32, threshold: u16) -> bool {
        mask.attention_draws(head, query, key)[attention_draw(query, key)] >= threshold
    }

    #[test]
    fn thresholds() {
        let cases = [
            (0.0, 0),
            (0.5, 1 << 15),
            (0.1, 6553),
            (0.25, 1 << 14),
            (1.0 / 65_536.0, 1),
            (1.5e-5, 0),
            (1e-12, 0),
            (0.99999, u16::MAX),
            (1.0 - f32::EPSILON / 2.0, u16::MAX),
            (1.0, u16::MAX),
            (7.0, u16::MAX),
            (-0.5, 0),
            (f32::NAN, 0),
        ];
        for (probability, want) in cases {
            assert_eq!(threshold(probability), want, "{probability}");
        }
    }

    /// Pins the documented layout; a CUDA kernel is checked against the same words.
    #[test]
    fn layout() {
        let (seed, iteration) = (0x0123_4567_89AB_CDEF, 0x0000_0007_0000_0005);
        let mask = MaskKey::new(seed, iteration, 11, Site::MlpProjection);
        let head = philox4x32([0, 5, 7, 5 << 24], [0x89AB_CDEF, 0x0123_4567]);
        assert_eq!(mask.key(), [head[0], head[1]]);
        assert_eq!(mask.tag(), 11 * 8 + 3);
        let halves = |counter| {
            let words = philox4x32_rounds::<7>(counter, mask.key());
            words.map(|word| [word as u16, (word >> 16) as u16]).concat()
        };
        let draws = mask.draws(0x0000_0002_0000_0009, 95);
        assert_eq!(draws[..], halves([9, 2, 95, 91]));
        assert_eq!(draws, [33132, 14459, 38737, 65320, 5189, 45832, 13567, 18118]);
        let (query, key) = (16 * 5 + 11, 16 * 3 + 13);
        let draws = mask.attention_draws(0x0000_0002_0000_0009, query, key);
        assert_eq!(draws[..], halves([9, 5 * 8 + 3, 3 * 4 + 2, 91]));
        assert_eq!(draws, [30394, 11063, 52836, 27964, 22432, 10309, 10265, 64877]);
        assert_eq!(attention_draw(query, key), 4 + 2 + 1);
    }

    /// Every pair of a query and a key has a draw of its own.
    #[test]
    fn attention_shares_no_draw() {
        let mask = MaskKey::new(1, 2, 3, Site::Attention);
        let mut calls = HashMap::new();
        for (query, key) in (0..48).flat_map(|query| (0..64).map(move |key| (query, key))) {
            let places: &mut HashSet<_> =
                calls.entry(mask.attention_draws(9, query, key)).or_default();
            assert!(places.insert(attention_draw(query, key)), "{query} {key}");
        }
        assert_eq!(calls.len(), 48 * 64 / DRAWS);
    }

    #[test]
    fn mask_does_not_depend_on_enumeration() {
        let mask = MaskKey::new(1, 2, 3, Site::Attention);
        let (rows, columns, drop_below) = (37_u64, 22_u32, threshold(0.3));
        let by_rows: Vec<bool> = (0..rows)
            .flat_map(|r| (0..columns).map(move |c| is_kept(mask, r, c, drop_below)))
            .collect();
        // Backwards, column by column, and with a new key each time.
        for column in (0..columns).rev() {
            for row in (0..rows).rev() {
                let mask = MaskKey::new(1, 2, 3, Site::Attention);
                let place = (row * u64::from(columns) + u64::from(column)) as usize;
                assert_eq!(is_kept(mask, row, column, drop_below), by_rows[place]);
            }
        }
    }

    #[test]
    fn keep_rate() {
        let n = 1 << 20;
        for probability in [0.0, 0.01, 0.1, 0.2, 0.5, 0.9] {
            let drop_below = threshold(probability);
            let mask = MaskKey::new(1337, 10, 4, Site::AttentionProjection);
            let kept = (0..n / 768)
                .flat_map(|row| (0..96).flat_map(move |group| mask.draws(row, group)))
                .filter(|&draw| draw >= drop_below)
                .count();
            let elements = (n / 768 * 768) as f64;
            let p = f64::from(probability);
            let tolerance = 5.0 * (p * (1.0 - p) / elements).sqrt();
            let rate = kept as f64 / elements;
            assert!((rate - (1.0 - p)).abs() <= tolerance, "{p}: kept {rate}");
        }
    }

    /// The keep rate of each of a call's draws, and of each pair of them together.
    #[test]
    fn draws_of_a_call_are_uncorrelated() {
        let (n, below) = (1 << 18, threshold(0.1));
        let mask = MaskKey::new(1337, 10, 4, Site::Attention);
        let mut both = [[0_u32; DRAWS]; DRAWS];
        for key in (0..n).map(|call| call / 4 * 16 + call % 4 * 2) {
            let dropped = mask.attention_draws(5, 21, key).map(|draw| u32::from(draw < below));
            for (counts, first) in both.iter_mut().zip(dropped) {
                for (count, second) in counts.iter_mut().zip(dropped) {
                    *count += first & second;
                }
            }
        }
        let p = f64::from(below) / 65_536.0;
        for (i, j) in (0..DRAWS).flat_map(|i| (0..DRAWS).map(move |j| (i, j))) {
            let p = if i == j { p } else { p * p };
            let want = f64::from(n) * p;
            let deviation = (f64::from(both[i][j]) - want) / (want * (1.0 - p)).sqrt();
            assert!(deviation.abs() < 5.0, "draws {i} and {j}: {deviation} sigma");
        }
    }

    #[test]
    fn every_part_of_the_key_counts() {
        let mut seen = HashSet::new();
        let mut add = |mask: MaskKey, row, group| assert!(seen.insert(mask.draws(row, group)));
        for site in SITES {
            for layer in 0..12 {
                for iteration in 0..5 {
                    add(MaskKey::new(1, iteration, layer, site), 0, 0);
                }
            }
        }
        let mask = MaskKey::new(1, 0, 0, Site::Embedding);
        add(MaskKey::new(2, 0, 0, Site::Embedding), 0, 0);
        add(MaskKey::new(1 | 1 << 32, 0, 0, Site::Embedding), 0, 0);
        add(MaskKey::new(1, 1 << 32, 0, Site::Embedding), 0, 0);
        for row in [1, 2, 1 << 31, 1 << 32, 1 << 63] {
            add(mask, row, 0);
        }
        for group in [1, 2, 1 << 31] {
            add(mask, 0, group);
        }
        for (head, query, key) in [(0, 1, 0), (0, 0, 2), (1, 16, 16), (1 << 31, 0, 1 << 31)] {
            let mask = MaskKey::new(1, 0, 0, Site::Attention);
            assert!(seen.insert(mask.attention_draws(head, query, key)), "{head} {query} {key}");
        }
    }

    /// Masks of neighbours agree as often as independent ones would.
    #[test]
    fn neighbours_are_uncorrelated() {
        let base = MaskKey::new(3, 100, 5, Site::Attention);
        let others = [
            (MaskKey::new(3, 101, 5, Site::Attention), 0),
            (MaskKey::new(3, 100, 6, Site::Attention), 0),
            (MaskKey::new(3, 100, 5, Site::AttentionProjection), 0),
            (MaskKey::new(4, 100, 5, Site::Attention), 0),
            (base, 1),
        ];
        let half = threshold(0.5);
        let n = 400_000_u32;
        let check = |agree: usize, what: &str| {
            let deviation = (agree as f64 - f64::from(n) / 2.0) / (f64::from(n) / 4.0).sqrt();
            assert!(deviation.abs() < 5.0, "{what}: {deviation} sigma");
        };
        for (other, row) in others {
            let agree = (0..n)
                .filter(|&c| is_kept(base, 0, c, half) == is_kept(other, row, c, half))
                .count();
            check(agree, &format!("{other:?}"));
            let agrees = |&key: &u32| {
                is_weight_kept(base, 0, 3, key, half) == is_weight_kept(other, row, 3, key, half)
            };
            check((0..n).filter(agrees).count(), &format!("weights of {other:?}"));
        }
        for (query, shift) in [(4, 0), (11, 0), (19, 0), (3, 1), (3, 8), (3, 16), (11, 9)] {
            let agrees = |&key: &u32| {
                is_weight_kept(base, 0, 3, key, half)
                    == is_weight_kept(base, 0, query, key + shift, half)
            };
            check((0..n).filter(agrees).count(), &format!("query {query}, keys + {shift}"));
        }
    }
}
