//! The random numbers of a case: its own stream, identified by seed, section and number.

use plan::fnv::Fnv;
use rng::{Purpose, Stream};

/// The stream of a case.
pub fn of_case(seed: u64, name: &str, case: u64) -> Stream {
    // The hash of the name gives each section and each reader its own stream.
    let mut key = Fnv::seeded(seed);
    key.add(name);
    Stream::new(key.get(), Purpose::Sample, case)
}

/// Picks one of several things. The slice must not be empty.
pub fn pick<'a, T>(draws: &mut Stream, things: &'a [T]) -> &'a T {
    &things[draws.below(things.len() as u64) as usize]
}

/// A number drawn uniformly on a logarithmic scale.
pub fn spread(draws: &mut Stream, least: f64, most: f64) -> f64 {
    least * (most / least).powf(draws.uniform_f64())
}

/// A number in `least..=most`.
pub fn between(draws: &mut Stream, least: u64, most: u64) -> u64 {
    least + draws.below(most - least + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_repeatable_and_differ_by_each_part_of_their_name() {
        let first = |seed, name, case| of_case(seed, name, case).next_u64();
        assert_eq!(first(7, "plans", 3), first(7, "plans", 3));
        for other in [first(8, "plans", 3), first(7, "kills", 3), first(7, "plans", 4)] {
            assert_ne!(first(7, "plans", 3), other);
        }
    }
}
