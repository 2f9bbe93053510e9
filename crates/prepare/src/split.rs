//! Splits the text into training and validation.

use crate::journal::Totals;
use data::Split;

/// nanoGPT's seed for the split of documents.
pub const SEED: u64 = 2357;
/// nanoGPT's fraction of validation documents.
pub const DOCUMENTS: f64 = 0.0005;
/// nanoGPT's fraction of validation characters of one text.
pub const TAIL: f64 = 0.1;

/// With fewer validation tokens than this, the loss is mostly noise: four blocks of 256 characters,
/// or of 1024 GPT-2 tokens.
#[must_use]
pub fn enough(is_characters: bool) -> u64 {
    if is_characters { 4 * 256 } else { 4 * 1024 }
}

/// Fractions that may be suggested.
const SHARES: [f64; 13] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5];

/// How text is split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// One text: its last characters are for validation.
    Position {
        /// Number of characters before them.
        train: u64,
    },
    /// Each document as a whole, by its number.
    Documents {
        /// Seed of the choice.
        seed: u64,
        /// Fraction of documents for validation.
        share: f64,
    },
}

/// Training characters of one text: `int(n * 0.9)` in nanoGPT's scripts.
#[must_use]
pub fn train_characters(all: u64, share: f64) -> u64 {
    (all as f64 * (1.0 - share)) as u64
}

/// The half of document `index`. It depends on nothing else, so threads and restarts do not change
/// it. The first document is always for validation, so that a small collection has some.
#[must_use]
pub fn of_document(seed: u64, share: f64, index: u64) -> Split {
    let unit = (mixed(seed, index) >> 11) as f64 / (1u64 << 53) as f64;
    if share > 0.0 && (index == 0 || unit < share) { Split::Val } else { Split::Train }
}

/// The smallest fraction that would give validation `enough` tokens plus a quarter, since texts
/// differ; `None` if half of the text is not enough. With documents, `seed` chooses them; without,
/// the text is split by position.
#[must_use]
pub fn share_for_enough(totals: &Totals, seed: u64, enough: u64) -> Option<f64> {
    let tokens = (totals.train_tokens + totals.val_tokens) as f64;
    let documents = totals.train_documents + totals.val_documents;
    let wanted = 1.25 * enough as f64;
    let tokens_with = |share: f64| match documents {
        0 => tokens * share,
        _ => {
            // A larger fraction chooses the same documents and more. A million documents are a
            // large enough sample.
            let seen = documents.min(1 << 20);
            let chosen = (0..seen).filter(|&i| of_document(seed, share, i) == Split::Val).count();
            let more = (chosen as u64).saturating_sub(totals.val_documents) as f64;
            let leaves_some = (chosen as u64) < seen;
            if leaves_some {
                totals.val_tokens as f64 + more * tokens / documents as f64
            } else {
                0.0
            }
        }
    };
    SHARES.into_iter().find(|&share| tokens_with(share) >= wanted)
}

/// Steele, Lea and Flood's mixing function (SplitMix64), applied to the index and the mixed seed.
fn mixed(seed: u64, index: u64) -> u64 {
    let step = |state: u64| {
        let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    step(step(seed) ^ index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_pythons() {
        for (all, want) in [(1_115_394, 1_003_854), (10, 9), (0, 0), (11, 9)] {
            assert_eq!(train_characters(all, TAIL), want);
        }
    }

    #[test]
    fn a_share_is_proposed_where_one_does() {
        let totals = |train_tokens, val_tokens, train_documents, val_documents| Totals {
            train_tokens,
            val_tokens,
            train_documents,
            val_documents,
            ..Totals::default()
        };
        for (totals, want) in [
            (totals(9_000, 1_000, 0, 0), Some(0.15)),
            (totals(2_322, 258, 0, 0), Some(0.5)),
            (totals(900, 100, 0, 0), None),
            (totals(199_800, 200, 999, 1), Some(0.02)),
            (totals(10_000, 5, 1, 1), None),
        ] {
            assert_eq!(share_for_enough(&totals, SEED, 1024), want, "{totals:?}");
        }
    }

    #[test]
    fn documents_are_chosen_by_seed_and_place() {
        let chosen = |seed, share| {
            (0..100_000).filter(|&i| of_document(seed, share, i) == Split::Val).collect::<Vec<_>>()
        };
        let first = chosen(SEED, 0.01);
        assert!((900..1100).contains(&first.len()), "{}", first.len());
        assert_eq!(first, chosen(SEED, 0.01));
        assert_ne!(first, chosen(SEED + 1, 0.01));
        assert!(chosen(SEED, 0.0).is_empty());
        assert_eq!(chosen(SEED, 1e-9), [0]);
    }
}
