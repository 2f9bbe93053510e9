//! Which rank holds up all others. Every rank counts its steps through the run, and all count the
//! same ones. A rank that is behind and counts no more is named after a while. If all are at the
//! same step, they may all be busy, and nobody is named.

use std::time::Duration;

/// A rank is named after so many times the longest wait that ended well.
pub const PATIENCE: u32 = 10;

/// The step of a rank that has finished: nobody is ahead of it.
pub const FINISHED: u64 = u64::MAX;

/// Where all ranks stand.
pub struct Standings {
    ranks: Vec<Standing>,
    /// A wait may always last so long.
    least: Duration,
    /// The longest wait that ended well.
    longest: Duration,
}

#[derive(Clone, Default)]
struct Standing {
    steps: u64,
    /// Since its last step.
    stood: Duration,
    /// Since then it was also the last of all, behind another one.
    awaited: Duration,
}

/// A rank that holds up all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Which one.
    pub rank: usize,
    /// For how long it has not moved.
    pub stood: Duration,
}

impl Standings {
    /// All ranks are at the beginning. `least` is the time that every wait may last.
    pub fn new(ranks: usize, least: Duration) -> Standings {
        let ranks = vec![Standing::default(); ranks];
        Standings { ranks, least, longest: Duration::ZERO }
    }

    /// A rank has counted so many steps.
    pub fn note(&mut self, rank: usize, steps: u64) {
        let Some(standing) = self.ranks.get_mut(rank) else { return };
        if standing.steps != steps {
            self.longest = self.longest.max(standing.awaited);
            *standing = Standing { steps, ..Standing::default() };
        }
    }

    /// Time has passed. Rank 0 may use so much of it for what the others do not do.
    pub fn pass(&mut self, time: Duration, excused: Duration) {
        let (last, first) = self.ends();
        for (rank, standing) in self.ranks.iter_mut().enumerate() {
            standing.stood += time;
            if last < first && standing.steps == last {
                let excused = if rank == 0 { excused } else { Duration::ZERO };
                standing.awaited += time.saturating_sub(excused);
            }
        }
    }

    /// The rank that all others have waited for too long: of several at the same step, the one that
    /// has been there longest.
    pub fn held(&self) -> Option<Held> {
        let limit = self.least.max(self.longest.saturating_mul(PATIENCE));
        let late = self.ranks.iter().enumerate().filter(|(_, one)| one.awaited >= limit);
        let (rank, standing) = late.max_by_key(|(rank, one)| (one.stood, usize::MAX - rank))?;
        Some(Held { rank, stood: standing.stood })
    }

    /// Other ranks at the step of this one.
    pub fn beside(&self, rank: usize) -> Vec<usize> {
        let Some(steps) = self.ranks.get(rank).map(|one| one.steps) else { return Vec::new() };
        let all = self.ranks.iter().enumerate();
        let beside = all.filter(|(other, one)| *other != rank && one.steps == steps);
        beside.map(|(other, _)| other).collect()
    }

