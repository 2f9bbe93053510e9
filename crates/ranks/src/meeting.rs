//! The meeting of all ranks before a run: rank 0 listens, the others come, each with its [`Facts`].
//! If all agree, everybody gets the same bytes (NCCL's id) and the connections stay open for the
//! watch. If one differs or is missing, all are told which one, in one line.

use crate::facts::{Facts, LONGEST_FACTS, shown};
use crate::frames::{
    GREETING, Greeted, PROTOCOL, Side, Timed, greeted, greeting, read_frame, write_frame,
};
use crate::launch::{Launch, MeetingPlace};
use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use thiserror::Error;

/// The longest payload.
pub const LONGEST_PAYLOAD: usize = 1 << 16;
const LONGEST_ANSWER: usize = 1 << 14;

/// How long a stranger on the port may take, and how many are listened to at once.
const GREETING_TIME: Duration = Duration::from_secs(2);
const FACTS_TIME: Duration = Duration::from_secs(10);
const MOST_AT_ONCE: usize = 512;

/// Between two looks at the port.
const LOOK: Duration = Duration::from_millis(5);
const AGAIN: Duration = Duration::from_millis(100);

/// Why ranks did not meet. Each is one line that all of them print.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum MeetError {
    /// Some did not come.
    #[error("{who} did not arrive within {seconds} s at {place}; is the port open to its machine?")]
    Missing {
        /// "rank 3 of 4".
        who: String,
        /// How long rank 0 waited.
        seconds: u64,
        /// Where.
        place: String,
    },
    /// They came and do not fit together.
    #[error("{0}")]
    Refused(String),
    /// Rank 0 does not answer.
    #[error("rank 0 did not answer within {seconds} s at {place}: {said}")]
    Unreachable {
        /// How long this rank tried.
        seconds: u64,
        /// Where.
        place: String,
        /// What the system said last.
        said: String,
    },
    /// No port is free.
    #[error("rank 0 cannot listen at {place}: {said}")]
    Listen {
        /// Where.
        place: String,
        /// What the system said last.
        said: String,
    },
    /// Rank 0 was there and is gone.
    #[error("rank 0 at {place} is gone before all ranks met: {said}")]
    Gone {
        /// Where.
        place: String,
        /// What the system said.
        said: String,
    },
}

/// Another rank, and the connection to it.
#[derive(Debug)]
pub struct Peer {
    /// Its number.
    pub rank: usize,
    /// Its machine.
    pub host: String,
    /// Its process.
    pub pid: u32,
    pub(crate) stream: TcpStream,
}

/// Ranks that have met and agree.
#[derive(Debug)]
pub struct Met {
    /// This rank.
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
    /// This rank's machine.
    pub host: String,
    /// What rank 0 gave to all.
    pub payload: Vec<u8>,
    /// On rank 0 all others in order, on the others rank 0.
    pub peers: Vec<Peer>,
}

/// A meeting that is to take place.
#[derive(Clone, Debug)]
pub struct Meeting {
    /// This rank.
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
    /// What all ranks of this job know and others do not; see [`token`].
    pub token: u64,
    /// How long ranks wait for each other.
    pub timeout: Duration,
}

/// A rank that has come to rank 0.
struct Arrival {
    rank: usize,
    ranks: usize,
    facts: Facts,
    stream: TcpStream,
}

/// What came of a connection to rank 0's port.
enum Came {
    Rank(Box<Arrival>),
    OtherProtocol(u8, String),
}

/// A number for a job's text, the same on all machines (FNV-1a).
pub fn token(job: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    job.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Listens where rank 0 is expected, at the first port that is free.
///
/// # Errors
/// None is.
pub fn listen(place: &MeetingPlace) -> Result<TcpListener, MeetError> {
    let mut said = "there is no port to try".to_owned();
    for port in ports(place) {
        match bind(&place.host, port) {
            Ok(listener) => return Ok(listener),
            Err(error) => said = error.to_string(),
        }
    }
    Err(MeetError::Listen { place: place.to_string(), said })
}

/// Listens at any port, for ranks that learn the port in another way, such as by MPI.
///
/// # Errors
/// The system refuses.
pub fn listen_anywhere() -> Result<(TcpListener, u16), MeetError> {
    let failed = |error: std::io::Error| MeetError::Listen {
        place: "any port".to_owned(),
        said: error.to_string(),
    };
    let listener = bind("", 0).map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    Ok((listener, port))
}

fn ports(place: &MeetingPlace) -> impl Iterator<Item = u16> + use<> {
    let first = place.port;
    (0..place.ports.max(1)).filter_map(move |more| first.checked_add(more))
}

/// Only a loopback address is bound as such. The name of a machine often means 127.0.1.1 on the
/// machine itself, where the others could not reach it.
fn bind(host: &str, port: u16) -> std::io::Result<TcpListener> {
    let address = host.parse::<IpAddr>().ok();
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        let address = address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        return TcpListener::bind((address, port));
    }
    let both = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port));
    match both {
        Err(error) if error.kind() != ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
        }
        both => both,
    }
}

