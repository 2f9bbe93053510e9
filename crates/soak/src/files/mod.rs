//! `files`: injects file system faults into the real binary. A case picks a job, one of its file
//! system calls, and a fault: an error, a short write, a kill or a power cut. Afterwards every file
//! is complete or absent, an error has printed one message, and the same command resumes and
//! reaches the result of the undisturbed run.

mod disk;
mod record;

use crate::draws::{self, pick};
use crate::jobs::{Exit, JOBS, Job, Made, furnish, same};
use crate::scratch::{Scratch, copy_folder, same_times};
use crate::section::{Cases, Environment};
use crate::tally::Tally;
use disk::Disk;
use record::Call;
use rng::Stream;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Size of the texts: several batches, but quick to prepare.
const TEXT_BYTES: usize = 300_000;

/// Exit codes of a run that met an error: it continued without the file, or it reported the error.
const CODES: [i32; 2] = [0, 4];

/// What can happen at a call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    /// An error, by name and number.
    Error(&'static str, u32),
    /// Only a part is written.
    Short,
    /// kill -9 right before it.
    Kill,
    /// kill -9, and unsynced data may be lost.
    PowerCut,
    /// An error of a read.
    ReadError,
    /// Only a part is read.
    ShortRead,
}

/// Power cuts have the most variants, so they come most often.
const EVENTS: [Event; 11] = [
    Event::Error("ENOSPC", 28),
    Event::Error("EIO", 5),
    Event::Error("EDQUOT", 122),
    Event::Error("EINTR", 4),
    Event::Short,
    Event::Kill,
    Event::PowerCut,
    Event::PowerCut,
    Event::PowerCut,
    Event::ReadError,
    Event::ShortRead,
];

impl Event {
    fn word(self) -> String {
        match self {
            Event::Error(_, number) => number.to_string(),
            Event::ReadError => "5".to_owned(),
            Event::Short | Event::ShortRead => "short".to_owned(),
            Event::Kill | Event::PowerCut => "kill".to_owned(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Event::Error(name, _) => name,
            Event::Short => "short write",
            Event::Kill => "kill",
            Event::PowerCut => "power cut",
            Event::ReadError => "EIO of a read",
            Event::ShortRead => "short read",
        }
    }

    /// The calls it can happen to, as a value of `FITGPT_FAULTS_OF`.
    fn calls(self) -> &'static str {
        match self {
            Event::ReadError | Event::ShortRead => READS,
            Event::Short => WRITES,
            Event::Error(..) | Event::Kill | Event::PowerCut => CHANGES,
        }
    }
}

const CHANGES: &str = "changes";
const WRITES: &str = "writes";
const READS: &str = "reads";

/// If fewer changes are seen, the library is not interposed, because every job makes more.
const FEWEST_CHANGES: u64 = 10;

/// Number of calls of a run by kind; a write is also a change.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts {
    changes: u64,
    writes: u64,
    reads: u64,
}

impl Counts {
    fn of(calls: &[Call]) -> Counts {
        let count = |is: fn(&&Call) -> bool| calls.iter().filter(is).count() as u64;
        Counts {
            changes: count(|call| **call != Call::Read),
            writes: count(|call| matches!(call, Call::Write { .. })),
            reads: count(|call| **call == Call::Read),
        }
    }

    /// The number of calls that an event can happen to.
    fn for_event(self, event: Event) -> u64 {
        match event.calls() {
            READS => self.reads,
            WRITES => self.writes,
            _ => self.changes,
        }
    }
}

/// A job and the state of the folder that it starts from.
struct Scene {
    name: String,
    job: &'static Job,
    /// The folder that it starts from.
    start: PathBuf,
    want: Made,
    /// File system calls of the undisturbed run.
    calls: Counts,
}

/// Why faults cannot be injected here; `None` if they can.
pub fn skipped(environment: &Environment) -> Option<String> {
    if !cfg!(target_os = "linux") {
        return Some("libc's functions are interposed on Linux only".to_owned());
    }
    match &environment.faults {
        Some(path) if path.exists() => None,
        Some(path) => Some(format!("{} does not exist: build fitgpt-faults", path.display())),
        None => Some("no library to preload: give --faults".to_owned()),
    }
}

