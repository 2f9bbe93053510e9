//! The faults: what happens to a run, and which rank all others must blame.

use super::machines::FIRST;
use super::started::{Blamed, Ended, SILENCE, Started};
use super::{BOUND, Disturbed, RANKS};
use crate::draws::pick;
use crate::jobs::GROUPED;
use crate::scratch::put;
use rng::Stream;
use rustix::process::Signal;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

/// How a run ended, and who is to blame; the error is a finding.
type Happened = Result<(Ended, Blamed), String>;

/// Starts a run in a folder, disturbs it, and waits for its end.
type Happens = fn(&Disturbed, &Path, &mut Stream) -> Happened;

/// One row of the table.
pub struct Fault {
    pub name: &'static str,
    /// The folder that the run starts in: "template" is empty, "half" has a checkpoint, of a run
    /// that the fault keeps from starting again.
    pub from: &'static str,
    pub needs: Needs,
    pub happens: Happens,
}

/// What a fault needs besides MPI.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    /// Two machines.
    Machines,
    /// The library that disturbs file system calls.
    Library,
}

const fn fault(name: &'static str, from: &'static str, needs: Needs, happens: Happens) -> Fault {
    Fault { name, from, needs, happens }
}

/// All faults.
pub const FAULTS: [Fault; 7] = [
    fault("kill", "template", Needs::Nothing, kill),
    fault("stop", "template", Needs::Nothing, stop),
    fault("hang", "template", Needs::Library, hang),
    fault("config", "half", Needs::Nothing, config),
    fault("data", "template", Needs::Nothing, data),
    fault("port", "half", Needs::Nothing, port),
    fault("link", "template", Needs::Machines, link),
];

/// Keys of which a rank may have another value, also in a resumed run.
const OTHER_KEYS: [(&str, &str); 6] = [
    ("learning_rate", "--learning_rate=0.05"),
    ("weight_decay", "--weight_decay=0.2"),
    ("grad_clip", "--grad_clip=0.5"),
    ("eval_interval", "--eval_interval=4"),
    ("eval_iters", "--eval_iters=2"),
    ("max_iters", "--max_iters=13"),
];

/// A fault comes within this fraction of the undisturbed run's time.
const WITHIN: f64 = 0.7;

/// kill -9 of one rank.
fn kill(all: &Disturbed, place: &Path, draws: &mut Stream) -> Happened {
    signal(all, place, draws, Signal::KILL)
}

/// A rank that neither dies nor answers.
fn stop(all: &Disturbed, place: &Path, draws: &mut Stream) -> Happened {
    signal(all, place, draws, Signal::STOP)
}

fn signal(all: &Disturbed, place: &Path, draws: &mut Stream, signal: Signal) -> Happened {
    let rank = draws.below(RANKS as u64) as usize;
    let time = all.once.mul_f64(WITHIN * draws.uniform_f64());
    let mut run = Started::new(&all.programs, place, RANKS, &[])?;
    let sent = if run.runs_for(time) { run.signal(rank, signal) } else { None };
    Ok((run.after(sent)?, Blamed { ranks: vec![rank], words: "rank " }))
}

/// The file system calls of rank 0 among which one hangs: most of an undisturbed run's.
const CALLS: u64 = 150;

/// The disk of rank 0 is dead from one of its calls on, while the process lives.
fn hang(all: &Disturbed, place: &Path, draws: &mut Stream) -> Happened {
    let library = all.library.as_ref().map_err(Clone::clone)?;
    let root = place.canonicalize().map_err(|error| error.to_string())?.join("out");
    let (fired, at) = (place.join("fired"), (1 + draws.below(CALLS)).to_string());
    let mut run = Started::each(&all.programs, place, &|command| {
        command.args(["-n", "1", "-env", "LD_PRELOAD"]).arg(library);
        command.args(["-env", "FITGPT_FAULTS_ROOT"]).arg(&root);
        command.args(["-env", "FITGPT_FAULTS_FIRED"]).arg(&fired);
        command.args(["-env", "FITGPT_FAULTS_DO", "hang", "-env", "FITGPT_FAULTS_AT", &at]);
        command.arg(&all.programs.binary).args(GROUPED.arguments(place));
        command.args([":", "-n", &(RANKS - 1).to_string()]).arg(&all.programs.binary);
        command.args(GROUPED.arguments(place));
    })?;
    let has_fired = || std::fs::metadata(&fired).is_ok_and(|found| found.len() > 0);
    while !has_fired() && run.runs_for(Duration::from_millis(5)) {}
    let sent = has_fired().then(Instant::now);
    // Rank 0 may go on until its next save, and then as long as a rank may stand still.
    let ended = run.after_within(BOUND + 10 * SILENCE, sent)?;
    Ok((ended, Blamed { ranks: vec![0], words: "has not moved for " }))
}

