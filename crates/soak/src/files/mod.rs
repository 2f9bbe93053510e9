//! `files`: the file system as an adversary of the real binary. A case picks a job, one of its
//! file system calls, and what happens there: an error, a short write, a kill, a power cut. What is
//! left is whole or absent; an error ends in one message; the same command then goes on to the
//! result of the undisturbed run.

mod disk;
mod record;

use crate::draws::{self, pick};
use crate::jobs::{Ended, JOBS, Job, Made, furnish, same};
use crate::scratch::{Scratch, copy_folder, same_times};
use crate::section::{Cases, Context};
use crate::tally::Tally;
use disk::Disk;
use record::Call;
use rng::Stream;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Texts of this size: several batches, and a moment for all of them.
const TEXT_BYTES: usize = 300_000;

/// Exit codes of a run that met an error: it went on without, or it said so.
const CODES: [i32; 2] = [0, 4];

/// What can happen at a call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    /// This error, by name and number.
    Error(&'static str, u32),
    /// Only a part is written, or read.
    Short,
    /// kill -9 right before it.
    Kill,
    /// The same, and what was not safe is lost.
    PowerCut,
    /// An error of a read.
    ReadError,
    /// A part of what was asked for is read.
    ShortRead,
}

/// Power cuts are the richest, so they come most often.
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

    /// The calls it can happen to, as the library's `FITGPT_FAULTS_OF` names them.
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

/// Fewer changes than any job makes: the library does not see them.
const FEWEST_CHANGES: u64 = 10;

/// Calls of a run, by what they do; a write is a change as well.
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

    /// Those that an event can happen to.
    fn for_event(self, event: Event) -> u64 {
        match event.calls() {
            READS => self.reads,
            WRITES => self.writes,
            _ => self.changes,
        }
    }
}

/// A job from a state of its folder on.
struct Scene {
    name: String,
    job: &'static Job,
    /// Where it starts from.
    start: PathBuf,
    want: Made,
    /// File system calls of the undisturbed run.
    calls: Counts,
}

/// Why there can be no faults here; none where there can.
pub fn skipped(context: &Context) -> Option<String> {
    if !cfg!(target_os = "linux") {
        return Some("libc's functions are interposed on Linux only".to_owned());
    }
    match &context.faults {
        Some(path) if path.exists() => None,
        Some(path) => Some(format!("{} is not there: build fitgpt-faults", path.display())),
        None => Some("no library to preload: give --faults".to_owned()),
    }
}

/// Runs every job undisturbed and counts its calls.
///
/// # Errors
///
/// When there is no library to preload, or a job fails.
pub fn open(context: &Context, _: &str) -> Result<Box<dyn Cases>, String> {
    let faults = context.faults.clone().ok_or("no library to preload: give --faults")?;
    let scratch = Scratch::new("files").map_err(told)?;
    // Where the root really is: the library compares paths as they are used.
    let root = scratch.path().canonicalize().map_err(told)?;
    let (seed, binary) = (context.seed, context.binary.clone());
    let mut files = Files { seed, binary, faults, root, scenes: Vec::new(), _scratch: scratch };
    let template = files.root.join("template");
    furnish(&template, TEXT_BYTES)?;
    for job in &JOBS {
        files.add_scene(job.name.to_owned(), job, &template)?;
    }
    // A run that was ended in the middle has a checkpoint that must survive all of it.
    let resumed = files.root.join("resumed");
    copy_folder(&template, &resumed).map_err(told)?;
    let mut shorter = JOBS[0].command(&files.binary, &resumed);
    let ended = Ended::from(shorter.arg("--max_iters=10").output().map_err(told)?);
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
        // Changes are always recorded, reads only where they count.
        command.env("FITGPT_FAULTS_RECORD", &record).env("FITGPT_FAULTS_OF", READS);
        Ended::from(command.output().map_err(told)?).succeeded()?;
        let calls = Counts::of(&self.recorded()?);
        if calls.changes < FEWEST_CHANGES || calls.writes == 0 || calls.reads == 0 {
            let binary = self.binary.display();
            return Err(format!("{name}: only {calls:?} were seen; is {binary} static?"));
        }
        let want = job.made(&place)?;
        self.scenes.push(Scene { name, job, start: start.to_owned(), want, calls });
        Ok(())
    }

    /// What the library recorded; the file is gone after.
    fn recorded(&self) -> Result<Vec<Call>, String> {
        let record = self.root.join("record");
        let calls = record::parse(&std::fs::read(&record).map_err(told)?);
        std::fs::remove_file(&record).map_err(told)?;
        Ok(calls)
    }

    /// Whether the event of the last run happened; forgotten then.
    fn has_fired(&self) -> Result<bool, String> {
        let path = self.root.join("fired");
        let length = path.metadata().map_err(told)?.len();
        std::fs::remove_file(&path).map_err(told)?;
        Ok(length > 0)
    }

    /// A folder of this name that holds a copy of another, and nothing else.
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

    /// Starts a scene, lets the event happen, and leaves the folder as it then is.
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
        let ended = Ended::from(command.output().map_err(told)?);
        let code = ended.code.map_or("killed".to_owned(), |code| code.to_string());
        tally.count(&format!("ended/{code}"));
        match self.has_fired()? {
            true => tally.count(&format!("fired/{}", event.name())),
            // The run made fewer calls this time, or there was nothing to cut.
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
            return Err("a checkpoint that was made safe is gone".to_owned());
        }
        Ok(left)
    }
}

/// An error ends in one message or none, never in a panic.
fn clean(event: Event, ended: &Ended) -> Result<(), String> {
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
            return Err(said("the checkpoint that was there is gone".to_owned()));
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
            skipped(&Context { faults, ..Context::default() })
        };
        assert!(of(None).is_some() && of(Some("/nowhere/libfaults.so")).is_some());
        assert_eq!(of(Some("/dev/null")).is_none(), cfg!(target_os = "linux"));
    }
}