/// Runs every job undisturbed and counts its calls.
///
/// # Errors
///
/// When there is no library to preload, or a job fails.
pub fn open(environment: &Environment, _: &str) -> Result<Box<dyn Cases>, String> {
    let faults = environment.faults.clone().ok_or("no library to preload: give --faults")?;
    let scratch = Scratch::new("files").map_err(told)?;
    // Resolve links in the root, because the library compares paths literally.
    let root = scratch.path().canonicalize().map_err(told)?;
    let (seed, binary) = (environment.seed, environment.binary.clone());
    let mut files = Files { seed, binary, faults, root, scenes: Vec::new(), _scratch: scratch };
    let template = files.root.join("template");
    furnish(&template, TEXT_BYTES)?;
    for job in &JOBS {
        files.add_scene(job.name.to_owned(), job, &template)?;
    }
    // A run that was stopped in the middle has a checkpoint that must survive every fault.
    let resumed = files.root.join("resumed");
    copy_folder(&template, &resumed).map_err(told)?;
    let mut shorter = JOBS[0].command(&files.binary, &resumed);
    let ended = Exit::from(shorter.arg("--max_iters=10").output().map_err(told)?);
    ended.succeeded()?;
    files.add_scene("train, resumed".to_owned(), &JOBS[0], &resumed)?;
    Ok(Box::new(files))
}

fn told(error: impl Display) -> String {
    format!("scratch: {error}")
}

struct Files {
    seed: u64,
    binary: PathBuf,
    faults: PathBuf,
    root: PathBuf,
    scenes: Vec<Scene>,
    _scratch: Scratch,
}

impl Files {
    fn add_scene(&mut self, name: String, job: &'static Job, start: &Path) -> Result<(), String> {
        let record = self.root.join("record");
        let place = self.place("undisturbed", start)?;
        let mut command = self.command(job, &place, 0, "5");
        // Changes are always recorded, reads only if they count.
        command.env("FITGPT_FAULTS_RECORD", &record).env("FITGPT_FAULTS_OF", READS);
        Exit::from(command.output().map_err(told)?).succeeded()?;
        let calls = Counts::of(&self.recorded()?);
        if calls.changes < FEWEST_CHANGES || calls.writes == 0 || calls.reads == 0 {
            let binary = self.binary.display();
            return Err(format!("{name}: only {calls:?} were seen; is {binary} static?"));
        }
        let want = job.made(&place)?;
        self.scenes.push(Scene { name, job, start: start.to_owned(), want, calls });
        Ok(())
    }

    /// Reads and removes what the library recorded.
    fn recorded(&self) -> Result<Vec<Call>, String> {
        let record = self.root.join("record");
        let calls = record::parse(&std::fs::read(&record).map_err(told)?);
        std::fs::remove_file(&record).map_err(told)?;
        Ok(calls)
    }

    /// Whether the event of the last run happened; resets the flag.
    fn has_fired(&self) -> Result<bool, String> {
        let path = self.root.join("fired");
        let length = path.metadata().map_err(told)?.len();
        std::fs::remove_file(&path).map_err(told)?;
        Ok(length > 0)
    }

    /// Creates a folder of this name as an exact copy of another.
    fn place(&self, name: &str, start: &Path) -> Result<PathBuf, String> {
        let place = self.root.join(name);
        if place.exists() {
            std::fs::remove_dir_all(&place).map_err(told)?;
        }
        copy_folder(start, &place).map_err(told)?;
        Ok(place)
    }

    fn command(&self, job: &Job, place: &Path, at: u64, what: &str) -> Command {
        let mut command = job.command(&self.binary, place);
        command.env("LD_PRELOAD", &self.faults).env("FITGPT_FAULTS_ROOT", place);
        command.env("FITGPT_FAULTS_AT", at.to_string()).env("FITGPT_FAULTS_DO", what);
        command
    }