    /// The fewest and the most steps of a rank.
    fn ends(&self) -> (u64, u64) {
        let steps = || self.ranks.iter().map(|one| one.steps);
        (steps().min().unwrap_or(0), steps().max().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Ranks at these steps for so many seconds.
    fn stand(standings: &mut Standings, steps: &[u64], seconds: u32) -> Option<Held> {
        for _ in 0..seconds {
            steps.iter().enumerate().for_each(|(rank, &steps)| standings.note(rank, steps));
            standings.pass(SECOND, Duration::ZERO);
        }
        standings.held()
    }

    #[test]
    fn the_last_is_named_if_it_does_not_move() {
        for late in 0..3 {
            let mut steps = [9, 9, 9];
            steps[late] = 4;
            let mut standings = Standings::new(3, 60 * SECOND);
            assert_eq!(stand(&mut standings, &[4, 4, 4], 5), None);
            assert_eq!(stand(&mut standings, &steps, 59), None);
            let held = Held { rank: late, stood: 65 * SECOND };
            assert_eq!(stand(&mut standings, &steps, 1), Some(held));
        }
    }

    /// Rank 1 waits for rank 2, and rank 0 has got further before it must wait.
    #[test]
    fn who_waits_is_not_named() {
        let mut standings = Standings::new(3, 60 * SECOND);
        let held = stand(&mut standings, &[12, 11, 10], 200);
        assert_eq!(held.map(|held| held.rank), Some(2));
        assert!(standings.beside(2).is_empty());
        // When the last one has overtaken it, the time of the next one begins.
        let mut standings = Standings::new(3, 60 * SECOND);
        assert_eq!(stand(&mut standings, &[12, 11, 10], 5), None);
        assert_eq!(stand(&mut standings, &[12, 11, 12], 59), None);
        let held = Some(Held { rank: 1, stood: 65 * SECOND });
        assert_eq!(stand(&mut standings, &[12, 11, 12], 1), held);
    }

    #[test]
    fn several_at_the_same_step_are_known() {
        let mut standings = Standings::new(4, 60 * SECOND);
        assert_eq!(stand(&mut standings, &[5, 3, 2, 3], 5), None);
        let held = stand(&mut standings, &[5, 3, 3, 3], 60).unwrap();
        assert_eq!((held.rank, standings.beside(1)), (1, vec![2, 3]), "it came first");
        let mut standings = Standings::new(4, 60 * SECOND);
        let held = stand(&mut standings, &[5, 3, 2, 3], 60).unwrap();
        assert_eq!((held.rank, standings.beside(2)), (2, vec![]));
    }

    /// A slice, an evaluation or the compiler takes hours on all ranks.
    #[test]
    fn nobody_is_named_if_all_stand_at_the_same_step() {
        let mut standings = Standings::new(2, 60 * SECOND);
        assert_eq!(stand(&mut standings, &[7, 7], 10_000), None);
        // The slower one gets its own time.
        assert_eq!(stand(&mut standings, &[8, 7], 59), None);
        assert_eq!(stand(&mut standings, &[8, 8], 10_000), None);
    }

    /// A rank that trains alone may be far behind, as long as it moves.
    #[test]
    fn slow_is_not_stuck() {
        let mut standings = Standings::new(2, 60 * SECOND);
        for step in 0..100 {
            assert_eq!(stand(&mut standings, &[1000, step], 5), None);
        }
        assert_eq!(stand(&mut standings, &[1000, 99], 60).map(|held| held.rank), Some(1));
    }

    #[test]
    fn the_longest_wait_that_ended_well_counts_tenfold() {
        let mut standings = Standings::new(2, 60 * SECOND);
        assert_eq!(stand(&mut standings, &[1, 2], 40), None);
        assert_eq!(stand(&mut standings, &[2, 2], 1), None);
        assert_eq!(stand(&mut standings, &[3, 2], 399), None);
        assert!(stand(&mut standings, &[3, 2], 1).is_some());
    }

    /// A rank that has finished waits for the others, and is never named itself.
    #[test]
    fn the_end_is_the_last_step() {
        let mut standings = Standings::new(2, 60 * SECOND);
        assert_eq!(stand(&mut standings, &[5, FINISHED], 59), None);
        assert_eq!(stand(&mut standings, &[5, FINISHED], 1).map(|held| held.rank), Some(0));
        let mut standings = Standings::new(2, 60 * SECOND);
        assert_eq!(stand(&mut standings, &[FINISHED, FINISHED], 1000), None);
    }

    #[test]
    fn excused_time_does_not_count() {
        let mut standings = Standings::new(2, 60 * SECOND);
        let mut pass = |seconds: u32, excused: Duration| {
            for _ in 0..seconds {
                [1, 2].iter().enumerate().for_each(|(rank, &steps)| standings.note(rank, steps));
                standings.pass(SECOND, excused);
            }
            standings.held()
        };
        assert_eq!(pass(500, SECOND), None);
        assert_eq!(pass(59, Duration::ZERO), None);
        assert_eq!(pass(1, Duration::ZERO), Some(Held { rank: 0, stood: 560 * SECOND }));
    }
}
