//! The watch on all ranks of a run. Every rank has a thread that sends a heartbeat each second;
//! rank 0 is in the middle. A rank whose connection breaks, or that is silent for too long, is
//! reported to all others, and on each of them a callback runs once. It runs on the watch's own
//! thread, so that it can end a process whose main thread is stuck in a call of MPI or NCCL. A
//! rank whose main thread is stuck elsewhere still sends heartbeats; they say how many steps it has
//! made, and rank 0 sees that it makes no more.

use crate::links::{Event, Heard, Kind, Link, NO_PROGRESS, Place};
use crate::meeting::{Met, Peer};
use crate::standing::{FINISHED, Held, PATIENCE, Standings};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a death is looked for that would explain an error.
const MOMENT: Duration = Duration::from_millis(200);

/// How long a rank waits until its last message was read.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Events that may wait for the watch's thread.
const WAITING: usize = 256;

/// The number of no connection: an event of the owner.
const OWNER: usize = usize::MAX;

/// How the watch is kept.
#[derive(Clone, Copy, Debug)]
pub struct WatchOptions {
    /// Between two heartbeats.
    pub interval: Duration,
    /// The silence after which a rank is given up.
    pub silence: Duration,
    /// How long all others may wait for a rank that makes no step, at least: if such waits were
    /// long and ended well, ten times the longest.
    pub standstill: Duration,
}

impl WatchOptions {
    /// A watch that is so patient. Heartbeats come at least each second.
    pub fn of(patience: Duration) -> WatchOptions {
        let interval = (patience / 4).min(Duration::from_secs(1));
        let standstill = patience.saturating_mul(PATIENCE);
        WatchOptions { interval, silence: patience, standstill }
    }
}

/// A rank that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which one.
    pub rank: usize,
    /// Its machine.
    pub host: String,
    /// What happened to it, and where all were: "died at iteration 12 (…)".
    pub reason: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} on {} {}", self.rank, self.host, self.reason)
    }
}

/// How far a failure is from its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// A rank died, or rank 0 has judged.
    Certain,
    /// A rank reports an error. It may follow from the death of another, of which MPI told it
    /// first.
    Reported,
}

/// How a rank leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// Its work is done.
    Finished,
    /// It cannot go on; the text says why and is passed on to the others.
    Failed(String),
}

/// What the owner and the thread of a watch have in common.
struct Shared {
    progress: AtomicU64,
    steps: Arc<AtomicU64>,
    /// Nanoseconds that this rank may still use for what the others do not do.
    allowed: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    farewell: Option<Farewell>,
    failure: Option<Failure>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where this rank is.
    fn place(&self) -> Place {
        let [iteration, steps] =
            [&self.progress, &*self.steps].map(|count| count.load(Ordering::Relaxed));
        Place { iteration, steps }
    }

    /// Takes time from what is allowed; the result is how much of it was.
    fn excuse(&self, time: Duration) -> Duration {
        let time = nanoseconds(time);
        let rest = |allowed: u64| Some(allowed.saturating_sub(time));
        let (set, read) = (Ordering::Relaxed, Ordering::Relaxed);
        let (Ok(allowed) | Err(allowed)) = self.allowed.fetch_update(set, read, rest);
        Duration::from_nanos(allowed.min(time))
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The watch of this rank. Dropped without a [`Watch::goodbye`], it tells the others that this rank
/// ended early.
pub struct Watch {
    shared: Arc<Shared>,
    /// Wakes the thread.
    events: SyncSender<Event>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a watch; failure: {:?}", self.failure())
    }
}

impl Watch {
    /// Starts it. `on_failure` runs at most once, on the watch's thread, when another rank is gone
    /// or any rank, this one included, holds up all others.
    ///
    /// # Errors
    /// The system has no thread, or the connections are broken already.
    pub fn start(
        met: Met,
        options: WatchOptions,
        on_failure: impl FnOnce(&Failure) + Send + 'static,
    ) -> std::io::Result<Watch> {
        let shared = Arc::new(Shared {
            progress: AtomicU64::new(NO_PROGRESS),
            steps: Arc::default(),
            allowed: AtomicU64::new(0),
            state: Mutex::default(),
        });
        let (events, heard) = sync_channel(WAITING);
        let mut round = Round::new(met, options, Arc::clone(&shared), &events, heard)?;
        let run = move || {
            if let Some(failure) = round.keep() {
                round.shared.state().failure = Some(failure.clone());
                on_failure(&failure);
            }
        };
        let thread = std::thread::Builder::new().name("fitgpt-watch".to_owned()).spawn(run)?;
        Ok(Watch { shared, events, thread: Some(thread) })
    }

