//! Files from elsewhere: whole, checked, resumed where a connection was cut, or an error.
//!
//! Bytes go to `<file>.part`; the file gets its name only when its length and checksum are right.

use crate::disk;
use crate::error::{PrepareError, Result};
use crate::hub::Hub;
use crate::part::Part;
use crate::wire::{self, Answer, Failed, Question};
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use ureq::http::HeaderMap;

/// Failures in a row, without a byte between them, that end a download.
const ATTEMPTS: u32 = 6;
/// Longest time to find a server, and to connect to it: who is offline wants to know it now.
const CONNECT: Duration = Duration::from_secs(2);
/// Bytes read at a time for a checksum.
const BUFFER: usize = 256 << 10;
/// Bytes of a download from one safe state to the next.
const SYNC: u64 = 64 << 20;

/// Why an address gave nothing.
#[derive(Debug)]
pub enum Failure {
    /// There is nothing of that name: another name may do.
    Missing(PrepareError),
    /// Anything else.
    Other(PrepareError),
}

impl From<PrepareError> for Failure {
    fn from(error: PrepareError) -> Failure {
        Failure::Other(error)
    }
}

impl From<Failure> for PrepareError {
    fn from(failure: Failure) -> PrepareError {
        match failure {
            Failure::Missing(error) | Failure::Other(error) => error,
        }
    }
}

/// Asks servers.
#[derive(Clone)]
pub struct Client {
    agent: ureq::Agent,
    hub: Hub,
    stop: Arc<AtomicBool>,
    /// Ends downloads that nobody needs any more.
    pub(crate) halt: Arc<AtomicBool>,
    /// Whether any server answered yet. Until then a failure to connect is final: who is offline
    /// wants to know it now.
    answered: Arc<AtomicBool>,
    /// Bytes received so far, by all that share this client.
    pub received: Arc<AtomicU64>,
    /// The pause after a first failure; it doubles with each.
    pub first_pause: Duration,
}

