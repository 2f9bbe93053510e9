//! Which elements dropout keeps. Every backend must mirror this definition.
//!
//! The mask is never stored. An element's draw depends on seed, iteration, layer, site, row and
//! column, and not on tile, thread, micro-batch or rank. So the forward pass, its recomputation,
//! the backward pass and any split of the batch see the same mask. [`MaskKey`] has the exact
//! layout.

use crate::philox::philox4x32;
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

/// The mask of one site in one iteration.
///
/// The draw of element (row, column) is word `column % 4` of Philox4x32-10 at
///
/// ```text
/// key     = words 0 and 1 of Philox at
///             key     = [seed low, seed high]
///             counter = [0, iteration low, iteration high, 5 << 24]
///           (the head of `Stream::new(seed, Purpose::Dropout, iteration)`)
/// counter = [row low, row high, column / 4, layer << 3 | site]
/// ```
///
/// and the element is kept when its draw is at least [`threshold`] of the drop probability.
///
/// The row counts over the whole iteration: all ranks and all micro-batches. With B sequences of T
/// positions, the row of position t of global sequence b is `b * T + t`, and the column is the
/// channel. At [`Site::Attention`] the row is `(b * heads + head) * T + query` and the column is
/// the key position.
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

    /// The draws of columns `4 * column_group ..` of a row.
    #[inline(always)]
    #[must_use]
    pub const fn draws(self, row: u64, column_group: u32) -> [u32; 4] {
        let counter = [row as u32, (row >> 32) as u32, column_group, self.tag];
        philox4x32(counter, self.key)
    }
}

/// The smallest draw that is kept: `floor(probability * 2^32)`, within the range of `u32`.
///
/// Probabilities are in [0, 1). Values outside are clamped, and NaN counts as 0.
#[inline]
#[must_use]
pub const fn threshold(probability: f32) -> u32 {
    // Exact: an f32 times a power of two fits an f64, and the cast saturates.
    (probability as f64 * 4_294_967_296.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const SITES: [Site; 4] =
        [Site::Embedding, Site::Attention, Site::AttentionProjection, Site::MlpProjection];

    fn is_kept(key: MaskKey, row: u64, column: u32, threshold: u32) -> bool {
        key.draws(row, column / 4)[(column % 4) as usize] >= threshold
    }

    #[test]
    fn thresholds() {
        let cases = [
            (0.0, 0),
            (0.5, 1 << 31),
            (0.1, 429_496_736), // 0.1f32 is 13421773 * 2^-27
            (0.25, 1 << 30),
            (1.0 - f32::EPSILON / 2.0, u32::MAX - 255),
            (1e-12, 0),
            (1.0, u32::MAX),
            (7.0, u32::MAX),
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
        let draws = mask.draws(0x0000_0002_0000_0009, 191);
        assert_eq!(draws, philox4x32([9, 2, 191, 91], [head[0], head[1]]));
        assert_eq!(draws, [1872744713, 1097997857, 1059264218, 167104633]);
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
                .flat_map(|row| (0..192).flat_map(move |group| mask.draws(row, group)))
                .filter(|&draw| draw >= drop_below)
                .count();
            let elements = (n / 768 * 768) as f64;
            let p = f64::from(probability);
            let tolerance = 5.0 * (p * (1.0 - p) / elements).sqrt();
            let rate = kept as f64 / elements;
            assert!((rate - (1.0 - p)).abs() <= tolerance, "{p}: kept {rate}");
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
        for (other, row) in others {
            let agree = (0..n)
                .filter(|&c| is_kept(base, 0, c, half) == is_kept(other, row, c, half))
                .count();
            let deviation = (agree as f64 - f64::from(n) / 2.0) / (f64::from(n) / 4.0).sqrt();
            assert!(deviation.abs() < 5.0, "{other:?}: {deviation} sigma");
        }
    }
}
