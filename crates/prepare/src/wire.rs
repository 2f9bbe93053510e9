//! One question to a server. The answer comes from a thread of its own, so that whoever waits for
//! it can leave at any time, however long the server is silent.
//!
//! Redirects are followed here: a token goes along only to the scheme, host and port that it was
//! meant for.

use crate::contained::contained;
use std::io::{ErrorKind, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;
use ureq::http::{HeaderMap, Response, Uri};

/// Bytes handed on at a time.
const BUFFER: usize = 256 << 10;
/// Pieces that wait to be taken.
const WAITING: usize = 4;
/// Most redirects.
const REDIRECTS: usize = 10;
/// How often whoever waits is asked whether it still does.
const GLANCE: Duration = Duration::from_millis(50);

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// Where.
    pub url: String,
    /// From this byte on.
    pub from: u64,
    /// The mark of the version whose rest is wanted; the server gives the whole of another one.
    pub version: Option<String>,
    /// For the first address, and others of the same scheme, host and port.
    pub token: Option<String>,
}

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Failed {
    /// The address cannot be asked, now or later.
    Address(String),
    /// Another try would end in the same way.
    Final(String),
    /// There was no connection at all.
    Unreachable(String),
    /// Another try may help.
    Passing(String),
    /// Nobody waits any more.
    Over,
}

/// The beginning of an answer; its bytes are still to come.
pub struct Answer {
    /// As in HTTP.
    pub status: u16,
    /// Of the last answer, behind all redirects.
    pub headers: HeaderMap,
    body: Receiver<Piece>,
}

/// Bytes, none of them at the end, or what cut them off.
type Piece = Result<Vec<u8>, String>;
type Head = Result<(u16, HeaderMap), Failed>;

/// Asks, and waits for the beginning of the answer.
///
/// # Errors
///
/// When there is none.
pub fn ask(agent: ureq::Agent, question: Question, is_over: &dyn Fn() -> bool) -> Asked {
    let (head, beginning) = sync_channel(1);
    let (pieces, body) = sync_channel(WAITING);
    let thread = std::thread::Builder::new().name("download".to_owned());
    let started = thread.spawn(move || {
        let work = || answer(&agent, question, &head, &pieces);
        if let Err(said) = contained(work) {
            // One of the two is still waited for.
            let what = format!("the network library failed ({said})");
            let _ = head.try_send(Err(Failed::Final(what.clone())));
            let _ = pieces.try_send(Err(what));
        }
    });
    if let Err(error) = started {
        let what = format!("no thread can be started for it ({error}); raise `ulimit -u`");
        return Err(Failed::Final(what));
    }
    let head: Head = match wait(&beginning, is_over)? {
        Some(head) => head,
        None => return Err(Failed::Passing("the answer never began".to_owned())),
    };
    let (status, headers) = head?;
    Ok(Answer { status, headers, body })
}

/// An answer, or why there is none.
pub type Asked = Result<Answer, Failed>;

impl Answer {
    /// The next bytes; none at the end.
    ///
    /// # Errors
    ///
    /// When the connection was cut, or nobody waits any more.
    pub fn next(&mut self, is_over: &dyn Fn() -> bool) -> Result<Vec<u8>, Failed> {
        match wait(&self.body, is_over)? {
            Some(piece) => piece.map_err(Failed::Passing),
            None => Err(Failed::Passing("the connection ended".to_owned())),
        }
    }
}

/// What comes next; none where nobody sends any more.
fn wait<T>(from: &Receiver<T>, is_over: &dyn Fn() -> bool) -> Result<Option<T>, Failed> {
    loop {
        if is_over() {
            return Err(Failed::Over);
        }
        match from.recv_timeout(GLANCE) {
            Ok(value) => return Ok(Some(value)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
        }
    }
}

/// The thread's work. Where nobody takes a piece, it ends.
fn answer(
    agent: &ureq::Agent,
    question: Question,
    head: &SyncSender<Head>,
    pieces: &SyncSender<Piece>,
) {
    let response = match follow(agent, question) {
        Ok(response) => response,
        Err(failed) => return drop(head.send(Err(failed))),
    };
    let beginning = (response.status().as_u16(), response.headers().clone());
    if head.send(Ok(beginning)).is_err() {
        return;
    }
    let mut body = response.into_body().into_reader();
    let mut buffer = vec![0; BUFFER];
    loop {
        let piece = match body.read(&mut buffer) {
            Ok(count) => Ok(buffer[..count].to_vec()),
            Err(error) => Err(error.to_string()),
        };
        let is_last = !piece.as_ref().is_ok_and(|bytes| !bytes.is_empty());
        if pieces.send(piece).is_err() || is_last {
            return;
        }
    }
}

/// Asks, and asks again where it is sent to.
fn follow(agent: &ureq::Agent, mut question: Question) -> Result<Response<ureq::Body>, Failed> {
    origin(&question.url).ok_or_else(|| Failed::Address("a part is missing or odd".into()))?;
    for _ in 0..=REDIRECTS {
        let response = once(agent, &question).map_err(sorted)?;
        if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
            return Ok(response);
        }
        let location = response.headers().get("location").and_then(|value| value.to_str().ok());
        let url = location.and_then(|location| resolved(&question.url, location));
        let url = url.filter(|url| origin(url).is_some());
        let url = url.ok_or_else(|| {
            let shown: String = location.unwrap_or("nowhere").chars().take(100).collect();
            Failed::Final(format!("it is moved to '{shown}', which is no address"))
        })?;
        // Once dropped, it stays so: the way back leads over somebody else.
        question.token = question.token.filter(|_| is_same_origin(&question.url, &url));
        question.url = url;
    }
    Err(Failed::Final(format!("it is moved more than {REDIRECTS} times: check the address")))
}

