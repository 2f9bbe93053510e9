//! Dropout masks as `rng::dropout` defines them, written out for the reference: 0 where an element
//! is dropped, the keep scale where it stays.

use plan::ops::{Dropout, DropoutSite};
use rng::dropout::{DRAWS, MaskKey, Site, attention_draw, threshold};

/// Which part of the random stream a mask uses.
#[derive(Clone, Copy, Debug)]
pub struct MaskPlace {
    /// Seed of the run.
    pub seed: u64,
    /// Iteration.
    pub iteration: u64,
    /// First row of the mask.
    pub first_row: u64,
}

/// `rows` mask rows of `columns` elements.
pub fn mask(dropout: Dropout, place: MaskPlace, rows: u64, columns: u64) -> Vec<f32> {
    let key = MaskKey::new(place.seed, place.iteration, dropout.layer, site(dropout.site));
    let drop_below = threshold(dropout.probability);
    let mut values = Vec::with_capacity((rows * columns) as usize);
    for row in place.first_row..place.first_row + rows {
        for column in 0..columns as usize {
            let draw = key.draws(row, (column / DRAWS) as u32)[column % DRAWS];
            values.push(if draw >= drop_below { dropout.keep_scale() } else { 0.0 });
        }
    }
    values
}

/// The masks of `heads` heads' attention weights. The first row of the place is a head.
pub fn attention_mask(dropout: Dropout, place: MaskPlace, heads: u64, positions: u64) -> Vec<f32> {
    let mask = MaskKey::new(place.seed, place.iteration, dropout.layer, site(dropout.site));
    let drop_below = threshold(dropout.probability);
    let mut values = Vec::with_capacity((heads * positions * positions) as usize);
    for head in place.first_row..place.first_row + heads {
        for (query, key) in (0..positions as u32)
            .flat_map(|query| (0..positions as u32).map(move |key| (query, key)))
        {
            let draw = mask.attention_draws(head, query, key)[attention_draw(query, key)];
            values.push(if draw >= drop_below { dropout.keep_scale() } else { 0.0 });
        }
    }
    values
}

fn site(site: DropoutSite) -> Site {
    match site {
        DropoutSite::Embedding => Site::Embedding,
        DropoutSite::Attention => Site::Attention,
        DropoutSite::AttentionProjection => Site::AttentionProjection,
        DropoutSite::MlpProjection => Site::MlpProjection,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_scale_what_they_keep_and_follow_the_row() {
        let dropout =
            Dropout { probability: 0.25, layer: 3, site: DropoutSite::AttentionProjection };
        let at = |first_row| MaskPlace { seed: 9, iteration: 4, first_row };
        let whole = mask(dropout, at(0), 40, 50);
        let zeros = whole.iter().filter(|&&v| v == 0.0).count();
        assert!((400..600).contains(&zeros), "{zeros} of 2000");
        assert!(whole.iter().all(|&v| v == 0.0 || v == 4.0 / 3.0));
        assert_eq!(mask(dropout, at(30), 10, 50), whole[30 * 50..]);
    }
}