impl Meeting {
    /// The meeting of a launch.
    pub fn of(launch: &Launch) -> Meeting {
        let (rank, ranks) = (launch.rank, launch.ranks);
        Meeting { rank, ranks, token: token(&launch.job), timeout: launch.patience }
    }

    /// Rank 0: waits for the others, compares, and gives all of them `payload`.
    ///
    /// # Errors
    /// A rank is missing or differs; all that came are told.
    pub fn host(
        &self,
        listener: TcpListener,
        facts: &Facts,
        payload: &[u8],
    ) -> Result<Met, MeetError> {
        facts.to_json(0, self.ranks).map_err(MeetError::Refused)?;
        let until = Instant::now() + self.timeout;
        let mut seats: Vec<Option<Arrival>> = (1..self.ranks).map(|_| None).collect();
        let mut extra = Vec::new();
        let gathered = self.gather(&listener, until, facts, &mut seats, &mut extra);
        let verdict = gathered.and_then(|()| {
            let came = seats.iter().flatten();
            let differs = came.into_iter().find_map(|a| facts.difference(a.rank, &a.facts));
            differs.map_or(Ok(()), |line| Err(MeetError::Refused(line)))
        });
        let verdict = match payload.len() > LONGEST_PAYLOAD {
            true => Err(MeetError::Refused(format!("a payload of {} bytes", payload.len()))),
            false => verdict,
        };
        let answer = match &verdict {
            Ok(()) => json!({"agreed": true, "host": facts.host, "pid": facts.pid}),
            Err(error) => json!({"refused": error.to_string()}),
        };
        let answer = answer.to_string();
        let until = Instant::now() + FACTS_TIME;
        for arrival in seats.iter().flatten().chain(&extra) {
            let mut stream = Timed { stream: &arrival.stream, until };
            // Whoever is gone by now is found by the watch.
            let sent = write_frame(&mut stream, answer.as_bytes(), LONGEST_ANSWER);
            if sent.is_ok() && verdict.is_ok() {
                let _ = write_frame(&mut stream, payload, LONGEST_PAYLOAD);
            }
        }
        verdict?;
        let peer = |a: Arrival| Peer {
            rank: a.rank,
            host: a.facts.host,
            pid: a.facts.pid,
            stream: a.stream,
        };
        let peers = seats.into_iter().flatten().map(peer).collect();
        let (host, payload) = (facts.host.clone(), payload.to_vec());
        Ok(Met { rank: 0, ranks: self.ranks, host, payload, peers })
    }

    /// Seats everybody who comes, until all are there.
    fn gather(
        &self,
        listener: &TcpListener,
        until: Instant,
        own: &Facts,
        seats: &mut [Option<Arrival>],
        extra: &mut Vec<Arrival>,
    ) -> Result<(), MeetError> {
        let place = listener.local_addr().map_or_else(|_| String::new(), |a| a.to_string());
        let listen = |error: std::io::Error| MeetError::Listen {
            place: place.clone(),
            said: error.to_string(),
        };
        listener.set_nonblocking(true).map_err(listen)?;
        let (sender, receiver): (Sender<Came>, Receiver<Came>) = channel();
        let at_once = Arc::new(AtomicUsize::new(0));
        while seats.iter().any(Option::is_none) {
            if Instant::now() >= until {
                return Err(self.missing(own, listener, seats));
            }
            if let Ok((stream, from)) = listener.accept() {
                self.receive(stream, from, until, &sender, &at_once);
            } else {
                std::thread::sleep(LOOK);
            }
            for came in receiver.try_iter() {
                seat(came, own, self.ranks, seats, extra)?;
            }
        }
        Ok(())
    }

