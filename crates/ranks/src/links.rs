//! One connection of the watch: small messages in both directions. A thread of its own reads, so
//! that a death is seen at once: `mpiexec` kills the other ranks a few milliseconds after the
//! first, and the line that names it must be printed before. A heartbeat takes no memory, so that
//! a run allocates nothing while it is watched.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

/// The bytes before a message's text.
const HEADER: usize = 24;

/// The longest text of a message.
pub const LONGEST_TEXT: usize = 2000;

/// How long somebody who does not read may delay a message to the others, once.
const DEAF: Duration = Duration::from_secs(1);

/// The stack of a thread that only reads.
const STACK: usize = 128 << 10;

/// An iteration that is not known: the run has not begun.
pub const NO_PROGRESS: u64 = u64::MAX;

/// How far a rank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The iteration, or [`NO_PROGRESS`].
    pub iteration: u64,
    /// Steps that it has begun.
    pub steps: u64,
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// "I am here, at this iteration."
    Beat = 1,
    /// "I am done."
    Finished = 2,
    /// "I failed": the text says why.
    Failed = 3,
    /// Rank 0 says which rank is gone.
    Gone = 4,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        let all = [Kind::Beat, Kind::Finished, Kind::Failed, Kind::Gone];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// A message that arrived.
#[derive(Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// What it is.
    pub kind: Kind,
    /// Whom it is about.
    pub rank: u32,
    /// Where the sender is.
    pub at: Place,
    /// The text; not a valid one if the bytes are not.
    pub text: &'a str,
}

/// What a reading thread has heard.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// A message.
    Message {
        /// What it is.
        kind: Kind,
        /// Whom it is about.
        rank: usize,
        /// Where the sender is.
        at: Place,
        /// Its text; a heartbeat has none.
        text: String,
    },
    /// The other side has closed, or the connection broke. Nothing follows.
    Closed(String),
    /// What came is no message. Nothing follows.
    Nonsense(String),
}

/// What was heard, and on which connection.
pub type Event = (usize, Heard);

/// A connection. Dropped, it is closed, which ends its thread.
pub struct Link {
    stream: TcpStream,
    is_deaf: bool,
}