    /// Says at which iteration this rank is. Costs nothing; the next heartbeat carries it.
    pub fn progress(&self, iteration: u64) {
        self.shared.progress.store(iteration, Ordering::Relaxed);
    }

    /// The count of steps, to be increased whenever this rank begins one. All ranks must count the
    /// same steps in the same order, and some between any two waits for each other.
    pub fn steps(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.shared.steps)
    }

    /// On rank 0: what follows is not done by the others and may take so long, such as a save. It
    /// replaces what was allowed before.
    pub fn allow(&self, time: Duration) {
        self.shared.allowed.store(nanoseconds(time), Ordering::Relaxed);
    }

    /// The rank that is gone, if one is.
    pub fn failure(&self) -> Option<Failure> {
        self.shared.state().failure.clone()
    }

    /// Leaves in an orderly way. Rank 0 waits for the goodbyes of all others, at most as long as a
    /// silence may last; they wait for its goodbye and keep watching it, so that a rank which dies
    /// or hangs at the very end is noticed too.
    ///
    /// # Errors
    /// A rank was gone before all had finished. For a rank that failed itself: another was gone
    /// before, so that its own failure is a consequence.
    pub fn goodbye(mut self, farewell: Farewell) -> Result<(), Failure> {
        self.leave(farewell);
        self.failure().map_or(Ok(()), Err)
    }

    fn leave(&mut self, farewell: Farewell) {
        let Some(thread) = self.thread.take() else { return };
        self.shared.state().farewell = Some(farewell);
        // If there is no room, the thread is awake anyway.
        let _ = self.events.try_send((OWNER, Heard::Closed(String::new())));
        // The callback's panic, if it was one, has been printed.
        let _ = thread.join();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let why = if std::thread::panicking() { "it panicked" } else { "it ended early" };
        self.leave(Farewell::Failed(why.to_owned()));
    }
}

/// Another rank, as the watch sees it.
struct Watched {
    rank: usize,
    host: String,
    link: Link,
    silent: Duration,
    at: Place,
    /// It said goodbye, and may close its connection.
    finished: bool,
    closed: bool,
}

impl Watched {
    fn new(peer: Peer, index: usize, events: &SyncSender<Event>) -> std::io::Result<Watched> {
        let link = Link::new(peer.stream, index, events.clone())?;
        let (rank, host) = (peer.rank, crate::facts::shown(&peer.host));
        let at = Place { iteration: NO_PROGRESS, steps: 0 };
        let silent = Duration::ZERO;
        Ok(Watched { rank, host, link, silent, at, finished: false, closed: false })
    }

    fn failure(&self, reason: String) -> Failure {
        Failure { rank: self.rank, host: self.host.clone(), reason }
    }

    /// Takes in what was heard of it. The result is what must end the run.
    fn hear(&mut self, heard: Heard) -> Option<(Cause, Failure)> {
        self.silent = Duration::ZERO;
        let (kind, about, at, text) = match heard {
            Heard::Message { kind, rank, at, text } => (kind, rank, at, text),
            Heard::Closed(said) => {
                self.closed = true;
                // Whoever said goodbye waits for this.
                self.link.end();
                let died = || self.failure(format!("died {} ({said})", iteration(self.at)));
                return (!self.finished).then(|| (Cause::Certain, died()));
            }
            Heard::Nonsense(said) => {
                self.closed = true;
                return Some((Cause::Certain, self.failure(format!("is not understood: {said}"))));
            }
        };
        match kind {
            Kind::Beat => self.at = at,
            Kind::Finished => self.finished = true,
            Kind::Failed => {
                self.finished = true;
                let reason = format!("failed {}: {}", iteration(at), line(&text));
                return Some((Cause::Reported, self.failure(reason)));
            }
            Kind::Gone => {
                let (host, reason) = text.split_once('\n').unwrap_or(("", &text));
                let (host, reason) = (line(host), line(reason));
                return Some((Cause::Certain, Failure { rank: about, host, reason }));
            }
        }
        None
    }
}

/// A text of another rank, on one line.
fn line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn iteration(at: Place) -> String {
    match at.iteration {
        NO_PROGRESS => "before the first iteration".to_owned(),
        iteration => format!("at iteration {iteration}"),
    }
}

/// What the thread of a watch has.
struct Round {
    rank: usize,
    host: String,
    others: Vec<Watched>,
    heard: Receiver<Event>,
    options: WatchOptions,
    tick: Duration,
    standings: Standings,
    shared: Arc<Shared>,
}

