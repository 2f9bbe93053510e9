//! Ranks as processes of this test program: killed, stopped, and cut off while their main thread
//! is stuck. The others end by themselves with the line that names the rank.

use crate::fixture::facts;
use fitgpt_ranks::launch::{self, MEETING};
use fitgpt_ranks::meeting::{self, Meeting};
use fitgpt_ranks::{Farewell, Watch, WatchOptions};
use requires::{Need, absent};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const RANKS: usize = 3;
pub const SILENCE: Duration = Duration::from_secs(2);

/// Processes that are not left behind when a test fails.
pub struct Rank(Child);

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a rank of these tests does; nothing in an ordinary run of them.
#[test]
fn a_rank() {
    if std::env::var_os("FITGPT_RANKS_CHILD").is_none() {
        return;
    }
    let launch = launch::from_variables(&|name| std::env::var(name).ok()).unwrap();
    let place = launch.meeting.clone().unwrap();
    let facts = facts(launch.rank, &[("lr", "1")]);
    let met = match launch.rank {
        0 => Meeting::of(&launch).host(meeting::listen(&place).unwrap(), &facts, b"id"),
        _ => Meeting::of(&launch).join(&place, &facts),
    };
    let interval = Duration::from_millis(100);
    let options = WatchOptions { interval, ..WatchOptions::of(SILENCE) };
    let on_failure = |failure: &fitgpt_ranks::Failure| {
        eprintln!("ended: {failure}");
        std::process::exit(5);
    };
    let watch = Watch::start(met.unwrap(), options, on_failure).unwrap();
    println!("ready: {launch}");
    let mut word = String::new();
    // The main thread is stuck here, as it would be in a call of MPI.
    std::io::stdin().read_line(&mut word).unwrap();
    watch.goodbye(Farewell::Finished).unwrap();
    println!("finished");
}

fn start() -> Vec<Rank> {
    let (listener, port) = meeting::listen_anywhere().unwrap();
    drop(listener);
    start_at(&format!("127.0.0.1:{port}"), |_| Command::new(std::env::current_exe().unwrap()))
}

/// Starts all ranks, which meet at this address, each by its command, and waits until they watch.
pub fn start_at(address: &str, command: impl Fn(usize) -> Command) -> Vec<Rank> {
    let children = (0..RANKS).map(|rank| {
        let mut command = command(rank);
        command.args(["--exact", "processes::a_rank", "--nocapture", "--test-threads=1"]);
        command.env("FITGPT_RANKS_CHILD", "1").env(MEETING, address);
        command.env("FITGPT_RANK", rank.to_string()).env("FITGPT_RANKS", RANKS.to_string());
        command.env("FITGPT_LOCAL_RANK", rank.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Rank(command.spawn().unwrap())
    });
    let mut children: Vec<Rank> = children.collect();
    for (rank, child) in children.iter_mut().enumerate() {
        let out = BufReader::new(child.0.stdout.as_mut().unwrap());
        let want = format!("ready: rank {rank} of {RANKS}, from fitgpt --gpus");
        assert!(out.lines().any(|line| line.unwrap().contains(&want)), "rank {rank}");
    }
    children
}

fn signal(Rank(child): &Rank, name: &str) -> bool {
    let done = Command::new("kill").args([name, &child.id().to_string()]).status();
    done.is_ok_and(|status| status.success())
}

/// The code and the last words of a rank that ends by itself.
pub fn ended(Rank(child): &mut Rank) -> (Option<i32>, String) {
    let until = Instant::now() + Duration::from_secs(30);
    while child.try_wait().unwrap().is_none() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    let status = child.try_wait().unwrap().expect("it ends within the bound");
    let mut said = String::new();
    child.stderr.as_mut().unwrap().read_to_string(&mut said).unwrap();
    (status.code(), said)
}

#[test]
fn a_killed_rank_ends_the_others_at_once() {
    for victim in 0..RANKS {
        let mut children = start();
        let mut killed = children.remove(victim);
        killed.0.kill().unwrap();
        killed.0.wait().unwrap();
        let started = Instant::now();
        for child in &mut children {
            let (code, said) = ended(child);
            assert_eq!(code, Some(5), "{said}");
            let want = format!("ended: rank {victim} on host{victim} died before the first");
            assert!(said.contains(&want), "{said}");
        }
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    }
}

#[test]
fn a_stopped_rank_ends_the_others_within_the_bound() {
    for victim in 0..RANKS {
        let mut children = start();
        let mut stopped = children.remove(victim);
        if !signal(&stopped, "-STOP") {
            return absent(Need::Linux, "there is no `kill`");
        }
        let started = Instant::now();
        for child in &mut children {
            let (code, said) = ended(child);
            assert_eq!(code, Some(5), "{said}");
            let want = format!("rank {victim} on host{victim} has been silent for 2 s, last seen");
            assert!(said.contains(&want), "{said}");
        }
        let took = started.elapsed();
        assert!((SILENCE / 2..Duration::from_secs(15)).contains(&took), "{took:?}");
        // When it goes on, it learns that it was given up.
        assert!(signal(&stopped, "-CONT"));
        let (code, said) = ended(&mut stopped);
        assert_eq!(code, Some(5), "{said}");
    }
}

/// Ctrl-Z stops all ranks; nobody is to blame when they go on.
#[test]
fn ranks_that_were_all_stopped_go_on() {
    let mut children = start();
    if !children.iter().all(|child| signal(child, "-STOP")) {
        return absent(Need::Linux, "there is no `kill`");
    }
    std::thread::sleep(SILENCE + Duration::from_secs(1));
    assert!(children.iter().all(|child| signal(child, "-CONT")));
    std::thread::sleep(Duration::from_millis(500));
    for child in &mut children {
        assert!(child.0.try_wait().unwrap().is_none(), "{:?}", ended(child));
        drop(child.0.stdin.take());
    }
    for child in &mut children {
        let (code, said) = ended(child);
        assert_eq!(code, Some(0), "{said}");
    }
}
