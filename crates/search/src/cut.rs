//! What the search decides: how an iteration is divided into slices, and what its layers recompute.

use crate::machine::StateOptions;
use model::Level;

/// How an iteration is divided and what is recomputed.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut {
    /// Sequences of each slice, larger ones first.
    pub slices: Vec<u64>,
    /// Tokens whose logits exist at the same time.
    pub head_chunk: u64,
    /// What each layer keeps.
    pub levels: Vec<Level>,
    /// How the optimizer's state is stored.
    pub state_options: StateOptions,
}

impl Cut {
    /// How many layers keep activations in host memory.
    pub fn layers_on_host(&self) -> usize {
        layers_on_host(&self.levels)
    }

    /// The same without host memory for activations: these layers compute them again. It gives the
    /// same bits and needs no more of the device.
    pub fn without_host(&self) -> Cut {
        let level = |level: &Level| if level.uses_host() { Level::R4 } else { *level };
        Cut { levels: self.levels.iter().map(level).collect(), ..self.clone() }
    }
}

/// How many of these layers keep activations in host memory.
pub(crate) fn layers_on_host(levels: &[Level]) -> usize {
    levels.iter().filter(|level| level.uses_host()).count()
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
