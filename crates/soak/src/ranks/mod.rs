//! `ranks`: runs on three ranks of which one is killed, stopped, stuck, different from the others
//! or cut off. All ranks must end within a bound and say which rank it was; the checkpoint loads,
//! and the resumed run, on any number of ranks, has the bits of the undisturbed one.

mod faults;
mod machines;
mod started;

use crate::draws;
use crate::jobs::{GROUPED, Made, furnish, same};
use crate::scratch::{Scratch, copy_folder};
use crate::section::{Cases, Environment};
use crate::tally::Tally;
use faults::{FAULTS, Fault, Needs};
use machines::Machines;
use started::{Programs, Started};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The ranks of a run that is disturbed. Its gradients are summed in six groups, so that it can be
/// resumed on one, two or three ranks.
const RANKS: usize = 3;

/// All ranks must have ended so long after the fault, the silence included. Most of it is for
/// machines that do other things.
const BOUND: Duration = Duration::from_secs(30);

/// Iterations of the run that is there before a fault that keeps ranks from starting.
const HALF: &str = "--max_iters=5";

/// Names of all faults.
pub fn names() -> Vec<&'static str> {
    FAULTS.iter().map(|fault| fault.name).collect()
}

/// Needs an MPI with its `mpiexec`.
pub fn skipped(_: &Environment) -> Option<String> {
    match mpi::mpiexec() {
        Some(_) => None,
        None => Some(format!("there is no MPI with the standard ABI; {}", mpi::INSTALL)),
    }
}

/// Runs the job undisturbed.
///
/// # Errors
///
/// When it fails, or no fault has this name.
pub fn open(environment: &Environment, name: &str) -> Result<Box<dyn Cases>, String> {
    let part = name.split_once('/').map(|(_, part)| part);
    let wanted = |fault: &&Fault| part.is_none_or(|part| part == fault.name);
    let faults: Vec<&'static Fault> = FAULTS.iter().filter(wanted).collect();
    if faults.is_empty() {
        return Err(format!("no fault is called '{name}'; there are {}", names().join(", ")));
    }
    let mpiexec = mpi::mpiexec().ok_or("there is no mpiexec")?;
    let scratch = Scratch::new("ranks").map_err(|error| format!("scratch folder: {error}"))?;
    let programs = Programs { mpiexec, binary: environment.binary.clone() };
    let template = scratch.path().join("template");
    furnish(&template, 1000)?;
    let half = scratch.path().join("half");
    let whole = scratch.path().join("whole");
    for place in [&half, &whole] {
        copy_folder(&template, place).map_err(|error| error.to_string())?;
    }
    Started::new(&programs, &half, RANKS, &[HALF]).and_then(Started::finished)?;
    let start = Instant::now();
    Started::new(&programs, &whole, RANKS, &[]).and_then(Started::finished)?;
    let (once, want) = (start.elapsed(), GROUPED.made(&whole)?);
    let machines = match faults.iter().any(|fault| fault.needs == Needs::Machines) {
        true => Machines::new(),
        false => Err("not needed".to_owned()),
    };
    let library = crate::files::skipped(environment).map_or_else(
        || environment.faults.clone().ok_or_else(|| "there is no library".to_owned()),
        Err,
    );
    let seed = environment.seed;
    Ok(Box::new(Disturbed { seed, programs, scratch, faults, machines, library, want, once }))
}

/// The cases, with what all of them use.
struct Disturbed {
    seed: u64,
    programs: Programs,
    scratch: Scratch,
    faults: Vec<&'static Fault>,
    machines: Result<Machines, String>,
    /// What disturbs file system calls.
    library: Result<PathBuf, String>,
    want: Made,
    /// The time of the undisturbed run.
    once: Duration,
}

impl Disturbed {
    /// The fault of a case, and the case's number for it.
    fn turn(&self, index: u64) -> (&'static Fault, u64) {
        let count = self.faults.len() as u64;
        (self.faults[(index % count) as usize], index / count)
    }

    /// A fresh copy of the template or of the run that is half done.
    fn place(&self, name: &str, from: &str) -> Result<PathBuf, String> {
        let place = self.scratch.path().join(name);
        match std::fs::remove_dir_all(&place) {
            Err(error) if place.exists() => return Err(format!("scratch: {error}")),
            _ => {}
        }
        let copied = copy_folder(&self.scratch.path().join(from), &place);
        copied.map_err(|error| format!("scratch: {error}"))?;
        Ok(place)
    }
}

impl Cases for Disturbed {
    fn run(&mut self, index: u64, tally: &mut Tally) -> Result<(), String> {
        let (fault, case) = self.turn(index);
        let missing = match fault.needs {
            Needs::Nothing => None,
            Needs::Machines => self.machines.as_ref().err(),
            Needs::Library => self.library.as_ref().err(),
        };
        if let Some(why) = missing {
            tally.count(&format!("skipped/{}: {why}", fault.name));
            return Ok(());
        }
        let mut stream = draws::of_case(self.seed, &format!("ranks/{}", fault.name), case);
        let place = self.place("place", fault.from)?;
        let before = std::fs::read(place.join("out/last.safetensors")).ok();
        let (ended, blamed) = (fault.happens)(self, &place, &mut stream)?;
        match &ended.since {
            None => tally.count(&format!("idle/{}", fault.name)),
            Some(since) => {
                tally.count(&format!("fired/{}", fault.name));
                tally.most(&format!("seconds/{}", fault.name), since.as_secs_f64());
                let by = ended.blames(&blamed)?;
                tally.count(&format!("said/{}/{by}", fault.name));
            }
        }
        GROUPED.whole_or_absent(&place)?;
        let after = std::fs::read(place.join("out/last.safetensors")).ok();
        if fault.from == "half" && before != after {
            return Err("ranks that could not start have changed the checkpoint".to_owned());
        }
        let ranks = 1 + stream.below(RANKS as u64) as usize;
        let resumed = Started::new(&self.programs, &place, ranks, &[]);
        resumed.and_then(Started::finished)?;
        let made = GROUPED.made(&place)?;
        same(&made, &self.want).map_err(|what| format!("resumed on {ranks} ranks: {what}"))
    }

    fn locate(&self, index: u64) -> Option<(String, u64)> {
        let (fault, case) = self.turn(index);
        Some((format!("ranks/{}", fault.name), case))
    }
}