impl Link {
    /// Takes over a connection. What comes goes to `events`, marked with `index`.
    pub fn new(
        stream: TcpStream,
        index: usize,
        events: SyncSender<Event>,
    ) -> std::io::Result<Link> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(Some(DEAF))?;
        let from = stream.try_clone()?;
        let thread = std::thread::Builder::new().name("fitgpt-link".to_owned()).stack_size(STACK);
        thread.spawn(move || {
            // Nobody listens any more once the watch has ended.
            let last = listen(from, |heard| events.send((index, heard)).is_ok());
            let _ = events.send((index, last));
        })?;
        Ok(Link { stream, is_deaf: false })
    }

    /// Sends a message. A broken connection is found by reading.
    pub fn send(&mut self, kind: Kind, rank: usize, at: Place, text: &str) {
        let text = cut(text);
        let mut bytes = [0; HEADER + LONGEST_TEXT];
        bytes[0] = kind as u8;
        bytes[2..4].copy_from_slice(&(text.len() as u16).to_le_bytes());
        bytes[4..8].copy_from_slice(&(rank as u32).to_le_bytes());
        bytes[8..16].copy_from_slice(&at.iteration.to_le_bytes());
        bytes[16..HEADER].copy_from_slice(&at.steps.to_le_bytes());
        let end = HEADER + text.len();
        bytes[HEADER..end].copy_from_slice(text.as_bytes());
        // A message that was sent in part cannot be followed by another.
        self.is_deaf = self.is_deaf || self.stream.write_all(&bytes[..end]).is_err();
    }

    /// Says that nothing more will be sent.
    pub fn end(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Reads messages until the end, which is the result.
fn listen(mut from: TcpStream, mut tell: impl FnMut(Heard) -> bool) -> Heard {
    let mut inbox = [0; 2 * (HEADER + LONGEST_TEXT)];
    let mut filled = 0;
    loop {
        match from.read(&mut inbox[filled..]) {
            Ok(0) => return Heard::Closed("its connection was closed".to_owned()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Heard::Closed(error.to_string()),
        }
        let mut at = 0;
        loop {
            match parse(&inbox[at..filled]) {
                Ok(Some((message, length))) => {
                    let Message { kind, rank, at: place, text } = message;
                    let (rank, text) = (rank as usize, text.to_owned());
                    if !tell(Heard::Message { kind, rank, at: place, text }) {
                        return Heard::Closed(String::new());
                    }
                    at += length;
                }
                Ok(None) => break,
                Err(said) => return Heard::Nonsense(said),
            }
        }
        inbox.copy_within(at..filled, 0);
        filled -= at;
    }
}

fn parse(bytes: &[u8]) -> Result<Option<(Message<'_>, usize)>, String> {
    let Some(&first) = bytes.first() else { return Ok(None) };
    let kind = Kind::of(first).ok_or("what it sent makes no sense")?;
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
    let length = usize::from(u16::from_le_bytes([header[2], header[3]]));
    if length > LONGEST_TEXT {
        return Err(format!("it sent a text of {length} bytes"));
    }
    let Some(text) = rest.get(..length) else { return Ok(None) };
    let text = std::str::from_utf8(text).unwrap_or("(no text)");
    let rank = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    let [iteration, steps] = [8, 16].map(|from| {
        let bytes = header.get(from..from + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(NO_PROGRESS, u64::from_le_bytes)
    });
    Ok(Some((Message { kind, rank, at: Place { iteration, steps }, text }, HEADER + length)))
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(LONGEST_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::sync::mpsc::{Receiver, sync_channel};
    use std::time::Instant;

    fn pair() -> (Link, Link, Receiver<Event>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let other = listener.accept().unwrap().0;
        let (sender, receiver) = sync_channel(8);
        let one = Link::new(one, 0, sender.clone()).unwrap();
        (one, Link::new(other, 1, sender).unwrap(), receiver)
    }

    fn at(iteration: u64) -> Place {
        Place { iteration, steps: iteration.wrapping_mul(7) }
    }

    fn message(kind: Kind, rank: usize, iteration: u64, text: &str) -> Heard {
        Heard::Message { kind, rank, at: at(iteration), text: text.to_owned() }
    }

    #[test]
    fn messages_arrive_in_order_and_whole() {
        let (mut one, _other, events) = pair();
        let (long, cut) = ("ü".repeat(LONGEST_TEXT), "ü".repeat(LONGEST_TEXT / 2));
        one.send(Kind::Beat, 3, at(17), "");
        one.send(Kind::Failed, 4000, at(NO_PROGRESS), &long);
        one.send(Kind::Failed, 4000, at(NO_PROGRESS), &long);
        one.send(Kind::Finished, 3, at(18), "x");
        assert_eq!(events.recv().unwrap(), (1, message(Kind::Beat, 3, 17, "")));
        for _ in 0..2 {
            let want = message(Kind::Failed, 4000, NO_PROGRESS, &cut);
            assert_eq!(events.recv().unwrap(), (1, want));
        }
        assert_eq!(events.recv().unwrap(), (1, message(Kind::Finished, 3, 18, "x")));
        drop(one);
        let ends = [events.recv().unwrap(), events.recv().unwrap()];
        assert!(ends.iter().all(|(_, heard)| matches!(heard, Heard::Closed(_))), "{ends:?}");
    }

    /// Whoever does not read delays the others once, not for ever.
    #[test]
    fn nobody_waits_long_for_the_deaf() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _deaf = listener.accept().unwrap().0;
        let mut link = Link::new(stream, 0, sync_channel(8).0).unwrap();
        let (text, started) = ("x".repeat(LONGEST_TEXT), Instant::now());
        for _ in 0..100_000 {
            link.send(Kind::Failed, 1, at(1), &text);
        }
        assert!(link.is_deaf);
        assert!(started.elapsed() < 10 * DEAF, "{:?}", started.elapsed());
    }

    #[test]
    fn other_bytes_are_an_error() {
        let mut good = vec![Kind::Beat as u8, 0, 0, 0];
        good.resize(HEADER, 9);
        assert!(parse(&good).unwrap().is_some());
        for cut in 0..HEADER {
            assert_eq!(parse(&good[..cut]), Ok(None));
        }
        assert!(parse(&[0; HEADER]).is_err());
        assert!(parse(b"GET / HTTP/1.1\r\n\r\n").is_err());
        let mut long = good;
        long[3] = 0xFF;
        assert_eq!(parse(&long).unwrap_err(), "it sent a text of 65280 bytes");
    }
}
