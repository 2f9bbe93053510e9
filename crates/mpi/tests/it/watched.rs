//! MPI and the watch together, as a run has them: rank 0's address is told by MPI, the watch runs
//! on its own thread, and a rank whose main thread is stuck inside MPI still ends when another is
//! killed or stopped, or hangs outside MPI.

use crate::exchange::command;
use fitgpt_mpi::{World, leave, leave_together};
use plan::Exchange;
use ranks::meeting::{self, Meeting};
use ranks::{Facts, Farewell, MeetingPlace, Watch, WatchOptions};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const SILENCE: Duration = Duration::from_secs(2);

/// Starts MPI, meets by it, and starts the watch.
fn watched() -> (World, Watch) {
    let mut world = World::start().unwrap();
    let (rank, count) = (world.rank(), world.ranks());
    let (listener, port) = meeting::listen_anywhere().unwrap();
    let port = world.share(0, &port.to_le_bytes()).unwrap().try_into().unwrap();
    let port = u16::from_le_bytes(port);
    let place = MeetingPlace { host: "127.0.0.1".to_owned(), port, ports: 1 };
    let timeout = Duration::from_secs(30);
    let party = Meeting { rank, ranks: count, token: 7, timeout };
    let facts = Facts::new("1.0", Vec::new());
    let met = match rank {
        0 => party.host(listener, &facts, &[]),
        _ => party.join(&place, &facts),
    };
    let interval = Duration::from_millis(100);
    let options = WatchOptions { interval, silence: SILENCE, standstill: SILENCE };
    let end = |failure: &ranks::Failure| {
        // One write, so that the lines of ranks do not mix.
        let _ = std::io::stderr().write_all(format!("ended: {failure}\n").as_bytes());
        leave_together(5)
    };
    (world, Watch::start(met.unwrap(), options, end).unwrap())
}

/// Calls MPI until the end.
pub fn rank() {
    let (mut world, watch) = watched();
    println!("process {}", std::process::id());
    let count = world.ranks();
    let mut buffer = vec![0; 1000 * count];
    for iteration in 0.. {
        watch.progress(iteration);
        if let Err(error) = world.all_gather(&mut buffer, &vec![1000; count]) {
            let _ = watch.goodbye(Farewell::Failed(error.to_string()));
            leave(5);
        }
    }
}

/// One of the others hangs at iteration 3, while its process lives on.
pub fn hanging() {
    let (mut world, watch) = watched();
    let (count, steps) = (world.ranks(), watch.steps());
    let mut buffer = vec![0; 1000 * count];
    for iteration in 0.. {
        watch.progress(iteration);
        if iteration == 3 && world.rank() == 1 {
            std::thread::sleep(Duration::from_secs(1000));
        }
        steps.fetch_add(1, Ordering::Relaxed);
        world.all_gather(&mut buffer, &vec![1000; count]).unwrap();
    }
}

#[test]
fn a_rank_that_hangs_ends_itself_and_those_inside_mpi() {
    let Some(mut command) = command(3, "hanging") else { return };
    let start = Instant::now();
    let output = command.output().unwrap();
    let (took, said) = (start.elapsed(), String::from_utf8_lossy(&output.stderr));
    assert!((SILENCE..Duration::from_secs(20)).contains(&took), "{took:?}: {said}");
    assert_eq!(said.matches("ended: ").count(), 3, "all say it: {said}");
    // All leave with 5. If a rank gets no processor just then, the launcher kills it, and that is
    // what it reports.
    assert!(matches!(output.status.code(), Some(5 | 9)), "{:?}: {said}", output.status);
    let line = said.lines().find_map(|line| line.split_once("ended: ")).unwrap().1;
    assert!(line.starts_with("rank 1 on ") && line.contains(" has not moved for "), "{said}");
    assert!(line.contains(" s at iteration 3, and the others wait for it; the others"), "{said}");
}

/// Heartbeats take no memory, in any thread.
pub fn quiet() {
    let (mut world, watch) = watched();
    std::thread::sleep(Duration::from_millis(500));
    world.barrier().unwrap();
    let before = counting::calls();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(counting::calls(), before, "allocations during ten heartbeats");
    watch.goodbye(Farewell::Finished).unwrap();
    println!("quiet");
}

#[test]
fn a_watch_allocates_nothing() {
    let Some(mut command) = command(3, "quiet") else { return };
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(said.matches("quiet").count(), 3, "{said}");
}

/// Starts three ranks, sends a signal to the one that came last, and returns how long the others
/// lived, the code of `mpiexec` and all that was printed.
fn after_signal(signal: &str) -> Option<(Duration, Option<i32>, String)> {
    let mut command = command(3, "watched")?;
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let started = out.lines().map_while(Result::ok);
    let ids: Vec<String> = started
        .filter_map(|line| Some(line.split_once("process ")?.1.trim().to_owned()))
        .take(3)
        .collect();
    std::thread::sleep(Duration::from_millis(300));
    let victim = ids.last().unwrap().clone();
    let sent = Instant::now();
    assert!(Command::new("kill").args([signal, &victim]).status().unwrap().success());
    let mut waited = None;
    while waited.is_none() && sent.elapsed() < Duration::from_secs(30) {
        let alive = ids.iter().filter(|id| **id != victim && is_alive(id)).count();
        if alive == 0 {
            waited = Some(sent.elapsed());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = Command::new("kill").args(["-KILL", &victim]).stderr(Stdio::null()).status();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Some((waited.expect("the others end within the bound"), output.status.code(), said))
}

/// Neither gone nor a zombie.
fn is_alive(id: &str) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let state = state.rsplit_once(") ").map_or("", |(_, rest)| rest).chars().next();
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

#[test]
fn a_killed_rank_ends_those_inside_mpi() {
    let Some((took, code, said)) = after_signal("-KILL") else { return };
    assert!(took < Duration::from_secs(5), "{took:?}: {said}");
    assert_ne!(code, Some(0), "{said}");
}

#[test]
fn a_stopped_rank_ends_those_inside_mpi() {
    let Some((took, code, said)) = after_signal("-STOP") else { return };
    assert!(took < Duration::from_secs(15), "{took:?}: {said}");
    assert_ne!(code, Some(0), "{said}");
    assert!(said.contains("has been silent for 2 s, last seen at iteration "), "{said}");
}
