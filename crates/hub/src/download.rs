//! Downloads files: complete and checked, or an error. Resumes after a lost connection.
//!
//! Bytes go to `<file>.part`, which is renamed only when its length and checksum are right.

use crate::checksum::Checksum;
use crate::disk::{check_limit, check_room};
use crate::environment::{self, Hub};
use crate::error::{HubError, Result};
use crate::lock::TryLock;
use crate::part::{Part, Size};
use crate::wire::{self, Answer, HttpRequest, Method, RequestError};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::ops::ControlFlow;
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
/// The longest pause that a server may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Bytes of unknown many between two looks at the free disk space.
const LOOK: u64 = 16 << 20;
/// Bytes of a download between two syncs.
const SYNC: u64 = 64 << 20;

/// Why a download failed.
#[derive(Debug)]
pub enum FetchError {
    /// The server has no such file; the caller may try another name.
    Missing {
        /// The error for the user.
        error: HubError,
        /// Whether the hub itself said so. Otherwise it may be a proxy's or a mirror's error.
        is_certain: bool,
    },
    /// Any other error.
    Other(HubError),
}

/// A short text with the address of the page after it.
pub type Page = (Vec<u8>, Option<String>);

/// The first byte of an answer and the size of the whole file; or the end of an attempt, with the
/// problem if the file is still incomplete.
type Placed = ControlFlow<Option<Retry>, (u64, Option<u64>)>;

/// A problem that another try may solve.
#[derive(Debug)]
pub struct Retry {
    /// What happened.
    what: String,
    /// The pause that the server asks for.
    pause: Option<Duration>,
}

impl From<String> for Retry {
    fn from(what: String) -> Retry {
        Retry { what, pause: None }
    }
}

/// What the hub says about a file before it is downloaded.
#[derive(Clone, Debug)]
pub struct Described {
    /// The commit of the repository.
    pub commit: Option<String>,
    /// The file's ETag without quotes.
    pub etag: Option<String>,
    /// Its size.
    pub bytes: Option<u64>,
}

impl From<HubError> for FetchError {
    fn from(error: HubError) -> FetchError {
        FetchError::Other(error)
    }
}

