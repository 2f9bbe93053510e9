//! Draws dropout masks where they are needed, in forward and backward. `rng` defines their keys.

use crate::executor::StepContext;
use plan::ops::{Dropout, DropoutSite};
use rng::dropout::{MaskKey, Site, threshold};

/// One op's dropout in this iteration.
#[derive(Clone, Copy)]
pub(crate) struct Mask {
    key: MaskKey,
    threshold: u32,
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

    /// Factors 0 or 1/(1-p) for the columns from `first` (a multiple of 4) of a row.
    #[inline(always)]
    pub(crate) fn strip(&self, row: u64, first: usize, factors: &mut [f32]) {
        for (group, four) in factors.chunks_mut(4).enumerate() {
            let draws = self.key.draws(row, (first / 4 + group) as u32);
            for (factor, draw) in four.iter_mut().zip(draws) {
                *factor = self.factor(draw);
            }
        }
    }

    /// A tile of the attention matrix, transposed: `tile[k * pitch + q]` is the factor of key
    /// `first_key + k` in row `first_row + q`. `first_key` is a multiple of 4.
    #[inline(always)]
    pub(crate) fn tile(
        &self,
        first_row: u64,
        first_key: u32,
        [keys, queries]: [usize; 2],
        pitch: usize,
        tile: &mut [f32],
    ) {
        for (group, lines) in tile.chunks_mut(4 * pitch).enumerate().take(keys.div_ceil(4)) {
            let column_group = first_key / 4 + group as u32;
            for q in 0..queries {
                let draws = self.key.draws(first_row + q as u64, column_group);
                for (k, draw) in draws.into_iter().enumerate() {
                    if let Some(slot) = lines.get_mut(k * pitch + q) {
                        *slot = self.factor(draw);
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn factor(&self, draw: u32) -> f32 {
        if draw >= self.threshold { self.scale } else { 0.0 }
    }
}
