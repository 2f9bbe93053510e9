//! Draws dropout masks where they are needed, in forward and backward. `rng` defines their keys.

use crate::executor::StepContext;
use plan::ops::{Dropout, DropoutSite};
use rng::dropout::{DRAWS, MaskKey, Site, threshold};

/// One op's dropout in this iteration.
#[derive(Clone, Copy)]
pub(crate) struct Mask {
    key: MaskKey,
    threshold: u16,
    scale: f32,
}

impl Mask {
    /// The mask of an op's dropout, if it has one.
    pub(crate) fn new(cx: &StepContext<'_>, dropout: Option<Dropout>) -> Option<Mask> {
        dropout.map(|dropout| {
            let site = match dropout.site {
                DropoutSite::Embedding => Site::Embedding,
                DropoutSite::Attention => Site::Attention,
                DropoutSite::AttentionProjection => Site::AttentionProjection,
                DropoutSite::MlpProjection => Site::MlpProjection,
            };
            let (seed, iteration) = (cx.inputs.seed, cx.inputs.iteration);
            Mask {
                key: MaskKey::new(seed, iteration, dropout.layer, site),
                threshold: threshold(dropout.probability),
                scale: dropout.keep_scale(),
            }
        })
    }

    /// Factors 0 or 1/(1-p) for the columns from `first` (a multiple of 8) of a row.
    #[inline(always)]
    pub(crate) fn strip(&self, row: u64, first: usize, factors: &mut [f32]) {
        for (group, eight) in factors.chunks_mut(DRAWS).enumerate() {
            let draws = self.key.draws(row, (first / DRAWS + group) as u32);
            for (factor, draw) in eight.iter_mut().zip(draws) {
                *factor = self.factor(draw);
            }
        }
    }

    /// A tile of a head's attention matrix, transposed: `tile[k * pitch + q]` is the factor of key
    /// `first_key + k` and query `first_query + q`. All numbers are multiples of 16 but `keys` and
    /// `queries`; blocks of 16 x 16 are written whole.
    #[inline(always)]
    pub(crate) fn tile(
        &self,
        head: u64,
        [first_key, first_query]: [usize; 2],
        [keys, queries]: [usize; 2],
        pitch: usize,
        tile: &mut [f32],
    ) {
        for (block, lines) in tile.chunks_mut(16 * pitch).enumerate().take(keys.div_ceil(16)) {
            let (upper, lower) = lines.split_at_mut(8 * pitch);
            let pairs = upper.chunks_exact_mut(2 * pitch).zip(lower.chunks_exact_mut(2 * pitch));
            for (pair, (upper, lower)) in pairs.enumerate() {
                let key = (first_key + block * 16 + pair * 2) as u32;
                let (even, odd) = upper.split_at_mut(pitch);
                let (even_below, odd_below) = lower.split_at_mut(pitch);
                for query in (0..queries).step_by(16) {
                    self.block(
                        head,
                        [key, (first_query + query) as u32],
                        [&mut *even, &mut *even_below, &mut *odd, &mut *odd_below]
                            .map(|line| &mut line[query..][..16]),
                    );
                }
            }
        }
    }

    /// The factors of 16 queries and keys `key`, `key + 8`, `key + 1`, `key + 9`.
    #[inline(always)]
    fn block(&self, head: u64, [key, query]: [u32; 2], lines: [&mut [f32]; 4]) {
        let mut draws = [[0; DRAWS]; 8];
        for (row, draws) in draws.iter_mut().enumerate() {
            *draws = self.key.attention_draws(head, query + row as u32, key);
        }
        for (index, line) in lines.into_iter().enumerate() {
            for (half, factors) in line.chunks_exact_mut(8).enumerate() {
                for (factor, draws) in factors.iter_mut().zip(&draws) {
                    *factor = self.factor(draws[2 * index + half]);
                }
            }
        }
    }

    #[inline(always)]
    fn factor(&self, draw: u16) -> f32 {
        if draw >= self.threshold { self.scale } else { 0.0 }
    }
}