/// One rank has another value of a key.
fn config(all: &Disturbed, place: &Path, draws: &mut Stream) -> Happened {
    let odd = draws.below(RANKS as u64) as usize;
    let (key, other) = *pick(draws, &OTHER_KEYS);
    let began = Instant::now();
    let run = Started::each(&all.programs, place, &|command| {
        for rank in 0..RANKS {
            command.args(if rank > 0 { &[":", "-n", "1"][..] } else { &["-n", "1"] });
            command.arg(&all.programs.binary).args(GROUPED.arguments(place));
            command.args((rank == odd).then_some(other));
        }
    })?;
    // Rank 0 is what the others are compared with.
    Ok((run.after(Some(began))?, Blamed { ranks: vec![odd.max(1)], words: key }))
}

/// One rank has another data set of the same name.
fn data(all: &Disturbed, place: &Path, draws: &mut Stream) -> Happened {
    let odd = draws.below(RANKS as u64) as usize;
    let other = all.place("other", "template")?;
    let file = other.join("data/tiny/train.bin");
    let mut tokens = std::fs::read(&file).map_err(|error| error.to_string())?;
    let at = 2 * draws.below(tokens.len() as u64 / 2) as usize;
    tokens[at] = u8::from(tokens[at] == 0);
    put(&file, &tokens).map_err(|error| error.to_string())?;
    let began = Instant::now();
    let run = Started::each(&all.programs, place, &|command| {
        for rank in 0..RANKS {
            command.args((rank > 0).then_some(":"));
            command.arg("-wdir").arg(if rank == odd { &other } else { place });
            command.args(["-n", "1"]).arg(&all.programs.binary).args(GROUPED.arguments(place));
        }
    })?;
    Ok((run.after(Some(began))?, Blamed { ranks: vec![odd.max(1)], words: "train.bin" }))
}

/// The port of the meeting is taken, or one rank knocks at another one.
fn port(all: &Disturbed, place: &Path, draws: &mut Stream) -> Happened {
    let taken = TcpListener::bind("127.0.0.1:0").and_then(|l| Ok((l.local_addr()?, l)));
    let (there, listener) = taken.map_err(|error| error.to_string())?;
    let free = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
    let nobody = free.map_err(|error| error.to_string())?.to_string();
    let odd = draws.below(RANKS as u64) as usize;
    let there = there.to_string();
    if odd > 0 {
        drop(listener);
    }
    let began = Instant::now();
    let run = Started::each(&all.programs, place, &|command| {
        for rank in 0..RANKS {
            let address = if odd > 0 && rank == odd { &nobody } else { &there };
            command.args((rank > 0).then_some(":"));
            command.args(["-n", "1", "-env", "FITGPT_MEETING", address]);
            command.arg(&all.programs.binary).args(GROUPED.arguments(place));
        }
    })?;
    // Whoever knocks at the wrong port misses rank 0.
    let ranks = if odd > 0 { vec![odd, 0] } else { vec![0] };
    Ok((run.after(Some(began))?, Blamed { ranks, words: "rank " }))
}

/// The cable between two machines is cut: ranks 0 and 1 are on one side, rank 2 on the other.
fn link(all: &Disturbed, place: &Path, draws: &mut Stream) -> Happened {
    let machines = all.machines.as_ref().map_err(Clone::clone)?;
    machines.mend()?;
    let time = all.once.mul_f64(WITHIN * draws.uniform_f64());
    let port = 20_000 + draws.below(9_000);
    let mut run = Started::each(&all.programs, place, &|command| {
        command.env("FITGPT_MEETING", format!("{FIRST}:{port}"));
        for (machine, ranks) in [(0, "2"), (1, "1")] {
            command.args((machine > 0).then_some(":")).args(["-n", ranks]);
            command.args(machines.on(machine)).arg(&all.programs.binary);
            command.args(GROUPED.arguments(place));
        }
    })?;
    let is_running = run.runs_for(time);
    machines.cut()?;
    let ended = run.after(is_running.then(Instant::now))?;
    // Each side misses the other.
    Ok((ended, Blamed { ranks: vec![0, 2], words: "rank " }))
}
