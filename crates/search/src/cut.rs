//! What the search decides: how an iteration is cut, and what its layers recompute.

use crate::machine::Levers;
use model::Level;

/// How an iteration is cut and what is recomputed.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut {
    /// Sequences of each slice, larger ones first.
    pub slices: Vec<u64>,
    /// Tokens whose logits exist at one time.
    pub head_chunk: u64,
    /// What each layer keeps.
    pub levels: Vec<Level>,
    /// What is done with the optimizer's state.
    pub levers: Levers,
}

/// The near-equal parts of `sequences`, larger ones first.
pub(crate) fn near_equal(sequences: u64, parts: u64) -> Vec<u64> {
    let parts = parts.clamp(1, sequences.max(1));
    let (least, more) = (sequences / parts, sequences % parts);
    (0..parts).map(|part| least + u64::from(part < more)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_cut_evenly() {
        assert_eq!(near_equal(64, 3), [22, 21, 21]);
        assert_eq!(near_equal(4, 9), [1, 1, 1, 1]);
        assert_eq!(near_equal(7, 1), [7]);
    }
}
