//! Bytes on the wire: the greeting by which two ranks of one job recognise each other, and frames
//! with their length in front. Every length is checked before memory is taken, and every read and
//! write has a deadline, however slowly the other side sends.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The version of what is said on the wire.
pub const PROTOCOL: u8 = 2;

/// The length of a greeting.
pub const GREETING: usize = 16;

const MAGIC: &[u8; 6] = b"fitGPT";

/// Who greets. They differ because a socket can be connected to itself: the port that a rank looks
/// for may be the one that the system gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Rank 0.
    Host,
    /// The others.
    Guest,
}

/// What a greeting says about whoever sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Greeted {
    /// A rank of this job.
    Ours,
    /// A rank of this job, but of another version of this program.
    OtherProtocol(u8),
    /// Another job, or another program.
    Stranger,
}

/// The greeting of a job's rank.
pub fn greeting(side: Side, token: u64) -> [u8; GREETING] {
    let mut bytes = [0; GREETING];
    bytes[..6].copy_from_slice(MAGIC);
    bytes[6] = PROTOCOL;
    bytes[7] = if side == Side::Host { b'H' } else { b'G' };
    bytes[8..].copy_from_slice(&token.to_le_bytes());
    bytes
}

/// Judges the greeting of the other side.
pub fn greeted(by: Side, token: u64, bytes: &[u8; GREETING]) -> Greeted {
    let mut wanted = greeting(by, token);
    wanted[6] = bytes[6];
    match bytes {
        bytes if *bytes != wanted => Greeted::Stranger,
        bytes if bytes[6] == PROTOCOL => Greeted::Ours,
        bytes => Greeted::OtherProtocol(bytes[6]),
    }
}

/// A connection that is used until a deadline.
pub struct Timed<'a> {
    /// The connection.
    pub stream: &'a TcpStream,
    /// When reads and writes give up.
    pub until: Instant,
}

impl Timed<'_> {
    fn left(&self) -> Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(Error::new(ErrorKind::TimedOut, "the other side is too slow")),
            false => Ok(left),
        }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(buffer)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, buffer: &[u8]) -> Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(buffer)
    }

    fn flush(&mut self) -> Result<()> {
        self.stream.flush()
    }
}

/// Writes a frame.
pub fn write_frame(to: &mut impl Write, bytes: &[u8], limit: usize) -> Result<()> {
    let length = u32::try_from(bytes.len()).ok().filter(|_| bytes.len() <= limit);
    let length = length.ok_or_else(|| too_long(bytes.len(), limit))?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(bytes)
}

/// Reads a frame of at most `limit` bytes.
pub fn read_frame(from: &mut impl Read, limit: usize) -> Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > limit {
        return Err(too_long(length, limit));
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn too_long(length: usize, limit: usize) -> Error {
    Error::new(ErrorKind::InvalidData, format!("a message of {length} bytes; at most {limit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_tells_jobs_sides_and_versions_apart() {
        let mine = greeting(Side::Guest, 7);
        assert_eq!(greeted(Side::Guest, 7, &mine), Greeted::Ours);
        assert_eq!(greeted(Side::Host, 7, &mine), Greeted::Stranger, "its own echo");
        assert_eq!(greeted(Side::Guest, 8, &mine), Greeted::Stranger, "another job");
        let mut newer = mine;
        newer[6] = 9;
        assert_eq!(greeted(Side::Guest, 7, &newer), Greeted::OtherProtocol(9));
        assert_eq!(greeted(Side::Guest, 7, b"GET / HTTP/1.1\r\n"), Greeted::Stranger);
    }

    #[test]
    fn frames_are_bounded_in_both_directions() {
        let mut wire = Vec::new();
        write_frame(&mut wire, b"hello", 5).unwrap();
        assert_eq!(read_frame(&mut &wire[..], 5).unwrap(), b"hello");
        assert!(write_frame(&mut Vec::new(), b"hello", 4).is_err());
        let said = read_frame(&mut &wire[..], 4).unwrap_err().to_string();
        assert_eq!(said, "a message of 5 bytes; at most 4");
        for cut in 0..wire.len() {
            assert!(read_frame(&mut &wire[..cut], 5).is_err(), "cut after {cut}");
        }
        assert!(read_frame(&mut &[0xFF; 64][..], 1 << 20).is_err(), "4 GiB are not taken");
    }
}
