//! `kills`: kill -9 at random moments, then the same command again until it is done. After each
//! kill every file is complete or absent, and the final result equals that of an undisturbed run.

use crate::draws;
use crate::jobs::{JOBS, Job, Made, furnish, same};
use crate::scratch::{Scratch, copy_folder};
use crate::section::{Cases, Environment};
use crate::tally::Tally;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Most kills in a case; after that the job may finish.
const MOST_KILLS: u32 = 12;

/// A kill comes within this fraction of the undisturbed run's time.
const WITHIN: f64 = 0.6;

/// Texts of this size keep `prepare` busy long enough to be killed between two safe states.
const TEXT_BYTES: usize = 6 << 20;

/// The order of jobs. `train` has two turns, because a resumed training run is short and gets fewer
/// kills in a case.
const TURNS: [usize; 4] = [0, 1, 0, 2];

/// Runs every job undisturbed.
///
/// # Errors
///
/// When one fails.
pub fn open(environment: &Environment, _: &str) -> Result<Box<dyn Cases>, String> {
    open_with(environment, TEXT_BYTES)
}

/// Like [`open`], with texts of another size.
///
/// # Errors
///
/// When a job fails.
pub fn open_with(environment: &Environment, text_bytes: usize) -> Result<Box<dyn Cases>, String> {
    let scratch = Scratch::new("kills").map_err(|error| format!("scratch folder: {error}"))?;
    let template = scratch.path().join("template");
    furnish(&template, text_bytes)?;
    let mut undisturbed = Vec::new();
    for job in &JOBS {
        let place = scratch.path().join("undisturbed");
        copy_folder(&template, &place).map_err(|error| error.to_string())?;
        let start = Instant::now();
        job.run(&environment.binary, &place)?.succeeded()?;
        undisturbed.push((job, job.made(&place)?, start.elapsed()));
        std::fs::remove_dir_all(&place).map_err(|error| error.to_string())?;
    }
    let (seed, binary) = (environment.seed, environment.binary.clone());
    Ok(Box::new(Kills { seed, binary, scratch, undisturbed }))
}

struct Kills {
    seed: u64,
    binary: PathBuf,
    scratch: Scratch,
    undisturbed: Vec<(&'static Job, Made, Duration)>,
}

impl Cases for Kills {
    fn run(&mut self, index: u64, tally: &mut Tally) -> Result<(), String> {
        let mut stream = draws::of_case(self.seed, "kills", index);
        let (job, want, once) = &self.undisturbed[TURNS[(index % TURNS.len() as u64) as usize]];
        let place = self.scratch.path().join("place");
        match std::fs::remove_dir_all(&place) {
            Err(error) if place.exists() => return Err(format!("scratch: {error}")),
            _ => {}
        }
        let template = self.scratch.path().join("template");
        copy_folder(&template, &place).map_err(|error| format!("scratch: {error}"))?;
        let mut ended = None;
        let mut kills = 0;
        while ended.is_none() && kills < MOST_KILLS {
            let time = once.mul_f64(WITHIN * stream.uniform_f64());
            ended = job.run_for(&self.binary, &place, time)?;
            if ended.is_none() {
                kills += 1;
                tally.count("kills");
                tally.count(&format!("kills/{}", job.name));
                let whole = job.whole_or_absent(&place);
                whole.map_err(|what| format!("{} after {kills} kills: {what}", job.name))?;
            }
        }
        let ended = match ended {
            Some(ended) => ended,
            None => job.run(&self.binary, &place)?,
        };
        let outcome = ended.succeeded().and_then(|()| same(&job.made(&place)?, want));
        outcome.map_err(|what| format!("{} after {kills} kills: {what}", job.name))
    }
}
