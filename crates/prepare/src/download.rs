//! Downloads files: complete and checked, or an error. Resumes after a lost connection.
//!
//! Bytes go to `<file>.part`, which is renamed only when its length and checksum are right.

use crate::disk;
use crate::error::{PrepareError, Result};
use crate::hub::Hub;
use crate::part::Part;
use crate::wire::{self, Answer, HttpRequest, RequestError};
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use ureq::http::HeaderMap;

/// A download gives up after this many failures in a row without a new byte.
const ATTEMPTS: u32 = 6;
/// Timeout for resolving a server's name and for connecting; short, so that an offline user learns
/// it soon.
const CONNECT: Duration = Duration::from_secs(2);
/// Bytes read at a time for a checksum.
const BUFFER: usize = 256 << 10;
/// Bytes of a download between two syncs.
const SYNC: u64 = 64 << 20;

/// Why a download failed.
#[derive(Debug)]
pub enum FetchError {
    /// The server has no such file; the caller may try another name.
    Missing(PrepareError),
    /// Any other error.
    Other(PrepareError),
}

impl From<PrepareError> for FetchError {
    fn from(error: PrepareError) -> FetchError {
        FetchError::Other(error)
    }
}

impl From<FetchError> for PrepareError {
    fn from(failure: FetchError) -> PrepareError {
        match failure {
            FetchError::Missing(error) | FetchError::Other(error) => error,
        }
    }
}

/// Downloads files, sharing settings and counters between threads.
#[derive(Clone)]
pub struct Client {
    agent: ureq::Agent,
    hub: Hub,
    stop: Arc<AtomicBool>,
    /// Stops downloads that are no longer needed.
    pub(crate) halt: Arc<AtomicBool>,
    /// Whether any server has answered yet. Until then a failure to connect is final, so that an
    /// offline user learns it soon.
    answered: Arc<AtomicBool>,
    /// Bytes received so far by all clones of this client.
    pub received: Arc<AtomicU64>,
    /// The pause after the first failure; it doubles with each further one.
    pub first_pause: Duration,
}

impl Client {
    /// A client for the hub and other servers. Setting `stop` ends its waiting.
    #[must_use]
    pub fn new(mut hub: Hub, stop: Arc<AtomicBool>) -> Client {
        // A token that was read from a file often ends with a line feed.
        hub.token = hub.token.map(|token| token.trim().to_owned()).filter(|t| !t.is_empty());
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_resolve(Some(CONNECT))
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(Duration::from_secs(60)))
            // `wire` follows redirects itself, to check where each one leads.
            .max_redirects(0)
            // A stalled connection is an error after this time; the download then resumes.
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