    /// Runs a scene with the event and leaves the folder in the resulting state.
    fn disturb(
        &self,
        scene: &Scene,
        event: Event,
        at: u64,
        draws: &mut Stream,
        tally: &mut Tally,
    ) -> Result<PathBuf, String> {
        let place = self.place("place", &scene.start)?;
        let record = self.root.join("record");
        let mut command = self.command(scene.job, &place, at, &event.word());
        command.env("FITGPT_FAULTS_OF", event.calls());
        command.env("FITGPT_FAULTS_FIRED", self.root.join("fired"));
        if event == Event::PowerCut {
            command.env("FITGPT_FAULTS_RECORD", &record);
        }
        let ended = Exit::from(command.output().map_err(told)?);
        let code = ended.code.map_or("killed".to_owned(), |code| code.to_string());
        tally.count(&format!("ended/{code}"));
        match self.has_fired()? {
            true => tally.count(&format!("fired/{}", event.name())),
            // The run made fewer calls this time, or there was nothing to shorten.
            false => tally.count("idle"),
        }
        if event != Event::PowerCut {
            clean(event, &ended)?;
            return Ok(place);
        }
        let mut disk = Disk::read(&scene.start).map_err(told)?;
        for call in self.recorded()? {
            disk.play(&call);
        }
        let left = self.root.join("left");
        if left.exists() {
            std::fs::remove_dir_all(&left).map_err(told)?;
        }
        disk.cut_power(draws, &left).map_err(told)?;
        same_times(&scene.start, &left).map_err(told)?;
        let last = Path::new("out/last.safetensors");
        if disk.was_synced(last) && !left.join(last).exists() {
            return Err("a synced checkpoint is gone".to_owned());
        }
        Ok(left)
    }
}

/// Checks that an error ended in at most one message, and not in a panic.
fn clean(event: Event, ended: &Exit) -> Result<(), String> {
    let killed = event == Event::Kill;
    let code = ended.code.map_or(killed, |code| CODES.contains(&code));
    let errors = ended.errors.lines().filter(|line| line.starts_with("error: ")).count();
    let told = ended.code != Some(4) || errors == 1;
    let panicked = ended.errors.contains("panicked");
    match code && told && !panicked {
        true => Ok(()),
        false => Err(format!("ended with {:?}: {}", ended.code, ended.errors.trim())),
    }
}

impl Cases for Files {
    fn run(&mut self, index: u64, tally: &mut Tally) -> Result<(), String> {
        let mut stream = draws::of_case(self.seed, "files", index);
        let scene = &self.scenes[(index % self.scenes.len() as u64) as usize];
        let event = *pick(&mut stream, &EVENTS);
        let at = draws::between(&mut stream, 1, scene.calls.for_event(event));
        let said = |what: String| {
            let (event, calls) = (event.name(), event.calls());
            format!("{}, {event} at {at} of its {calls}: {what}", scene.name)
        };
        let place = self.disturb(scene, event, at, &mut stream, tally).map_err(said)?;
        let had_one = scene.start.join("out/last.safetensors").exists();
        if had_one && !place.join("out/last.safetensors").exists() {
            return Err(said("the existing checkpoint is gone".to_owned()));
        }
        scene.job.whole_or_absent(&place).map_err(said)?;
        let ended = scene.job.run(&self.binary, &place)?;
        let outcome = ended.succeeded().and_then(|()| same(&scene.job.made(&place)?, &scene.want));
        outcome.map_err(|what| said(format!("then {what}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_drawn_from_the_calls_that_they_can_happen_to() {
        let write = Call::Write { number: 1, at: None, bytes: vec![1] };
        let calls = [Call::Read, write, Call::Sync { number: 1 }, Call::Read, Call::Read];
        let counts = Counts::of(&calls);
        assert_eq!(counts, Counts { changes: 2, writes: 1, reads: 3 });
        for event in EVENTS {
            let want = match event {
                Event::ReadError | Event::ShortRead => 3,
                Event::Short => 1,
                _ => 2,
            };
            assert_eq!(counts.for_event(event), want, "{event:?}");
        }
    }

    #[test]
    fn without_the_library_there_is_a_reason() {
        let of = |faults: Option<&str>| {
            let faults = faults.map(PathBuf::from);
            skipped(&Environment { faults, ..Environment::default() })
        };
        assert!(of(None).is_some() && of(Some("/nowhere/libfaults.so")).is_some());
        assert_eq!(of(Some("/dev/null")).is_none(), cfg!(target_os = "linux"));
    }
}
