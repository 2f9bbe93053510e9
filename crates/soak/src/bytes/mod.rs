//! `bytes`: hostile input for every reader. A case is one damaged input for one reader. The reader
//! may refuse or accept it, but must not panic, take long, or use more memory than the input's size
//! and a constant.

mod readers;
mod seeds;
mod foreign;
mod zip;

use crate::clock::processor_time;
use crate::draws;
use crate::mutate::damaged;
use crate::scratch::Scratch;
use crate::section::{Cases, Environment};
use crate::tally::Tally;
use readers::{READERS, Reader};
use std::time::Duration;

/// Most processor time for one input.
const TIME: Duration = Duration::from_secs(2);

/// Names of all readers.
pub fn names() -> Vec<&'static str> {
    READERS.iter().map(|reader| reader.name).collect()
}

/// Makes the seeds of all readers, or of the named one.
///
/// # Errors
///
/// When there is no such reader or no scratch folder.
pub fn open(environment: &Environment, name: &str) -> Result<Box<dyn Cases>, String> {
    let part = name.split_once('/').map(|(_, part)| part);
    let wanted = |reader: &&Reader| part.is_none_or(|part| part == reader.name);
    let readers: Vec<&'static Reader> = READERS.iter().filter(wanted).collect();
    if readers.is_empty() {
        return Err(format!("no reader is called '{name}'; there are {}", names().join(", ")));
    }
    let scratch = Scratch::new("bytes").map_err(|error| format!("scratch folder: {error}"))?;
    let mut seeds = Vec::new();
    for reader in &readers {
        let made = (reader.seeds)(scratch.path());
        seeds.push(made.map_err(|error| format!("seeds of {}: {error}", reader.name))?);
    }
    // A reader with `every` 8 has a turn only in every eighth round.
    let turns = readers.iter().enumerate().flat_map(|(at, reader)| {
        (0..ROUNDS).step_by(reader.every as usize).map(move |round| (round, at))
    });
    let mut turns: Vec<(u64, usize)> = turns.collect();
    turns.sort_unstable();
    Ok(Box::new(Inputs { seed: environment.seed, readers, seeds, turns, scratch }))
}

/// Rounds after which turns repeat.
const ROUNDS: u64 = 64;

struct Inputs {
    seed: u64,
    readers: Vec<&'static Reader>,
    seeds: Vec<Vec<Vec<u8>>>,
    /// The order of readers over [`ROUNDS`] rounds.
    turns: Vec<(u64, usize)>,
    scratch: Scratch,
}

impl Inputs {
    /// The reader of a case, and the case's number for that reader.
    fn turn(&self, index: u64) -> (usize, u64) {
        let (lap, place) = (index / self.turns.len() as u64, index % self.turns.len() as u64);
        let (round, at) = self.turns[place as usize];
        let every = self.readers[at].every;
        (at, lap * (ROUNDS / every) + round / every)
    }
}

impl Cases for Inputs {
    fn run(&mut self, index: u64, tally: &mut Tally) -> Result<(), String> {
        let (at, case) = self.turn(index);
        let reader = self.readers[at];
        let full_name = format!("bytes/{}", reader.name);
        let mut stream = draws::of_case(self.seed, &full_name, case);
        let input = damaged(&mut stream, &self.seeds[at], reader.words);
        tally.count(&format!("inputs/{}", reader.name));
        let (held, started) = (counting::held(), processor_time());
        counting::forget_most();
        let outcome = (reader.call)(&input, self.scratch.path());
        let time = processor_time().saturating_sub(started);
        let most = counting::most().saturating_sub(held);
        let allowed = input.len() as u64 + reader.besides;
        tally.most(&format!("memory_ratio/{}", reader.name), most as f64 / allowed as f64);
        tally.most(&format!("milliseconds/{}", reader.name), time.as_secs_f64() * 1e3);
        outcome?;
        if most > allowed {
            return Err(format!("holds {most} bytes for an input of {}", input.len()));
        }
        if time > TIME {
            return Err(format!("takes {time:.1?} for an input of {} bytes", input.len()));
        }
        Ok(())
    }

    fn locate(&self, index: u64) -> Option<(String, u64)> {
        let (at, case) = self.turn(index);
        Some((format!("bytes/{}", self.readers[at].name), case))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader's case has the same number alone and among all readers.
    #[test]
    fn a_case_is_the_same_alone_and_among_all() {
        let all = open(&Environment::default(), "bytes").unwrap();
        let mut seen = std::collections::BTreeMap::new();
        for index in 0..2000 {
            let (name, case) = all.locate(index).unwrap();
            let next = seen.entry(name).or_insert(0);
            assert_eq!(*next, case);
            *next += 1;
        }
        assert_eq!(seen.len(), READERS.len());
        let alone = open(&Environment::default(), "bytes/meta").unwrap();
        assert_eq!(alone.locate(5), Some(("bytes/meta".to_owned(), 5)));
        assert!(open(&Environment::default(), "bytes/nothing").is_err());
    }
}