impl Client {
    /// One for the hub's files and all others. `stop` ends its waiting.
    #[must_use]
    pub fn new(mut hub: Hub, stop: Arc<AtomicBool>) -> Client {
        // The end of a line comes along easily with what is read from a file.
        hub.token = hub.token.map(|token| token.trim().to_owned()).filter(|t| !t.is_empty());
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_resolve(Some(CONNECT))
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(Duration::from_secs(60)))
            // They are followed one by one, with a look at where they lead.
            .max_redirects(0)
            // A connection that stalls is an error after this time; the download goes on from
            // where it was.
            .timeout_per_read(Some(Duration::from_secs(60)))
            .user_agent("fitgpt-prepare")
            .build();
        let received = Arc::new(AtomicU64::new(0));
        let first_pause = Duration::from_secs(1);
        let (halt, answered) = (Arc::default(), Arc::default());
        Client { agent: config.into(), hub, stop, halt, answered, received, first_pause }
    }

    /// Where the hub is.
    #[must_use]
    pub fn hub(&self) -> &Hub {
        &self.hub
    }

    /// Whether the user wants it to stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.is_stopped() || self.halt.load(Ordering::Relaxed)
    }

    /// An error where the user wants it to stop. Never shown.
    pub(crate) fn check_stopped(&self) -> Result<()> {
        match self.is_stopped() {
            true => Err(PrepareError::Usage("stopped".to_owned())),
            false => Ok(()),
        }
    }

    /// A short text and the address of the next page.
    ///
    /// # Errors
    ///
    /// When the server cannot be asked, refuses, or answers more than `most` bytes.
    pub(crate) fn page(
        &self,
        url: &str,
        most: u64,
    ) -> std::result::Result<(Vec<u8>, Option<String>), Failure> {
        let mut failures = 0;
        loop {
            let problem = match self.ask(url, 0, None)? {
                Ok(answer) if answer.status == 200 => {
                    let next = next_page(&answer.headers);
                    match self.all(url, answer, most)? {
                        Ok(text) => return Ok((text, next)),
                        Err(problem) => problem,
                    }
                }
                Ok(answer) => self.refused(url, answer.status)?,
                Err(problem) => problem,
            };
            failures += 1;
            self.wait(url, failures, &problem)?;
        }
    }

    /// All bytes of an answer, or the problem where another try may help.
    fn all(
        &self,
        url: &str,
        mut answer: Answer,
        most: u64,
    ) -> Result<std::result::Result<Vec<u8>, String>> {
        let mut text = Vec::new();
        loop {
            match self.next(url, &mut answer)? {
                Ok(piece) if piece.is_empty() => return Ok(Ok(text)),
                Ok(piece) => text.extend(piece),
                Err(problem) => return Ok(Err(problem)),
            }
            if text.len() as u64 > most {
                let what = format!("the answer has more than {most} bytes; is HF_ENDPOINT a hub?");
                return Err(wrong(url, &what));
            }
        }
    }

    /// Brings the file at `url` to `path`, if it is not there yet.
    ///
    /// # Errors
    ///
    /// When the server refuses, the connection fails too often, or the bytes are not right. What
    /// came is kept where another call can go on with it.
    pub fn fetch(&self, url: &str, sha256: Option<&str>, path: &Path) -> Result<()> {
        if path.is_file() {
            return Ok(());
        }
        let part = Part::new(path, sha256.is_some());
        match self.fetch_part(url, sha256, &part) {
            Ok(()) => part.finish(path),
            Err(PrepareError::Network { url, what }) => {
                Err(PrepareError::Network { url, what: what + &part.left() })
            }
            Err(error) => Err(error),
        }
    }

    fn fetch_part(&self, url: &str, sha256: Option<&str>, part: &Part) -> Result<()> {
        let mut failures = 0;
        let mut furthest = part.bytes();
        loop {
            let problem = match self.receive(url, part)? {
                None => match check(&part.path, sha256)? {
                    None => return Ok(()),
                    Some(problem) => {
                        part.clear();
                        failures += 2; // the whole again is dear
                        problem
                    }
                },
                Some(problem) => problem,
            };
            // What brought new bytes was no failure; the same ones again are.
            let bytes = part.bytes();
            failures = if bytes > furthest { 1 } else { failures + 1 };
            furthest = furthest.max(bytes);
            self.wait(url, failures, &problem)?;
        }
    }

    /// Appends what is missing of the part; the problem where it is still not whole.
    fn receive(&self, url: &str, part: &Part) -> Result<Option<String>> {
        // Where nothing tells whether the rest is of the same version, all of it is asked for.
        let have = if part.is_resumable() { part.bytes() } else { 0 };
        let version = if have > 0 { part.version() } else { None };
        let mut answer = match self.ask(url, have, version)? {
            Ok(answer) => answer,
            Err(problem) => return Ok(Some(problem)),
        };
        let range = content_range(&answer.headers);
        let mut whole = range.and_then(|(_, whole)| whole);
        let mut at = match (answer.status, range) {
            (206, Some((Some(first), _))) if first == have => {
                if have == 0 {
                    part.clear(); // bytes of a version that nobody knows
                }
                let rest = content_length(&answer.headers);
                whole = whole.or_else(|| have.checked_add(rest?));
                have
            }
            (206, _) => {
                part.clear();
                return Ok(Some(format!("the server sent another part than that from {have} on")));
            }
            (200, _) => {
                part.begin(&answer.headers)?;
                whole = content_length(&answer.headers);
                0
            }
            (416, _) if have > 0 && whole == Some(have) => return Ok(None),
            (416, _) if have > 0 => {
                part.clear();
                return Ok(Some(format!("the server has nothing behind byte {have}")));
            }
            (status, _) => return self.refused(url, status).map(Some).map_err(PrepareError::from),
        };
        let opened = OpenOptions::new().create(true).append(true).open(&part.path);
        let mut file = opened.map_err(PrepareError::io(&part.path, "write a download"))?;
        let copied = self.copy(url, &mut answer, part, (&mut file, &mut at));
        // However it ended: what is here now is here after a power cut, too.
        let synced = part.sync(&file, at);
        let problem = copied?;
        synced?;
        Ok(match (problem, whole) {
            (Some(problem), _) => Some(format!("cut after {at} bytes: {problem}")),
            (None, Some(whole)) if whole != at => Some(format!("cut after {at} of {whole} bytes")),
            (None, _) => None,
        })
    }

    /// Appends an answer's bytes to the part; the problem where it was cut.
    fn copy(
        &self,
        url: &str,
        answer: &mut Answer,
        part: &Part,
        (file, at): (&mut File, &mut u64),
    ) -> Result<Option<String>> {
        let limit = data::disk::file_limit();
        let mut synced = *at;
        loop {
            let piece = match self.next(url, answer)? {
                Ok(piece) if piece.is_empty() => return Ok(None),
                Ok(piece) => piece,
                Err(problem) => return Ok(Some(problem)),
            };
            let bytes = at.saturating_add(piece.len() as u64);
            disk::check_limit(&part.path, bytes, limit)?;
            let written = file.write_all(&piece);
            written.map_err(PrepareError::io(&part.path, "write a download"))?;
            *at = bytes;
            self.received.fetch_add(piece.len() as u64, Ordering::Relaxed);
            if bytes.saturating_sub(synced) >= SYNC {
                part.sync(file, bytes)?;
                synced = bytes;
            }
        }
    }

    /// The answer, or the problem where another try may help.
    fn ask(
        &self,
        url: &str,
        from: u64,
        version: Option<String>,
    ) -> Result<std::result::Result<Answer, String>> {
        let token = self.hub.token.clone().filter(|_| self.is_hub(url));
        if token.as_ref().is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
            let what = "HF_TOKEN cannot be sent: it holds more than ASCII letters, digits and \
                        signs; copy it again from the hub's settings";
            return Err(wrong(url, what));
        }
        let question = Question { url: url.to_owned(), from, version, token };
        match wire::ask(self.agent.clone(), question, &|| self.is_over()) {
            Ok(answer) => {
                self.answered.store(true, Ordering::Relaxed);
                Ok(Ok(answer))
            }
            Err(Failed::Unreachable(problem)) if !self.answered.load(Ordering::Relaxed) => {
                Err(self.unreachable(url, &problem))
            }
            Err(Failed::Address(problem)) => {
                let endpoint = &self.hub.endpoint;
                let is_typed = !self.is_hub(url) || wire::is_same_origin(endpoint, endpoint);
                let whose = if is_typed { "" } else { " of HF_ENDPOINT" };
                let what = format!("this is no address ({problem}): check the spelling{whose}");
                Err(wrong(url, &what))
            }
            Err(failed) => passing(url, failed).map(Err),
        }
    }

    /// The next bytes of an answer, or the problem where another try may help.
    fn next(&self, url: &str, answer: &mut Answer) -> Result<std::result::Result<Vec<u8>, String>> {
        match answer.next(&|| self.is_over()) {
            Ok(piece) => Ok(Ok(piece)),
            Err(failed) => passing(url, failed).map(Err),
        }
    }

    /// Whether an address is the hub's.
    fn is_hub(&self, url: &str) -> bool {
        url.strip_prefix(&self.hub.endpoint).is_some_and(|rest| rest.starts_with('/'))
    }

    /// Nobody was reached at all.
    fn unreachable(&self, url: &str, problem: &str) -> PrepareError {
        let mirror = match self.is_hub(url) {
            true => ", set HF_ENDPOINT if you use a mirror of the hub",
            false => "",
        };
        let what = format!(
            "the server cannot be reached ({problem}); check the network{mirror}, or give a file \
             that is on this machine"
        );
        wrong(url, &what)
    }

    /// An answer that is no success: what may pass is a problem, what stays is a failure.
    fn refused(&self, url: &str, status: u16) -> std::result::Result<String, Failure> {
        match status {
            404 => Err(Failure::Missing(wrong(url, "is not there (404); check the name"))),
            401 | 403 => {
                let advice = match self.is_hub(url) {
                    true => "put a token of an account that may read it into HF_TOKEN",
                    false => "log in with another program, fetch the file and give it as a file",
                };
                Err(wrong(url, &format!("is not for everybody ({status}): {advice}")).into())
            }
            408 | 429 | 500..=599 => Ok(format!("the server says {status}")),
            _ => Err(wrong(url, &format!("the server says {status}; check the address")).into()),
        }
    }

    /// Waits before another try, or gives up.
    fn wait(&self, url: &str, failures: u32, problem: &str) -> Result<()> {
        if failures >= ATTEMPTS {
            let what = format!(
                "failed {failures} times, last: {problem}; check the network, then run the same \
                 command again"
            );
            return Err(wrong(url, &what));
        }
        let mut left = self.first_pause * 2_u32.pow(failures.saturating_sub(1).min(6));
        while !left.is_zero() {
            if self.is_over() {
                return Err(stopped(url));
            }
            let step = left.min(Duration::from_millis(50));
            std::thread::sleep(step);
            left -= step;
        }
        Ok(())
    }
}

