//! The random numbers of a case: a stream of its own, named by seed, section and number.

use plan::fnv::Fnv;
use rng::{Purpose, Stream};

/// The stream of a case.
pub fn of_case(seed: u64, name: &str, case: u64) -> Stream {
    // Sections and readers differ in their names, so in their streams.
    let mut key = Fnv::seeded(seed);
    key.add(name);
    Stream::new(key.get(), Purpose::Sample, case)
}

/// One of some things; the first of none is a mistake of the caller.
pub fn pick<'a, T>(draws: &mut Stream, things: &'a [T]) -> &'a T {
    &things[draws.below(things.len() as u64) as usize]
}

/// A number drawn evenly on the scale of its logarithm.
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
