//! How the ranks of a run share training. An iteration's sequences form groups; every rank computes
//! the gradients of its groups, one group in each round. After a round, the groups' gradients are
//! added in the order of the groups. So the sum does not depend on the number of ranks.

use plan::ops::GRAD_NORM_BLOCK;
use plan::{Dtype, Pieces, Rank};

/// Blocks of gradients that travel together: 16 MiB of f32, large enough for a network's full rate,
/// small enough to leave while the backward pass goes on.
const WINDOW_BLOCKS: u64 = 64;

/// Large models get larger windows, so that each iteration has few messages.
const MOST_WINDOWS: u64 = 64;

/// How the ranks of a run share training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// This rank, and how many there are.
    pub rank: Rank,
    /// Groups into which an iteration's sequences are divided: a multiple of the ranks. In round
    /// `j`, rank `r` computes group `j · ranks + r`.
    pub groups: u64,
    /// Whether each rank keeps only its shard of master weights and optimizer state (ZeRO-1).
    pub zero: bool,
    /// The number format in which gradients travel.
    pub wire: Dtype,
    /// Whether ranks train alone and average the changes of their weights now and then (DiLoCo).
    pub averages: bool,
}

impl Sharing {
    /// One rank, one group.
    pub const NONE: Sharing =
        Sharing { rank: Rank::ONLY, groups: 1, zero: false, wire: Dtype::F32, averages: false };

    /// Rounds of an iteration.
    pub fn rounds(&self) -> u64 {
        (self.groups / self.rank.ranks.max(1) as u64).max(1)
    }

    /// Whether gradients are added up group by group.
    pub fn has_groups(&self) -> bool {
        self.groups > 1
    }

    /// Whether state is divided among several ranks.
    pub fn is_sharded(&self) -> bool {
        self.zero && self.rank.has_others()
    }

    /// The group that this rank computes in a round.
    pub fn group(&self, round: u64) -> u64 {
        round * self.rank.ranks as u64 + self.rank.rank as u64
    }
}

/// Elements of the flat arrays that travel together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first element.
    pub first: u64,
    /// Which rank sums and updates which of its elements.
    pub pieces: Pieces,
}

impl Window {
    /// This rank's piece of the window; none if it is empty.
    fn own(&self, at: u64) -> Option<Piece> {
        let (first, elements) = (self.first + self.pieces.before_own(), self.pieces.own());
        (elements > 0).then_some(Piece { first, elements, at })
    }
}

/// Consecutive elements of the flat arrays that belong to this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its first element.
    pub first: u64,
    /// How many there are.
    pub elements: u64,
    /// Where it begins in this rank's shard.
    pub at: u64,
}

/// The part of the flat arrays that this rank sums and updates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shard {
    /// All elements, of all ranks.
    pub windows: Vec<Window>,
    /// This rank's pieces, in order: at most one for each window.
    pub pieces: Vec<Piece>,
    /// Elements of this rank's pieces.
    pub elements: u64,
}

impl Shard {
    /// Divides `total` elements among the ranks. Pieces begin at blocks of the gradient norm, so
    /// that its sums of squares are the same on any number of ranks.
    pub fn new(rank: Rank, total: u64) -> Shard {
        let blocks = total.div_ceil(GRAD_NORM_BLOCK);
        let size = WINDOW_BLOCKS.max(blocks.div_ceil(MOST_WINDOWS));
        let size = size.saturating_mul(GRAD_NORM_BLOCK);
        let mut shard = Shard::default();
        let mut first = 0;
        while first < total {
            let elements = size.min(total - first);
            let pieces = Pieces::of_blocks(rank, elements, GRAD_NORM_BLOCK);
            let window = Window { first, pieces };
            if let Some(piece) = window.own(shard.elements) {
                shard.elements += piece.elements;
                shard.pieces.push(piece);
            }
            shard.windows.push(window);
            first += elements;
        }
        shard
    }

    /// The parts of `elements` elements from `first` on that are in this shard: for each, its
    /// distance from `first`, where it begins in the shard, and its length.
    pub fn parts(&self, first: u64, elements: u64) -> impl Iterator<Item = [u64; 3]> + '_ {
        let end = first.saturating_add(elements);
        self.pieces.iter().filter_map(move |piece| {
            let from = first.max(piece.first);
            let to = end.min(piece.first + piece.elements);
            (from < to).then(|| [from - first, piece.at + (from - piece.first), to - from])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_cover_everything_once_and_begin_at_blocks() {
        for (ranks, total) in [(1, 1), (2, 400_000), (3, 10_770_816), (8, 1_557_686_400)] {
            let shards: Vec<Shard> =
                (0..ranks).map(|rank| Shard::new(Rank { rank, ranks }, total)).collect();
            let mut pieces: Vec<Piece> = shards.iter().flat_map(|s| s.pieces.clone()).collect();
            pieces.sort_by_key(|piece| piece.first);
            let mut next = 0;
            for piece in pieces {
                assert_eq!(piece.first, next);
                assert!(piece.first.is_multiple_of(GRAD_NORM_BLOCK));
                next += piece.elements;
            }
            assert_eq!(next, total);
            assert!(shards[0].windows.len() as u64 <= MOST_WINDOWS + 1);
        }
    }

    #[test]
    fn a_parameter_is_found_in_the_pieces() {
        let shard = Shard::new(Rank { rank: 1, ranks: 2 }, 8 * GRAD_NORM_BLOCK);
        let half = 4 * GRAD_NORM_BLOCK;
        let parts: Vec<_> = shard.parts(half - 10, 30).collect();
        assert_eq!(parts, [[10, 0, 20]]);
        assert_eq!(shard.parts(0, 5).count(), 0);
    }
}