/// What another try may help with; the rest is an error.
fn passing(url: &str, failed: Failed) -> Result<String> {
    match failed {
        Failed::Passing(problem) | Failed::Unreachable(problem) => Ok(problem),
        Failed::Final(what) | Failed::Address(what) => Err(wrong(url, &what)),
        Failed::Over => Err(stopped(url)),
    }
}

fn wrong(url: &str, what: &str) -> PrepareError {
    PrepareError::Network { url: url.to_owned(), what: what.to_owned() }
}

fn stopped(url: &str) -> PrepareError {
    wrong(url, "stopped")
}

/// What is wrong with a whole file.
fn check(path: &Path, sha256: Option<&str>) -> Result<Option<String>> {
    let Some(wanted) = sha256 else {
        return Ok(None);
    };
    let found = sha256_of(path)?;
    let same = found == wanted;
    Ok((!same).then(|| format!("its sha256 is {found}, but should be {wanted}")))
}

/// The checksum of a file, as people write it.
pub fn sha256_of(path: &Path) -> Result<String> {
    let reading = PrepareError::io(path, "read it for its checksum");
    let mut file = File::open(path).map_err(&reading)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; BUFFER];
    loop {
        match file.read(&mut buffer).map_err(&reading)? {
            0 => return Ok(hex(&hash.finalize())),
            count => hash.update(&buffer[..count]),
        }
    }
}

/// Bytes as digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get("content-length")?.to_str().ok()?.parse().ok()
}

/// The first byte and the length of the whole in `content-range: bytes 5-9/10` or `bytes */10`.
fn content_range(headers: &HeaderMap) -> Option<(Option<u64>, Option<u64>)> {
    let text = headers.get("content-range")?.to_str().ok()?.trim();
    let (range, whole) = text.strip_prefix("bytes")?.trim_start().split_once('/')?;
    let first = range.split_once('-').and_then(|(first, _)| first.trim().parse().ok());
    Some((first, whole.trim().parse().ok()))
}

/// The address in `link: <…>; rel="next"`.
fn next_page(headers: &HeaderMap) -> Option<String> {
    let links = headers.get("link")?.to_str().ok()?;
    let next = links.split(',').find(|link| link.contains("rel=\"next\""))?;
    Some(next.split_once('<')?.1.split_once('>')?.0.to_owned())
}