impl Round {
    fn new(
        met: Met,
        options: WatchOptions,
        shared: Arc<Shared>,
        events: &SyncSender<Event>,
        heard: Receiver<Event>,
    ) -> std::io::Result<Round> {
        let others = met.peers.into_iter().enumerate();
        let others = others.map(|(index, peer)| Watched::new(peer, index, events));
        let others = others.collect::<std::io::Result<Vec<_>>>()?;
        let standings = Standings::new(others.len() + 1, options.standstill);
        let (shortest, longest) = (Duration::from_millis(2), Duration::from_millis(250));
        let tick = (options.interval / 4).clamp(shortest, longest);
        let (rank, host) = (met.rank, crate::facts::shown(&met.host));
        Ok(Round { rank, host, others, heard, options, tick, standings, shared })
    }

    /// Keeps the watch until this rank leaves or another one is gone.
    fn keep(&mut self) -> Option<Failure> {
        let mut looked = Instant::now();
        let mut since_beat = self.options.interval;
        let mut since_goodbye = None;
        loop {
            let awake = self.awake_since(&mut looked);
            since_beat += awake;
            if since_beat >= self.options.interval {
                since_beat = Duration::ZERO;
                self.say(Kind::Beat);
            }
            if let Some(found) = self.look(awake, self.tick) {
                let failure = self.cause_of(found);
                return Some(self.spread(failure));
            }
            let farewell = self.shared.state().farewell.clone();
            match farewell {
                Some(Farewell::Failed(why)) => return self.fail(&why),
                Some(Farewell::Finished) if self.rank != 0 => {
                    if since_goodbye.is_none() {
                        since_goodbye = Some(Duration::ZERO);
                        self.say(Kind::Finished);
                    }
                    if self.others.iter().all(|other| other.finished) {
                        self.leave();
                        return None;
                    }
                }
                Some(Farewell::Finished) => {
                    let waited = since_goodbye.map_or(Duration::ZERO, |waited| waited + awake);
                    since_goodbye = Some(waited);
                    if self.others.iter().all(|other| other.finished) {
                        self.say(Kind::Finished);
                        self.leave();
                        return None;
                    }
                    if waited >= self.options.silence {
                        return self.unfinished().map(|failure| self.spread(failure));
                    }
                }
                None if self.rank == 0 => {
                    if let Some(failure) = self.judge(awake) {
                        return Some(self.spread(failure));
                    }
                }
                None => {}
            }
        }
    }

    /// Rank 0 compares how far all are. The result is the rank that holds up the others.
    fn judge(&mut self, awake: Duration) -> Option<Failure> {
        self.standings.note(0, self.shared.place().steps);
        for other in &self.others {
            let steps = if other.finished { FINISHED } else { other.at.steps };
            self.standings.note(other.rank, steps);
        }
        self.standings.pass(awake, self.shared.excuse(awake));
        self.standings.held().map(|held| self.stuck(held))
    }

    fn stuck(&self, Held { rank, stood }: Held) -> Failure {
        let other = self.others.iter().find(|other| other.rank == rank);
        let (host, at) = match other {
            Some(other) => (&other.host, other.at),
            None => (&self.host, self.shared.place()),
        };
        let (at, seconds) = (iteration(at), stood.as_secs());
        let beside: Vec<String> =
            self.standings.beside(rank).iter().map(|rank| format!("rank {rank}")).collect();
        let reason = match &beside[..] {
            [] => format!("has not moved for {seconds} s {at}, and the others wait for it"),
            beside => format!(
                "has not moved for {seconds} s {at}, nor has {}, and the others wait for them",
                beside.join(", ")
            ),
        };
        Failure { rank, host: host.clone(), reason }
    }

    /// The time since the last look, as far as this process ran: if it was stopped and goes on,
    /// nobody else is to blame for the silence.
    fn awake_since(&self, looked: &mut Instant) -> Duration {
        let now = Instant::now();
        let passed = now.saturating_duration_since(*looked);
        *looked = now;
        passed.min(self.options.interval.max(2 * self.tick))
    }

