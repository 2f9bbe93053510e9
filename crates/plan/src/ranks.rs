//! How elements are divided among the ranks of a run.

use std::fmt;

/// A rank among all ranks of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rank {
    /// Its number, from 0.
    pub rank: usize,
    /// How many ranks there are, at least 1.
    pub ranks: usize,
}

impl Default for Rank {
    fn default() -> Rank {
        Rank::ONLY
    }
}

impl Rank {
    /// The only rank of a run on one device.
    pub const ONLY: Rank = Rank { rank: 0, ranks: 1 };

    /// Whether this rank writes logs and checkpoints.
    pub fn is_first(self) -> bool {
        self.rank == 0
    }

    /// Whether other ranks exist.
    pub fn has_others(self) -> bool {
        self.ranks > 1
    }
}

/// Consecutive pieces of a range of elements, one for each rank.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pieces {
    rank: Rank,
    lengths: Vec<u64>,
}

impl Pieces {
    /// Divides `elements` among the ranks as evenly as whole blocks permit. Only the last block may
    /// be shorter than `block`.
    pub fn of_blocks(rank: Rank, elements: u64, block: u64) -> Pieces {
        let (ranks, blocks) = (rank.ranks.max(1) as u128, elements.div_ceil(block.max(1)) as u128);
        let end = |rank: u128| {
            let blocks = (blocks * rank / ranks) as u64; // at most `blocks`
            blocks.saturating_mul(block.max(1)).min(elements)
        };
        let lengths = (0..ranks).map(|rank| end(rank + 1) - end(rank)).collect();
        Pieces { rank, lengths }
    }

    /// The same number of elements for every rank.
    pub fn equal(rank: Rank, each: u64) -> Pieces {
        Pieces { rank, lengths: vec![each; rank.ranks.max(1)] }
    }

    /// Elements of each rank's piece.
    pub fn lengths(&self) -> &[u64] {
        &self.lengths
    }

    /// This rank's number.
    pub fn rank(&self) -> usize {
        self.rank.rank
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        self.lengths.len()
    }

    /// Elements of all pieces.
    pub fn total(&self) -> u64 {
        self.lengths.iter().copied().fold(0, u64::saturating_add)
    }

    /// Elements of this rank's piece.
    pub fn own(&self) -> u64 {
        self.lengths.get(self.rank.rank).copied().unwrap_or(0)
    }

    /// Elements before this rank's piece.
    pub fn before_own(&self) -> u64 {
        self.lengths.iter().take(self.rank.rank).copied().fold(0, u64::saturating_add)
    }
}

impl fmt::Display for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lengths: Vec<String> = self.lengths.iter().map(u64::to_string).collect();
        write!(f, "rank={} pieces={}", self.rank.rank, lengths.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(ranks: usize, elements: u64, block: u64) -> Vec<u64> {
        Pieces::of_blocks(Rank { rank: 0, ranks }, elements, block).lengths
    }

    #[test]
    fn pieces_are_whole_blocks_and_cover_everything() {
        assert_eq!(lengths(2, 10, 4), [4, 6]);
        assert_eq!(lengths(3, 10, 4), [4, 4, 2]);
        assert_eq!(lengths(4, 10, 4), [0, 4, 4, 2]);
        assert_eq!(lengths(1, 10, 4), [10]);
        assert_eq!(lengths(3, 0, 4), [0, 0, 0]);
        for (ranks, elements, block) in [(7, 1_000_003, 64), (3, u64::MAX, 1 << 16)] {
            assert_eq!(lengths(ranks, elements, block).iter().sum::<u64>(), elements);
        }
    }

    #[test]
    fn a_piece_knows_where_it_is() {
        let pieces = Pieces::of_blocks(Rank { rank: 2, ranks: 3 }, 10, 4);
        assert_eq!((pieces.before_own(), pieces.own(), pieces.total()), (8, 2, 10));
        assert_eq!(pieces.to_string(), "rank=2 pieces=4,4,2");
    }
}