    /// Listens to a newcomer on a thread of its own, so that a slow one delays nobody.
    fn receive(
        &self,
        stream: TcpStream,
        from: SocketAddr,
        until: Instant,
        sender: &Sender<Came>,
        at_once: &Arc<AtomicUsize>,
    ) {
        if at_once.fetch_add(1, Ordering::Relaxed) >= MOST_AT_ONCE {
            at_once.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let (sender, count, token) = (sender.clone(), Arc::clone(at_once), self.token);
        let listen = move || {
            if let Some(came) = hear(stream, from, token, until) {
                let _ = sender.send(came);
            }
            count.fetch_sub(1, Ordering::Relaxed);
        };
        let started = std::thread::Builder::new().name("fitgpt-meeting".to_owned()).spawn(listen);
        if started.is_err() {
            at_once.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn missing(&self, own: &Facts, listener: &TcpListener, seats: &[Option<Arrival>]) -> MeetError {
        let absent = seats.iter().enumerate().filter(|(_, seat)| seat.is_none());
        let absent: Vec<String> = absent.map(|(index, _)| (index + 1).to_string()).collect();
        let some = absent.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
        let who = match absent.len() {
            1 => format!("rank {some} of {}", self.ranks),
            2..=8 => format!("ranks {some} of {}", self.ranks),
            all => format!("ranks {some} and {} more of {}", all - 8, self.ranks),
        };
        let port = listener.local_addr().map_or(0, |address| address.port());
        let place = format!("{}:{port}", own.host);
        MeetError::Missing { who, seconds: self.timeout.as_secs(), place }
    }

    /// The other ranks: looks for rank 0 until it is there, and asks.
    ///
    /// # Errors
    /// Rank 0 is not there, or says why not all ranks can work together.
    pub fn join(&self, place: &MeetingPlace, facts: &Facts) -> Result<Met, MeetError> {
        let started = Instant::now();
        let until = started + self.timeout;
        let mut said = "no address".to_owned();
        loop {
            for port in ports(place) {
                match self.try_port(&place.host, port, until) {
                    Ok(stream) => return self.ask(stream, place, facts),
                    Err(Tried::Fatal(error)) => return Err(error),
                    Err(Tried::Next(why)) => said = why,
                }
            }
            if Instant::now() + AGAIN >= until {
                let seconds = self.timeout.as_secs();
                return Err(MeetError::Unreachable { seconds, place: place.to_string(), said });
            }
            std::thread::sleep(AGAIN);
        }
    }

    fn try_port(&self, host: &str, port: u16, until: Instant) -> Result<TcpStream, Tried> {
        let failed = |error: std::io::Error| Tried::Next(error.to_string());
        let mut last = Tried::Next(format!("{host} has no address"));
        for address in (host, port).to_socket_addrs().map_err(failed)? {
            let left = until.saturating_duration_since(Instant::now());
            let patience = left.min(GREETING_TIME).max(Duration::from_millis(1));
            let stream = match TcpStream::connect_timeout(&address, patience) {
                Ok(stream) => stream,
                Err(error) => {
                    last = failed(error);
                    continue;
                }
            };
            match self.greet(&stream) {
                Ok(Greeted::Ours) => return Ok(stream),
                Ok(Greeted::OtherProtocol(theirs)) => {
                    return Err(Tried::Fatal(MeetError::Refused(protocols(0, theirs))));
                }
                Ok(Greeted::Stranger) => {
                    last = Tried::Next(format!("port {port} belongs to another program or run"));
                }
                Err(error) => last = failed(error),
            }
        }
        Err(last)
    }

    fn greet(&self, stream: &TcpStream) -> std::io::Result<Greeted> {
        stream.set_nodelay(true)?;
        let mut timed = Timed { stream, until: Instant::now() + GREETING_TIME };
        timed.write_all(&greeting(Side::Guest, self.token))?;
        let mut answer = [0; GREETING];
        timed.read_exact(&mut answer)?;
        Ok(greeted(Side::Host, self.token, &answer))
    }

    fn ask(
        &self,
        stream: TcpStream,
        place: &MeetingPlace,
        facts: &Facts,
    ) -> Result<Met, MeetError> {
        let gone = |error: std::io::Error| MeetError::Gone {
            place: place.to_string(),
            said: error.to_string(),
        };
        // Rank 0 may have started later than this rank, and waits as long for the last one.
        let until = Instant::now() + self.timeout + FACTS_TIME;
        let mut timed = Timed { stream: &stream, until };
        let mine = facts.to_json(self.rank, self.ranks).map_err(MeetError::Refused)?;
        write_frame(&mut timed, &mine, LONGEST_FACTS).map_err(gone)?;
        let answer = read_frame(&mut timed, LONGEST_ANSWER).map_err(gone)?;
        let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
        if let Some(line) = answer["refused"].as_str() {
            let clean = line.chars().map(|c| if c.is_control() { ' ' } else { c });
            return Err(MeetError::Refused(clean.take(1000).collect()));
        }
        let (Some(true), Some(host)) = (answer["agreed"].as_bool(), answer["host"].as_str()) else {
            return Err(gone(std::io::Error::other("its answer makes no sense")));
        };
        let pid = answer["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
        let host = shown(host);
        let payload = read_frame(&mut timed, LONGEST_PAYLOAD).map_err(gone)?;
        let peers = vec![Peer { rank: 0, host, pid, stream }];
        let (rank, ranks, host) = (self.rank, self.ranks, facts.host.clone());
        Ok(Met { rank, ranks, host, payload, peers })
    }
}

/// Why a port was not the right one.
enum Tried {
    Next(String),
    Fatal(MeetError),
}

fn protocols(rank: usize, theirs: u8) -> String {
    format!(
        "rank {rank} speaks version {theirs} of fitgpt's protocol, not {PROTOCOL}; start the same \
         fitgpt on all machines"
    )
}

/// Rank 0's part of a greeting; nothing if it was no rank of this job.
fn hear(stream: TcpStream, from: SocketAddr, token: u64, until: Instant) -> Option<Came> {
    stream.set_nonblocking(false).ok()?;
    stream.set_nodelay(true).ok()?;
    let now = Instant::now();
    let mut timed = Timed { stream: &stream, until: until.min(now + GREETING_TIME) };
    let mut greeting_of_guest = [0; GREETING];
    timed.read_exact(&mut greeting_of_guest).ok()?;
    let who = greeted(Side::Guest, token, &greeting_of_guest);
    if who == Greeted::Stranger {
        return None;
    }
    timed.write_all(&greeting(Side::Host, token)).ok()?;
    if let Greeted::OtherProtocol(theirs) = who {
        return Some(Came::OtherProtocol(theirs, from.ip().to_string()));
    }
    timed.until = until.min(now + FACTS_TIME);
    let bytes = read_frame(&mut timed, LONGEST_FACTS).ok()?;
    let (rank, ranks, facts) = Facts::from_json(&bytes)?;
    Some(Came::Rank(Box::new(Arrival { rank, ranks, facts, stream })))
}

/// Gives a newcomer its seat. Whoever fits no seat ends the meeting.
fn seat(
    came: Came,
    own: &Facts,
    ranks: usize,
    seats: &mut [Option<Arrival>],
    extra: &mut Vec<Arrival>,
) -> Result<(), MeetError> {
    let arrival = match came {
        Came::Rank(arrival) => *arrival,
        Came::OtherProtocol(theirs, from) => {
            let line = format!(
                "a rank on {from} speaks version {theirs} of fitgpt's protocol, not {PROTOCOL}; \
                 start the same fitgpt on all machines"
            );
            return Err(MeetError::Refused(line));
        }
    };
    let (rank, host) = (arrival.rank, shown(&arrival.facts.host));
    let refused = |line: String| Err(MeetError::Refused(line));
    if arrival.ranks != ranks {
        let line = format!(
            "rank {rank} on {host} was started as one of {} ranks, rank 0 on {} as one of {ranks}",
            arrival.ranks, own.host
        );
        extra.push(arrival);
        return refused(line);
    }
    let seat = rank.checked_sub(1).and_then(|index| seats.get_mut(index));
    match seat {
        Some(seat @ None) => {
            *seat = Some(arrival);
            Ok(())
        }
        Some(Some(first)) => {
            let line = format!(
                "rank {rank} came twice, from {} (process {}) and {host} (process {}); do two runs \
                 use one port?",
                shown(&first.facts.host),
                first.facts.pid,
                arrival.facts.pid
            );
            extra.push(arrival);
            refused(line)
        }
        None => {
            let line = format!("{host} has a rank {rank} of {ranks}; do two runs use one port?");
            extra.push(arrival);
            refused(line)
        }
    }
}