    /// Takes in what was heard, after waiting for the first of it. What is certain comes before
    /// what is reported, and that before who fell silent.
    fn look(&mut self, awake: Duration, patience: Duration) -> Option<(Cause, Failure)> {
        let mut found: Option<(Cause, Failure)> = None;
        for other in &mut self.others {
            other.silent += awake;
        }
        let mut event = self.heard.recv_timeout(patience).ok();
        while let Some((index, heard)) = event {
            let said = self.others.get_mut(index).and_then(|other| other.hear(heard));
            let is_certain = |found: &Option<_>| matches!(found, Some((Cause::Certain, _)));
            let is_better = is_certain(&said) && !is_certain(&found);
            found = if is_better { said } else { found.or(said) };
            event = self.heard.try_recv().ok();
        }
        let limit = self.options.silence;
        let silent = |other: &&Watched| !other.finished && !other.closed && other.silent >= limit;
        found.or_else(|| {
            let other = self.others.iter().find(silent)?;
            let (at, seconds) = (iteration(other.at), limit.as_secs_f64());
            let reason = format!("has been silent for {seconds} s, last seen {at}");
            Some((Cause::Certain, other.failure(reason)))
        })
    }

    /// Gives the death of another rank a moment to be seen.
    fn cause_of(&mut self, found: (Cause, Failure)) -> Failure {
        match found {
            (Cause::Reported, failure) => self.look_longer().unwrap_or(failure),
            (Cause::Certain, failure) => failure,
        }
    }

    fn look_longer(&mut self) -> Option<Failure> {
        let until = Instant::now() + MOMENT;
        while Instant::now() < until {
            let found = self.look(Duration::ZERO, MOMENT / 10);
            if let Some((Cause::Certain, failure)) = found {
                return Some(failure);
            }
        }
        None
    }

    fn unfinished(&self) -> Option<Failure> {
        let other = self.others.iter().find(|other| !other.finished)?;
        let (at, seconds) = (iteration(other.at), self.options.silence.as_secs_f64());
        Some(other.failure(format!("did not end within {seconds} s of rank 0, last seen {at}")))
    }

    /// Rank 0 tells all others, with where they were.
    fn spread(&mut self, mut failure: Failure) -> Failure {
        if self.rank != 0 {
            return failure;
        }
        let others = self.others.iter().map(|other| (other.rank, other.at));
        let all = others.chain([(0, self.shared.place())]);
        let all = all.filter(|(rank, _)| *rank != failure.rank).map(|(_, at)| at.iteration);
        let all = all.filter(|&iteration| iteration != NO_PROGRESS);
        if let (Some(first), Some(last)) = (all.clone().min(), all.max()) {
            let at = if first == last { format!("{first}") } else { format!("{first} to {last}") };
            failure.reason.push_str(&format!("; the others were at iteration {at}"));
        }
        let text = format!("{}\n{}", failure.host, failure.reason);
        self.tell(Kind::Gone, failure.rank, &text);
        failure
    }

    /// This rank cannot go on. The result is another rank that is the cause.
    fn fail(&mut self, why: &str) -> Option<Failure> {
        if self.rank != 0 {
            self.tell(Kind::Failed, self.rank, why);
            return self.linger().filter(|failure| failure.rank != self.rank);
        }
        if let Some(failure) = self.look_longer() {
            return Some(self.spread(failure));
        }
        let at = iteration(self.shared.place());
        let text = format!("{}\nfailed {at}: {}", self.host, line(why));
        self.tell(Kind::Gone, 0, &text);
        None
    }

    /// Tells all others something about this rank, and stays.
    fn say(&mut self, kind: Kind) {
        let at = self.shared.place();
        for other in self.others.iter_mut().filter(|other| !other.closed) {
            other.link.send(kind, self.rank, at, "");
        }
    }

    /// Leaves when all have finished.
    fn leave(&mut self) {
        for other in self.others.iter().filter(|other| !other.closed) {
            other.link.end();
        }
        self.linger();
    }

    /// Waits until rank 0 has read the last message, so that closing does not overtake it. The
    /// result is what rank 0 said or what happened to it.
    fn linger(&mut self) -> Option<Failure> {
        let mut found = None;
        let until = Instant::now() + LAST_WORDS;
        while Instant::now() < until && self.others.iter().any(|other| !other.closed) {
            found = found.or(self.look(Duration::ZERO, LAST_WORDS / 50));
        }
        found.map(|(_, failure)| failure)
    }

    /// Sends a last message to all that are still there.
    fn tell(&mut self, kind: Kind, about: usize, text: &str) {
        let at = self.shared.place();
        let mut there: Vec<&mut Watched> =
            self.others.iter_mut().filter(|other| !other.closed).collect();
        for other in &mut there {
            other.link.send(kind, about, at, text);
        }
        // Whoever failed still waits for an answer on this connection.
        if kind != Kind::Failed {
            there.iter().for_each(|other| other.link.end());
        }
    }
}
