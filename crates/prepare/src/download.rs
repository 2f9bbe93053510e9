//! Files from elsewhere: whole, checked, resumed where a connection was cut, or an error.
//!
//! Bytes go to `<file>.part`; the file gets its name only when its length and checksum are right.
//! A part is gone on with in a later run only where a checksum will prove the whole.

use crate::error::{PrepareError, Result};
use crate::hub::Hub;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use ureq::http::{HeaderMap, Response};

/// Failures in a row, without a byte between them, that end a download.
const ATTEMPTS: u32 = 6;
/// Longest time to find a server, and to connect to it: who is offline wants to know it now.
const CONNECT: Duration = Duration::from_secs(2);
/// Bytes written at a time.
const BUFFER: usize = 256 << 10;
/// Most bytes of an answer of the hub's interface.
const MOST_JSON: u64 = 64 << 20;

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
    pub fn new(hub: Hub, stop: Arc<AtomicBool>) -> Client {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_resolve(Some(CONNECT))
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(Duration::from_secs(60)))
            // The token goes along where the hub sends us to another of its own addresses, and
            // nowhere else.
            .redirect_auth_headers(ureq::config::RedirectAuthHeaders::SameHost)
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

    /// A JSON answer and the address of the next page.
    ///
    /// # Errors
    ///
    /// When the server cannot be asked, refuses, or answers something else.
    pub fn json(&self, url: &str) -> std::result::Result<(Value, Option<String>), Failure> {
        let mut failures = 0;
        loop {
            let problem = match self.ask(url, 0)? {
                Ok(response) if response.status().as_u16() == 200 => {
                    let next = next_page(response.headers());
                    let mut text = Vec::new();
                    let body = response.into_body().into_reader();
                    match body.take(MOST_JSON).read_to_end(&mut text) {
                        Ok(_) => {
                            let value = serde_json::from_slice(&text)
                                .map_err(|error| wrong(url, &format!("is no JSON: {error}")))?;
                            return Ok((value, next));
                        }
                        Err(error) => error.to_string(),
                    }
                }
                Ok(response) => refused(url, &response)?,
                Err(problem) => problem,
            };
            failures += 1;
            self.wait(url, failures, &problem)?;
        }
    }

    /// Brings the file at `url` to `path`, if it is not there yet.
    ///
    /// # Errors
    ///
    /// When the server refuses, the connection fails too often, or the bytes are not right.
    pub fn fetch(&self, url: &str, sha256: Option<&str>, path: &Path) -> Result<()> {
        if path.is_file() {
            return Ok(());
        }
        let part = path.with_added_extension("part");
        if sha256.is_none() {
            let _ = std::fs::remove_file(&part);
        }
        let mut failures = 0;
        loop {
            let before = size(&part);
            let problem = match self.receive(url, &part)? {
                None => match check(&part, sha256)? {
                    None => break,
                    Some(problem) => {
                        std::fs::remove_file(&part)
                            .map_err(PrepareError::io(&part, "remove a damaged download"))?;
                        failures += 2; // the whole again is dear
                        problem
                    }
                },
                Some(problem) => problem,
            };
            // What brought bytes was no failure.
            failures = if size(&part) > before { 1 } else { failures + 1 };
            self.wait(url, failures, &problem)?;
        }
        std::fs::rename(&part, path).map_err(PrepareError::io(path, "name a whole download"))
    }

    /// Appends what is missing of the part; the problem where it is still not whole.
    fn receive(&self, url: &str, part: &Path) -> Result<Option<String>> {
        let have = size(part);
        let response = match self.ask(url, have)? {
            Ok(response) => response,
            Err(problem) => return Ok(Some(problem)),
        };
        let whole = whole_size(response.headers());
        let mut at = match response.status().as_u16() {
            206 => have,
            200 => 0,
            416 if whole == Some(have) => return Ok(None),
            416 => {
                let _ = std::fs::remove_file(part);
                return Ok(Some("the part is longer than the file".to_owned()));
            }
            _ => return refused(url, &response).map(Some).map_err(PrepareError::from),
        };
        let whole = whole.or_else(|| Some(at + content_length(response.headers())?));
        let opened = OpenOptions::new().create(true).append(true).open(part);
        let mut file = opened.map_err(PrepareError::io(part, "write a download"))?;
        file.set_len(at).map_err(PrepareError::io(part, "write a download"))?;
        let mut body = response.into_body().into_reader();
        let mut buffer = vec![0; BUFFER];
        loop {
            if self.is_over() {
                return Err(stopped(url));
            }
            match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => {
                    let written = file.write_all(&buffer[..count]);
                    written.map_err(PrepareError::io(part, "write a download"))?;
                    at += count as u64;
                    self.received.fetch_add(count as u64, Ordering::Relaxed);
                }
                Err(error) => return Ok(Some(format!("cut after {at} bytes: {error}"))),
            }
        }
        match whole {
            Some(whole) if whole != at => Ok(Some(format!("cut after {at} of {whole} bytes"))),
            _ => file.sync_all().map(|()| None).map_err(PrepareError::io(part, "write it")),
        }
    }

    /// The answer, or the problem where another try may help.
    fn ask(&self, url: &str, from: u64) -> Result<Asked> {
        let mut request = self.agent.get(url);
        if from > 0 {
            request = request.header("range", format!("bytes={from}-"));
        }
        if let Some(token) = &self.hub.token
            && url.starts_with(&format!("{}/", self.hub.endpoint))
        {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        match request.call() {
            Ok(response) => {
                self.answered.store(true, Ordering::Relaxed);
                Ok(Ok(response))
            }
            Err(error) if !self.answered.load(Ordering::Relaxed) && is_unreachable(&error) => {
                Err(self.unreachable(url, &error))
            }
            Err(error) => Ok(Err(error.to_string())),
        }
    }

    /// Nobody was reached at all.
    fn unreachable(&self, url: &str, error: &ureq::Error) -> PrepareError {
        let problem = error.to_string();
        let problem = problem.trim_start_matches("io: ");
        let mirror = match url.starts_with(&self.hub.endpoint) {
            true => ", set HF_ENDPOINT if you use a mirror of the hub",
            false => "",
        };
        let what = format!(
            "the server cannot be reached ({problem}); check the network{mirror}, or give a file \
             that is on this machine"
        );
        wrong(url, &what)
    }

    /// Waits before another try, or gives up.
    fn wait(&self, url: &str, failures: u32, problem: &str) -> Result<()> {
        if failures >= ATTEMPTS {
            let what = format!(
                "failed {failures} times, lastly: {problem}; check the network, then give the \
                 same command again: it goes on where it stopped"
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

/// A response, or what went wrong.
type Asked = std::result::Result<Response<ureq::Body>, String>;

/// Whether there was no connection at all, as opposed to one that broke.
fn is_unreachable(error: &ureq::Error) -> bool {
    use std::io::ErrorKind;
    match error {
        ureq::Error::Io(error) => !matches!(
            error.kind(),
            ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted
                | ErrorKind::BrokenPipe
                | ErrorKind::UnexpectedEof
                | ErrorKind::Interrupted
        ),
        ureq::Error::Timeout(phase) => {
            matches!(phase, ureq::Timeout::Resolve | ureq::Timeout::Connect)
        }
        ureq::Error::HostNotFound
        | ureq::Error::ConnectionFailed
        | ureq::Error::ConnectProxyFailed(_)
        | ureq::Error::BadUri(_)
        | ureq::Error::Http(_) => true,
        _ => false,
    }
}

/// An answer that is no success: what may pass is a problem, what stays is a failure.
fn refused(url: &str, response: &Response<ureq::Body>) -> std::result::Result<String, Failure> {
    let status = response.status();
    match status.as_u16() {
        404 => Err(Failure::Missing(wrong(url, "is not there (404); check the name"))),
        401 | 403 => {
            let what = format!(
                "is not for everybody ({status}): put a token of an account that may read it \
                 into HF_TOKEN"
            );
            Err(wrong(url, &what).into())
        }
        408 | 425 | 429 | 500..=599 => Ok(format!("the server says {status}")),
        _ => Err(wrong(url, &format!("the server says {status}")).into()),
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

fn size(path: &Path) -> u64 {
    path.metadata().map_or(0, |metadata| metadata.len())
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get("content-length")?.to_str().ok()?.parse().ok()
}

/// The length of the whole behind the slash of `content-range`.
fn whole_size(headers: &HeaderMap) -> Option<u64> {
    headers.get("content-range")?.to_str().ok()?.rsplit('/').next()?.parse().ok()
}

/// The address in `link: <…>; rel="next"`.
fn next_page(headers: &HeaderMap) -> Option<String> {
    let links = headers.get("link")?.to_str().ok()?;
    let next = links.split(',').find(|link| link.contains("rel=\"next\""))?;
    Some(next.split_once('<')?.1.split_once('>')?.0.to_owned())
}