impl From<FetchError> for HubError {
    fn from(failure: FetchError) -> HubError {
        match failure {
            FetchError::Missing { error, .. } | FetchError::Other(error) => error,
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
    pub halt: Arc<AtomicBool>,
    /// Whether any server has answered yet. Until then a failure to connect is final, so that an
    /// offline user learns it soon.
    answered: Arc<AtomicBool>,
    /// Bytes received so far by all clones of this client.
    pub received: Arc<AtomicU64>,
    /// The pause after the first failure; it doubles with each further one.
    pub first_pause: Duration,
    /// Whether requests to the hub are forbidden (`HF_HUB_OFFLINE`, `TRANSFORMERS_OFFLINE`).
    pub is_offline: bool,
    /// Whether a download is refused that the disk has no room for.
    pub checks_room: bool,
    /// Locks files. Tests replace it.
    pub try_lock: TryLock,
    /// Whether the user knows that there are no locks.
    knows_no_locks: Arc<AtomicBool>,
}

impl Client {
    /// A client as the environment asks for.
    #[must_use]
    pub fn from_environment(stop: Arc<AtomicBool>) -> Client {
        let is_offline = environment::is_offline();
        Client { is_offline, ..Client::new(Hub::from_environment(), stop) }
    }

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
            .user_agent("fitgpt")
            .build();
        let received = Arc::new(AtomicU64::new(0));
        let first_pause = Duration::from_secs(1);
        let (halt, answered) = (Arc::default(), Arc::default());
        Client {
            agent: config.into(),
            hub,
            stop,
            halt,
            answered,
            received,
            first_pause,
            is_offline: false,
            checks_room: true,
            try_lock: File::try_lock,
            knows_no_locks: Arc::default(),
        }
    }

    /// Where the hub is.
    #[must_use]
    pub fn hub(&self) -> &Hub {
        &self.hub
    }

    /// Whether the user wants to stop.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether the user is still to be told that there are no locks; true once.
    pub(crate) fn says_no_locks(&self) -> bool {
        !self.knows_no_locks.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_stopped() || self.halt.load(Ordering::Relaxed)
    }

    /// Returns an error if the user wants to stop. This error is never shown.
    ///
    /// # Errors
    ///
    /// When the user wants to stop.
    pub fn check_stopped(&self) -> Result<()> {
        if self.is_stopped() { Err(HubError::Stopped) } else { Ok(()) }
    }

    /// Downloads a short text; returns it with the address of the next page.
    ///
    /// # Errors
    ///
    /// When the server cannot be reached, refuses, or sends more than `most` bytes.
    pub fn page(&self, url: &str, most: u64) -> std::result::Result<Page, FetchError> {
        let mut failures = 0;
        loop {
            let problem = match self.ask(Method::Get, url, 0, None)? {
                Ok(answer) if answer.status == 200 => {
                    let next = next_page(&answer.headers);
                    match self.all(url, answer, most)? {
                        Ok(text) => return Ok((text, next)),
                        Err(problem) => problem,
                    }
                }
                Ok(answer) => self.refused(url, &answer)?,
                Err(problem) => problem,
            };
            failures += 1;
            self.wait(url, failures, &problem)?;
        }
    }

    /// Asks the hub about a file.
    ///
    /// # Errors
    ///
    /// When the server cannot be reached or refuses.
    pub fn describe(&self, url: &str) -> std::result::Result<Described, FetchError> {
        let mut failures = 0;
        loop {
            let problem = match self.ask(Method::Head, url, 0, None)? {
                Ok(answer) if matches!(answer.status, 200 | 301..=308) => {
                    return Ok(Described::of(&answer.headers));
                }
                Ok(answer) => self.refused(url, &answer)?,
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
    ) -> Result<std::result::Result<Vec<u8>, Retry>> {
        let mut text = Vec::new();
        loop {
            match self.next(url, &mut answer)? {
                Ok(piece) if piece.is_empty() => return Ok(Ok(text)),
                Ok(piece) => text.extend(piece),
                Err(problem) => return Ok(Err(problem)),
            }
            if text.len() as u64 > most {
                let what = format!("the answer has more than {most} bytes; is HF_ENDPOINT a hub?");
                return Err(HubError::network(url, what));
            }
        }
    }

    /// Downloads `url` to `path`, unless the file already exists.
    ///
    /// # Errors
    ///
    /// When the server refuses, the connection fails too often, or the bytes are wrong. What was
    /// received is kept if another call can resume from it.
    pub fn fetch(&self, url: &str, checksum: Option<&Checksum>, path: &Path) -> Result<()> {
        if path.is_file() {
            return Ok(());
        }
        self.fetch_into(url, checksum, (&Part::new(path, checksum.is_some()), path), &mut |_| ())
    }

    /// Downloads `url` into a partial file, which then becomes `path`. `watch` gets the bytes that
    /// are there so far.
    ///
    /// # Errors
    ///
    /// As [`Self::fetch`].
    pub(crate) fn fetch_into(
        &self,
        url: &str,
        checksum: Option<&Checksum>,
        (part, path): (&Part, &Path),
        watch: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let failed = match self.fetch_part(url, checksum, part, watch) {
            Ok(()) => return part.finish(path),
            Err(HubError::Network { url, what }) => {
                HubError::Network { url, what: what + &part.left() }
            }
            Err(HubError::Local { path, what }) => {
                HubError::Local { path, what: what + &part.left() }
            }
            Err(error) => error,
        };
        if !part.is_resumable() || part.bytes() == 0 {
            part.clear(); // of no use, and it may have filled the disk
        }
        Err(failed)
    }

    fn fetch_part(
        &self,
        url: &str,
        checksum: Option<&Checksum>,
        part: &Part,
        watch: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let mut failures = 0;
        let mut furthest = part.bytes();
        loop {
            let problem = match self.receive(url, part, watch)? {
                None => {
                    let check = |sum: &Checksum| sum.check(&part.path, &|| self.is_over());
                    let Some(problem) = checksum.map(check).transpose()?.flatten() else {
                        return Ok(());
                    };
                    part.clear();
                    failures += 2; // the whole again is dear
                    problem.into()
                }
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
    fn receive(&self, url: &str, part: &Part, watch: &mut dyn FnMut(u64)) -> Result<Option<Retry>> {
        // If the version of the file is unknown, download all of it again.
        let have = if part.is_resumable() { part.bytes() } else { 0 };
        let version = if have > 0 { part.version() } else { None };
        let mut answer = match self.ask(Method::Get, url, have, version)? {
            Ok(answer) => answer,
            Err(problem) => return Ok(Some(problem)),
        };
        let (mut at, mut whole) = match self.place(url, part, have, &answer)? {
            ControlFlow::Continue(place) => place,
            ControlFlow::Break(problem) => return Ok(problem),
        };
        let most = part.size.most();
        let problem = |what: String| Ok(Some(Retry::from(what)));
        let excess = |bytes: u64| {
            part.clear();
            problem(format!("the server sends {bytes} bytes or more, but at most {most} are right"))
        };
        if let Some(bytes) = whole.filter(|bytes| *bytes > most) {
            return excess(bytes);
        }
        if let Size::Exactly(bytes) = part.size {
            whole = Some(bytes);
        }
        if let Some(whole) = whole.filter(|_| self.checks_room) {
            check_room(url, &part.path, Some(whole.saturating_sub(at)))?;
        }
        watch(at);
        let opened = OpenOptions::new().create(true).append(true).open(&part.path);
        let mut file = opened.map_err(HubError::io(&part.path, "write a download"))?;
        let looks = self.checks_room && whole.is_none();
        let copied = self.copy(url, (&mut answer, looks), part, (&mut file, &mut at), watch);
        // However it ended, sync what was received, so that a power cut cannot lose it.
        let synced = part.sync(&file, at);
        let lost = copied?;
        synced?;
        match (lost, whole) {
            _ if at > most => excess(at),
            (Some(Retry { what, .. }), _) => {
                problem(format!("connection lost after {at} bytes: {what}"))
            }
            (None, Some(whole)) if whole != at => {
                problem(format!("connection lost after {at} of {whole} bytes"))
            }
            (None, _) => Ok(None),
        }
    }

    /// Where the bytes of an answer belong, and the size of the whole file if the answer says it;
    /// or the end of this attempt.
    fn place(&self, url: &str, part: &Part, have: u64, answer: &Answer) -> Result<Placed> {
        let problem = |what: String| {
            part.clear();
            Ok(ControlFlow::Break(Some(Retry::from(what))))
        };
        let range = content_range(&answer.headers);
        let whole = range.and_then(|(_, whole)| whole);
        match (answer.status, range) {
            (206, Some((Some(first), _))) if first == have => {
                if have == 0 {
                    part.clear(); // bytes of a version that nobody knows
                }
                let rest = content_length(&answer.headers);
                let whole = whole.or_else(|| have.checked_add(rest?));
                Ok(ControlFlow::Continue((have, whole)))
            }
            (206, _) => {
                problem(format!("the server sent another range than requested (from byte {have})"))
            }
            (200, _) => {
                part.begin(&answer.headers)?;
                Ok(ControlFlow::Continue((0, content_length(&answer.headers))))
            }
            (416, _) if have > 0 && whole == Some(have) && part.size.allows(have) => {
                Ok(ControlFlow::Break(None))
            }
            (416, _) if have > 0 => problem(format!("the server has nothing after byte {have}")),
            _ => Ok(ControlFlow::Break(Some(self.refused(url, answer)?))),
        }
    }

    /// Appends an answer's bytes to the partial file; returns the problem if the connection was
    /// lost. Stops at the first byte that the file cannot have, or when it `looks` and the disk is
    /// nearly full.
    fn copy(
        &self,
        url: &str,
        (answer, looks): (&mut Answer, bool),
        part: &Part,
        (file, at): (&mut File, &mut u64),
        watch: &mut dyn FnMut(u64),
    ) -> Result<Option<Retry>> {
        let limit = data::disk::file_limit();
        let (mut synced, mut looked) = (*at, *at);
        loop {
            let piece = match self.next(url, answer)? {
                Ok(piece) if piece.is_empty() => return Ok(None),
                Ok(piece) => piece,
                Err(problem) => return Ok(Some(problem)),
            };
            let bytes = at.saturating_add(piece.len() as u64);
            if bytes > part.size.most() {
                *at = bytes;
                return Ok(None);
            }
            check_limit(&part.path, bytes, limit)?;
            let written = file.write_all(&piece);
            written.map_err(HubError::io(&part.path, "write a download"))?;
            *at = bytes;
            watch(bytes);
            self.received.fetch_add(piece.len() as u64, Ordering::Relaxed);
            if looks && bytes.saturating_sub(looked) >= LOOK {
                check_room(url, &part.path, None)?;
                looked = bytes;
            }
            if bytes.saturating_sub(synced) >= SYNC {
                part.sync(file, bytes)?;
                synced = bytes;
            }
        }
    }

    /// The answer, or the problem if another try may help.
    fn ask(
        &self,
        method: Method,
        url: &str,
        from: u64,
        version: Option<String>,
    ) -> Result<std::result::Result<Answer, Retry>> {
        if self.is_offline && self.is_hub(url) {
            let what = "HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE forbids requests to the hub; \
                        unset it to download";
            return Err(HubError::network(url, what));
        }
        let token = self.hub.token.clone().filter(|_| self.is_hub(url));
        if token.as_ref().is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
            let what = "HF_TOKEN is not valid: it must have only ASCII letters, digits and \
                        punctuation; copy it again from the hub's settings";
            return Err(HubError::network(url, what));
        }
        let request = HttpRequest { method, url: url.to_owned(), from, version, token };
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
                Err(HubError::network(url, what))
            }
            Err(failed) => passing(url, failed).map(Err),
        }
    }

    /// The next bytes of an answer, or the problem if another try may help.
    fn next(&self, url: &str, answer: &mut Answer) -> Result<std::result::Result<Vec<u8>, Retry>> {
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
    fn unreachable(&self, url: &str, problem: &str) -> HubError {
        let mirror = match self.is_hub(url) {
            true => ", set HF_ENDPOINT if you use a mirror of the hub",
            false => "",
        };
        let what = format!(
            "the server cannot be reached ({problem}); check the network{mirror}, or give a file \
             that is on this machine"
        );
        HubError::network(url, what)
    }

    /// Handles an error status: a temporary problem is returned for another try, a permanent one
    /// fails. The hub says in a header of its own what is missing or closed.
    fn refused(&self, url: &str, answer: &Answer) -> std::result::Result<Retry, FetchError> {
        let status = answer.status;
        let code = header(&answer.headers, "x-error-code").unwrap_or_default();
        let token = "put a token of an account that may read it into HF_TOKEN";
        match (status, code) {
            (401 | 403, "GatedRepo") => {
                let what = format!(
                    "is gated ({status}): accept its terms on the repository's page, then {token}"
                );
                Err(HubError::network(url, what).into())
            }
            (401 | 404, "RepoNotFound") => {
                let what = format!(
                    "there is no such repository, or it is private ({status}): check the name, or \
                     {token}"
                );
                Err(HubError::network(url, what).into())
            }
            (404, _) => {
                let what = "does not exist (404); check the name";
                let error = HubError::network(url, what);
                Err(FetchError::Missing { error, is_certain: code == "EntryNotFound" })
            }
            (401 | 403, _) => {
                let advice = match self.is_hub(url) {
                    true => token,
                    false => "download the file with a program that can log in, and give its path",
                };
                Err(HubError::network(url, format!("needs permission ({status}): {advice}")).into())
            }
            (408 | 429 | 500..=599, _) => Ok(self.later(url, answer)?),
            _ => {
                let what = format!("the server answered {status}; check the address");
                Err(HubError::network(url, what).into())
            }
        }
    }

    /// A server that may answer later: it can say when.
    fn later(&self, url: &str, answer: &Answer) -> Result<Retry> {
        let status = answer.status;
        let said = match status {
            429 => "the server answered 429 (too many requests)".to_owned(),
            _ => format!("the server answered {status}"),
        };
        let asked =
            header(&answer.headers, "retry-after").and_then(|text| text.trim().parse().ok());
        let pause = asked.map(Duration::from_secs);
        if let Some(pause) = pause.filter(|pause| *pause > LONGEST_PAUSE) {
            let is_known = self.hub.token.is_some() || !self.is_hub(url);
            let more = if is_known { "" } else { "; with a token in HF_TOKEN the hub allows more" };
            let what = format!(
                "{said} and asks to wait {} s; run the same command again after that{more}",
                pause.as_secs()
            );
            return Err(HubError::network(url, what));
        }
        Ok(Retry { what: said, pause })
    }

    /// Waits before another try, or gives up.
    fn wait(&self, url: &str, failures: u32, problem: &Retry) -> Result<()> {
        if failures >= ATTEMPTS {
            let what = format!(
                "failed {failures} times, last: {}; check the network, then run the same \
                 command again",
                problem.what
            );
            return Err(HubError::network(url, what));
        }
        let usual = self.first_pause * 2_u32.pow(failures.saturating_sub(1).min(6));
        let mut left = usual.max(problem.pause.unwrap_or_default());
        while !left.is_zero() {
            if self.is_over() {
                return Err(HubError::Stopped);
            }
            let step = left.min(Duration::from_millis(50));
            std::thread::sleep(step);
            left -= step;
        }
        Ok(())
    }
}

/// Returns problems that another try may solve; everything else is an error.
fn passing(url: &str, failed: RequestError) -> Result<Retry> {
    match failed {
        RequestError::Passing(problem) | RequestError::Unreachable(problem) => Ok(problem.into()),
        RequestError::Final(what) | RequestError::Address(what) => {
            Err(HubError::network(url, what))
        }
        RequestError::Over => Err(HubError::Stopped),
    }
}

impl Described {
    fn of(headers: &HeaderMap) -> Described {
        let linked = header(headers, wire::LINKED_ETAG);
        let etag = linked.or_else(|| header(headers, "etag"));
        let plain = |etag: &str| etag.trim_start_matches("W/").trim_matches('"').to_owned();
        let size = header(headers, wire::LINKED_SIZE).and_then(|text| text.trim().parse().ok());
        let own = || content_length(headers).filter(|_| linked.is_none());
        Described {
            commit: header(headers, wire::COMMIT).map(str::to_owned),
            etag: etag.map(plain),
            bytes: size.or_else(own),
        }
    }
}

/// A header's text.
fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
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