fn once(agent: &ureq::Agent, question: &Question) -> Result<Response<ureq::Body>, ureq::Error> {
    let Question { url, from, version, token } = question;
    let mut request = agent.get(url);
    if *from > 0 {
        request = request.header("range", format!("bytes={from}-"));
        if let Some(version) = version {
            request = request.header("if-range", version);
        }
    }
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    request.call()
}

/// What an error means for another try.
fn sorted(error: ureq::Error) -> Failed {
    use ureq::{Error, Timeout};
    let shown = error.to_string();
    let shown = shown.trim_start_matches("io: ").to_owned();
    let is_unsafe = match &error {
        Error::Tls(_) | Error::Rustls(_) | Error::Pem(_) => true,
        // What rustls finds wrong with a server arrives in this way.
        Error::Io(error) => error.kind() == ErrorKind::InvalidData,
        _ => false,
    };
    if is_unsafe {
        return Failed::Final(format!(
            "there is no safe connection ({shown}); check the address, the machine's clock and \
             its certificates, or fetch the file in another way and give it as a file"
        ));
    }
    match error {
        Error::BadUri(_) => Failed::Address(shown),
        Error::InvalidProxyUrl => Failed::Final(format!(
            "the proxy's address is not valid ({shown}); check HTTPS_PROXY, HTTP_PROXY and \
             ALL_PROXY"
        )),
        // The address was parsed before: it is a header.
        Error::Http(_) => Failed::Final(format!(
            "the request has a header that cannot be sent ({shown}); remove the folder for \
             downloads and run the same command again"
        )),
        Error::HostNotFound
        | Error::ConnectionFailed
        | Error::ConnectProxyFailed(_)
        | Error::Timeout(Timeout::Resolve | Timeout::Connect) => Failed::Unreachable(shown),
        Error::Io(error) if !is_broken(error.kind()) => Failed::Unreachable(shown),
        _ => Failed::Passing(shown),
    }
}

/// Whether a connection broke that was there before.
fn is_broken(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::UnexpectedEof
            | ErrorKind::Interrupted
    )
}

/// Whether two addresses have one scheme, host and port.
#[must_use]
pub fn is_same_origin(one: &str, other: &str) -> bool {
    origin(one).is_some_and(|one| origin(other) == Some(one))
}

/// Scheme, host and port of an address; none where one of them is not as it must be.
fn origin(url: &str) -> Option<(String, String, u16)> {
    let uri: Uri = url.parse().ok()?;
    let scheme = uri.scheme_str()?.to_ascii_lowercase();
    let usual = if scheme == "https" { 443 } else { 80 };
    let authority = uri.authority()?.as_str();
    let behind_user = authority.rsplit('@').next()?;
    let behind_host = behind_user.rsplit(']').next()?; // an address of IPv6 has colons, too
    let port = match behind_host.split_once(':') {
        Some((_, port)) if !port.is_empty() => port.parse().ok()?,
        _ => usual,
    };
    let host = uri.host().filter(|host| !host.is_empty())?;
    Some((scheme, host.to_ascii_lowercase(), port))
}

/// The address that a `location` means, seen from `base`; none where it is not HTTP.
fn resolved(base: &str, location: &str) -> Option<String> {
    let location = location.split('#').next().unwrap_or_default();
    let (scheme, rest) = base.split_once("://")?;
    let host = rest.split(['/', '?', '#']).next()?;
    let lower = location.to_ascii_lowercase();
    if lower.starts_with("http://") || lower.starts_with("https://") {
        return Some(location.to_owned());
    }
    if let Some(rest) = location.strip_prefix("//") {
        return Some(format!("{scheme}://{rest}"));
    }
    if location.starts_with('/') {
        return Some(format!("{scheme}://{host}{location}"));
    }
    if location.is_empty() || location.contains(':') {
        return None; // another scheme
    }
    let path = rest[host.len()..].split(['?', '#']).next().unwrap_or_default();
    let folder = path.rfind('/').map_or("/", |slash| &path[..=slash]);
    Some(format!("{scheme}://{host}{folder}{location}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_seen_from_where_they_stand() {
        let base = "https://h:8/a/b?c=/d";
        for (location, want) in [
            ("http://x/y", Some("http://x/y")),
            ("//x/y#z", Some("https://x/y")),
            ("/y", Some("https://h:8/y")),
            ("y?z", Some("https://h:8/a/y?z")),
            ("file:///etc/passwd", None),
            ("", None),
        ] {
            assert_eq!(resolved(base, location).as_deref(), want, "{location}");
        }
        assert_eq!(resolved("http://h", "y").as_deref(), Some("http://h/y"));
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        for (one, other, want) in [
            ("https://h/a", "https://H:443/b", true),
            ("http://h:80/a", "http://h/b", true),
            ("https://h/a", "http://h/a", false),
            ("https://h/a", "https://h:444/a", false),
            ("https://h/a", "https://h.x/a", false),
            ("https://h/a", "https://h@x/a", false),
            ("https://h:70000/a", "https://h:70000/a", false),
            ("http://[::1]:8/a", "http://[::1]:8/b", true),
            ("nonsense", "nonsense", false),
        ] {
            assert_eq!(is_same_origin(one, other), want, "{one} {other}");
        }
    }
}
