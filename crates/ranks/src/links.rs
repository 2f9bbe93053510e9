//! One connection of the watch: small messages in both directions, never waited for. A heartbeat
//! takes no memory, so that a run allocates nothing while it is watched.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

/// The bytes before a message's text.
const HEADER: usize = 16;

/// The longest text of a message.
pub const LONGEST_TEXT: usize = 2000;

/// What waits to be sent to somebody who does not read; then beats are left out.
const MOST_WAITING: usize = 64 << 10;

/// An iteration that is not known: the run has not begun.
pub const NO_PROGRESS: u64 = u64::MAX;

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
    /// The iteration.
    pub progress: u64,
    /// The text; not a valid one if the bytes are not.
    pub text: &'a str,
}

/// What there is to read.
pub enum Arrived {
    /// Bytes came.
    Bytes,
    /// Nothing yet.
    Nothing,
    /// The other side has closed, or the connection broke.
    Closed(String),
}

/// A connection.
pub struct Link {
    stream: TcpStream,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
}

impl Link {
    /// Takes over a connection.
    pub fn new(stream: TcpStream) -> std::io::Result<Link> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let inbox = Vec::with_capacity(2 * (HEADER + LONGEST_TEXT));
        Ok(Link { stream, inbox, outbox: Vec::with_capacity(HEADER + LONGEST_TEXT) })
    }

    /// Reads what is there, at most a few messages.
    pub fn read(&mut self) -> Arrived {
        let mut buffer = [0; 1024];
        let room = self.inbox.capacity().saturating_sub(self.inbox.len()).min(buffer.len());
        match self.stream.read(&mut buffer[..room.max(1)]) {
            Ok(0) => Arrived::Closed("its connection was closed".to_owned()),
            Ok(count) => {
                self.inbox.extend_from_slice(&buffer[..count]);
                Arrived::Bytes
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => Arrived::Nothing,
                _ => Arrived::Closed(error.to_string()),
            },
        }
    }

    /// Gives the messages that are complete to `each`, in order. The error: what came is none.
    pub fn messages(&mut self, mut each: impl FnMut(Message)) -> Result<(), String> {
        let mut at = 0;
        while let Some((message, length)) = parse(&self.inbox[at..])? {
            each(message);
            at += length;
        }
        self.inbox.drain(..at);
        Ok(())
    }

    /// Sends a message as soon as the connection takes it.
    pub fn send(&mut self, kind: Kind, rank: usize, progress: u64, text: &str) {
        if self.outbox.len() > MOST_WAITING {
            return;
        }
        let text = cut(text);
        let mut header = [0; HEADER];
        header[0] = kind as u8;
        header[2..4].copy_from_slice(&(text.len() as u16).to_le_bytes());
        header[4..8].copy_from_slice(&(rank as u32).to_le_bytes());
        header[8..].copy_from_slice(&progress.to_le_bytes());
        self.outbox.extend_from_slice(&header);
        self.outbox.extend_from_slice(text.as_bytes());
        self.flush();
    }

    /// Sends what waits; true if nothing waits any more. A broken connection is found by reading.
    pub fn flush(&mut self) -> bool {
        while !self.outbox.is_empty() {
            match self.stream.write(&self.outbox) {
                Ok(0) => return false,
                Ok(count) => drop(self.outbox.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(_) => self.outbox.clear(),
            }
        }
        true
    }

    /// Says that nothing more will be sent.
    pub fn end(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }
}

fn parse(bytes: &[u8]) -> Result<Option<(Message<'_>, usize)>, String> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
    let kind = Kind::of(header[0]).ok_or("what it sent makes no sense")?;
    let length = usize::from(u16::from_le_bytes([header[2], header[3]]));
    if length > LONGEST_TEXT {
        return Err(format!("it sent a text of {length} bytes"));
    }
    let Some(text) = rest.get(..length) else { return Ok(None) };
    let text = std::str::from_utf8(text).unwrap_or("(no text)");
    let rank = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    let progress = header[8..].try_into().map_or(NO_PROGRESS, u64::from_le_bytes);
    Ok(Some((Message { kind, rank, progress, text }, HEADER + length)))
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

    fn pair() -> (Link, Link) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let other = listener.accept().unwrap().0;
        (Link::new(one).unwrap(), Link::new(other).unwrap())
    }

    fn receive(link: &mut Link, count: usize) -> Vec<(Kind, u32, u64, String)> {
        let mut all = Vec::new();
        while all.len() < count {
            let _ = link.read();
            let each = |m: Message| all.push((m.kind, m.rank, m.progress, m.text.to_owned()));
            link.messages(each).unwrap();
        }
        all
    }

    #[test]
    fn messages_arrive_in_order_and_whole() {
        let (mut one, mut other) = pair();
        let long = "ü".repeat(LONGEST_TEXT);
        one.send(Kind::Beat, 3, 17, "");
        one.send(Kind::Failed, 4000, NO_PROGRESS, &long);
        one.send(Kind::Finished, 3, 18, "x");
        let all = receive(&mut other, 3);
        assert_eq!(all[0], (Kind::Beat, 3, 17, String::new()));
        assert_eq!(all[1], (Kind::Failed, 4000, NO_PROGRESS, "ü".repeat(LONGEST_TEXT / 2)));
        assert_eq!(all[2], (Kind::Finished, 3, 18, "x".to_owned()));
        drop(one);
        while !matches!(other.read(), Arrived::Closed(_)) {}
    }

    /// Whoever does not read costs a bounded amount of memory.
    #[test]
    fn what_waits_is_bounded() {
        let (mut one, _other) = pair();
        let text = "x".repeat(LONGEST_TEXT);
        for _ in 0..10_000 {
            one.send(Kind::Failed, 1, 1, &text);
        }
        assert!(one.outbox.len() <= MOST_WAITING + HEADER + LONGEST_TEXT);
        assert!(!one.flush());
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