    /// Whether the user wants to stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.is_stopped() || self.halt.load(Ordering::Relaxed)
    }

    /// Returns an error if the user wants to stop. This error is never shown.
    pub(crate) fn check_stopped(&self) -> Result<()> {
        match self.is_stopped() {
            true => Err(PrepareError::Usage("stopped".to_owned())),
            false => Ok(()),
        }
    }

    /// Downloads a short text; returns it with the address of the next page.
    ///
    /// # Errors
    ///
    /// When the server cannot be reached, refuses, or sends more than `most` bytes.
    pub(crate) fn page(
        &self,
        url: &str,
        most: u64,
    ) -> std::result::Result<(Vec<u8>, Option<String>), FetchError> {
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

    /// All bytes of an answer, or the problem if another try may help.
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

    /// Downloads `url` to `path`, unless the file already exists.
    ///
    /// # Errors
    ///
    /// When the server refuses, the connection fails too often, or the bytes are wrong. What was
    /// received is kept if another call can resume from it.
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
            // An attempt that received new bytes does not count as a failure.
            let bytes = part.bytes();
            failures = if bytes > furthest { 1 } else { failures + 1 };
            furthest = furthest.max(bytes);
            self.wait(url, failures, &problem)?;
        }
    }

    /// Downloads the missing rest of the file; returns the problem if it is still incomplete.
    fn receive(&self, url: &str, part: &Part) -> Result<Option<String>> {
        // If the version of the file is unknown, download all of it again.
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
                return Ok(Some(format!(
                    "the server sent another range than requested (from byte {have})"
                )));
            }
            (200, _) => {
                part.begin(&answer.headers)?;
                whole = content_length(&answer.headers);
                0
            }
            (416, _) if have > 0 && whole == Some(have) => return Ok(None),
            (416, _) if have > 0 => {
                part.clear();
                return Ok(Some(format!("the server has nothing after byte {have}")));
            }
            (status, _) => return self.refused(url, status).map(Some).map_err(PrepareError::from),
        };
        let opened = OpenOptions::new().create(true).append(true).open(&part.path);
        let mut file = opened.map_err(PrepareError::io(&part.path, "write a download"))?;
        let copied = self.copy(url, &mut answer, part, (&mut file, &mut at));
        // However it ended, sync what was received, so that a power cut cannot lose it.
        let synced = part.sync(&file, at);
        let problem = copied?;
        synced?;
        Ok(match (problem, whole) {
            (Some(problem), _) => Some(format!("connection lost after {at} bytes: {problem}")),
            (None, Some(whole)) if whole != at => {
                Some(format!("connection lost after {at} of {whole} bytes"))
            }
            (None, _) => None,
        })
    }

    /// Appends an answer's bytes to the partial file; returns the problem if the connection was
    /// lost.
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

    /// The answer, or the problem if another try may help.
    fn ask(
        &self,
        url: &str,
        from: u64,
        version: Option<String>,
    ) -> Result<std::result::Result<Answer, String>> {
        let token = self.hub.token.clone().filter(|_| self.is_hub(url));
        if token.as_ref().is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
            let what = "HF_TOKEN is not valid: it must have only ASCII letters, digits and \
                        punctuation; copy it again from the hub's settings";
            return Err(wrong(url, what));
        }
        let request = HttpRequest { url: url.to_owned(), from, version, token };
        match wire::ask(self.agent.clone(), request, &|| self.is_over()) {
            Ok(answer) => {
                self.answered.store(true, Ordering::Relaxed);
                Ok(Ok(answer))
            }
            Err(RequestError::Unreachable(problem)) if !self.answered.load(Ordering::Relaxed) => {
                Err(self.unreachable(url, &problem))
            }
            Err(RequestError::Address(problem)) => {
                let endpoint = &self.hub.endpoint;
                let is_typed = !self.is_hub(url) || wire::is_same_origin(endpoint, endpoint);
                let whose = if is_typed { "" } else { " of HF_ENDPOINT" };
                let what =
                    format!("this is not a valid address ({problem}): check the spelling{whose}");
                Err(wrong(url, &what))
            }
            Err(failed) => passing(url, failed).map(Err),
        }
    }

    /// The next bytes of an answer, or the problem if another try may help.
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

    /// The error if no server could be reached.
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

    /// Handles an error status: a temporary problem is returned for another try, a permanent one
    /// fails.
    fn refused(&self, url: &str, status: u16) -> std::result::Result<String, FetchError> {
        match status {
            404 => Err(FetchError::Missing(wrong(url, "does not exist (404); check the name"))),
            401 | 403 => {
                let advice = match self.is_hub(url) {
                    true => "put a token of an account that may read it into HF_TOKEN",
                    false => "download the file with a program that can log in, and give its path",
                };
                Err(wrong(url, &format!("needs permission ({status}): {advice}")).into())
            }
            408 | 429 | 500..=599 => Ok(format!("the server answered {status}")),
            _ => {
                Err(wrong(url, &format!("the server answered {status}; check the address")).into())
            }
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

/// Returns problems that another try may solve; everything else is an error.
fn passing(url: &str, failed: RequestError) -> Result<String> {
    match failed {
        RequestError::Passing(problem) | RequestError::Unreachable(problem) => Ok(problem),
        RequestError::Final(what) | RequestError::Address(what) => Err(wrong(url, &what)),
        RequestError::Over => Err(stopped(url)),
    }
}

fn wrong(url: &str, what: &str) -> PrepareError {
    PrepareError::Network { url: url.to_owned(), what: what.to_owned() }
}

fn stopped(url: &str) -> PrepareError {
    wrong(url, "stopped")
}

/// Checks a complete file; returns what is wrong with it.
fn check(path: &Path, sha256: Option<&str>) -> Result<Option<String>> {
    let Some(wanted) = sha256 else {
        return Ok(None);
    };
    let found = sha256_of(path)?;
    let same = found == wanted;
    Ok((!same).then(|| format!("its sha256 is {found}, but should be {wanted}")))
}

/// The SHA-256 of a file in hexadecimal.
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

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get("content-length")?.to_str().ok()?.parse().ok()
}

/// The first byte and the total length from `content-range: bytes 5-9/10` or `bytes */10`.
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
