//! One HTTP request. A separate thread receives the answer, so that the caller can stop waiting at
//! any time, however long the server is silent.
//!
//! Redirects are followed here. A token is sent only to the scheme, host and port that it is meant
//! for.

use data::contained::contained;
use std::io::{ErrorKind, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;
use ureq::http::{HeaderMap, Response, Uri};

/// Bytes passed on at a time.
const BUFFER: usize = 256 << 10;
/// Pieces that may wait for the caller.
const WAITING: usize = 4;
/// Most redirects.
const REDIRECTS: usize = 10;
/// How often the waiting caller checks whether to stop.
const GLANCE: Duration = Duration::from_millis(50);

/// What is asked of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The whole file, or its end.
    Get,
    /// Its headers alone. A redirect to another host that already has the hub's headers is not
    /// followed.
    Head,
}

/// A request.
#[derive(Clone, Debug)]
pub struct HttpRequest {
    /// What is asked.
    pub method: Method,
    /// The address.
    pub url: String,
    /// The first byte wanted.
    pub from: u64,
    /// The version (ETag or date) whose rest is wanted; the server sends all of any other version.
    pub version: Option<String>,
    /// Sent to the first address, and to others of the same scheme, host and port.
    pub token: Option<String>,
}

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The address is invalid.
    Address(String),
    /// Another try would fail in the same way.
    Final(String),
    /// There was no connection at all.
    Unreachable(String),
    /// Another try may help.
    Passing(String),
    /// The caller stopped waiting.
    Over,
}

/// The head of an answer; its body is still to come.
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The headers of the last answer, after all redirects; of a HEAD request also the hub's own
    /// headers of earlier ones.
    pub headers: HeaderMap,
    body: Receiver<Piece>,
}

/// Bytes of the body, empty at its end, or why the connection was lost.
type Piece = Result<Vec<u8>, String>;
type Head = Result<(u16, HeaderMap), RequestError>;

/// Sends a request and waits for the head of the answer.
///
/// # Errors
///
/// When there is no answer.
pub fn ask(agent: ureq::Agent, request: HttpRequest, is_over: &dyn Fn() -> bool) -> AnswerResult {
    let (head, beginning) = sync_channel(1);
    let (pieces, body) = sync_channel(WAITING);
    let thread = std::thread::Builder::new().name("download".to_owned());
    let started = thread.spawn(move || {
        let work = || answer(&agent, request, &head, &pieces);
        if let Err(said) = contained(work) {
            // The caller waits on one of these two channels.
            let what = format!("the network library failed ({said})");
            let _ = head.try_send(Err(RequestError::Final(what.clone())));
            let _ = pieces.try_send(Err(what));
        }
    });
    if let Err(error) = started {
        let what = format!("cannot start a thread for it ({error}); raise `ulimit -u`");
        return Err(RequestError::Final(what));
    }
    let head: Head = match wait(&beginning, is_over)? {
        Some(head) => head,
        None => return Err(RequestError::Passing("there was no answer".to_owned())),
    };
    let (status, headers) = head?;
    Ok(Answer { status, headers, body })
}

/// An answer, or why there is none.
pub type AnswerResult = Result<Answer, RequestError>;

impl Answer {
    /// The next bytes of the body; empty at its end.
    ///
    /// # Errors
    ///
    /// When the connection was lost, or the caller stopped waiting.
    pub fn next(&mut self, is_over: &dyn Fn() -> bool) -> Result<Vec<u8>, RequestError> {
        match wait(&self.body, is_over)? {
            Some(piece) => piece.map_err(RequestError::Passing),
            None => Err(RequestError::Passing("the connection ended".to_owned())),
        }
    }
}

/// The next message; `None` if the sender is gone.
fn wait<T>(from: &Receiver<T>, is_over: &dyn Fn() -> bool) -> Result<Option<T>, RequestError> {
    loop {
        if is_over() {
            return Err(RequestError::Over);
        }
        match from.recv_timeout(GLANCE) {
            Ok(value) => return Ok(Some(value)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
        }
    }
}

/// The thread's work. It ends when the receiver is gone.
fn answer(
    agent: &ureq::Agent,
    request: HttpRequest,
    head: &SyncSender<Head>,
    pieces: &SyncSender<Piece>,
) {
    let is_head = request.method == Method::Head;
    let (response, headers) = match follow(agent, request) {
        Ok(answered) => answered,
        Err(failed) => return drop(head.send(Err(failed))),
    };
    let beginning = (response.status().as_u16(), headers);
    if head.send(Ok(beginning)).is_err() || is_head {
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

/// The headers in which the hub describes a file. It sends them itself, before it redirects to the
/// host that stores the file.
pub const COMMIT: &str = "x-repo-commit";
/// The checksum of a file that is stored elsewhere.
pub const LINKED_ETAG: &str = "x-linked-etag";
/// Its size.
pub const LINKED_SIZE: &str = "x-linked-size";

/// Sends the request and follows redirects.
fn follow(
    agent: &ureq::Agent,
    mut request: HttpRequest,
) -> Result<(Response<ureq::Body>, HeaderMap), RequestError> {
    origin(&request.url)
        .ok_or_else(|| RequestError::Address("a part is missing or invalid".into()))?;
    let mut described = HeaderMap::new();
    for _ in 0..=REDIRECTS {
        let response = once(agent, &request).map_err(sorted)?;
        for name in [COMMIT, LINKED_ETAG, LINKED_SIZE] {
            if let Some(value) = response.headers().get(name) {
                described.insert(name, value.clone());
            }
        }
        let is_redirect = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
        if !is_redirect {
            let mut headers = response.headers().clone();
            if request.method == Method::Head {
                headers.extend(described);
            }
            return Ok((response, headers));
        }
        let location = response.headers().get("location").and_then(|value| value.to_str().ok());
        let url = location.and_then(|location| resolved(&request.url, location));
        let url = url.filter(|url| origin(url).is_some());
        let url = url.ok_or_else(|| {
            let shown: String = location.unwrap_or("nowhere").chars().take(100).collect();
            RequestError::Final(format!("it redirects to '{shown}', which is not a valid address"))
        })?;
        let is_elsewhere = !is_same_origin(&request.url, &url);
        if request.method == Method::Head && is_elsewhere && described.contains_key(LINKED_ETAG) {
            return Ok((response, described));
        }
        // Once dropped, the token stays dropped, even if a foreign server redirects back.
        request.token = request.token.filter(|_| !is_elsewhere);
        request.url = url;
    }
    Err(RequestError::Final(format!("it redirects more than {REDIRECTS} times: check the address")))
}

fn once(agent: &ureq::Agent, request: &HttpRequest) -> Result<Response<ureq::Body>, ureq::Error> {
    let HttpRequest { method, url, from, version, token } = request;
    let mut request = match method {
        Method::Get => agent.get(url),
        // The size of the file itself is wanted.
        Method::Head => agent.head(url).header("accept-encoding", "identity"),
    };
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

/// Decides whether another try may help after an error.
fn sorted(error: ureq::Error) -> RequestError {
    use ureq::{Error, Timeout};
    let shown = error.to_string();
    let shown = shown.trim_start_matches("io: ").to_owned();
    let is_unsafe = match &error {
        Error::Tls(_) | Error::Rustls(_) | Error::Pem(_) => true,
        // Errors of rustls about a server arrive in this form.
        Error::Io(error) => error.kind() == ErrorKind::InvalidData,
        _ => false,
    };
    if is_unsafe {
        return RequestError::Final(format!(
            "no secure connection ({shown}); check the address, the machine's clock and \
             its certificates, or download the file by other means and give it as a file"
        ));
    }
    match error {
        Error::BadUri(_) => RequestError::Address(shown),
        Error::InvalidProxyUrl => RequestError::Final(format!(
            "the proxy's address is not valid ({shown}); check HTTPS_PROXY, HTTP_PROXY and \
             ALL_PROXY"
        )),
        // The address was parsed before, so the problem is a header.
        Error::Http(_) => RequestError::Final(format!(
            "the request has a header that cannot be sent ({shown}); remove the folder for \
             downloads and run the same command again"
        )),
        Error::HostNotFound
        | Error::ConnectionFailed
        | Error::ConnectProxyFailed(_)
        | Error::Timeout(Timeout::Resolve | Timeout::Connect) => RequestError::Unreachable(shown),
        Error::Io(error) if !is_broken(error.kind()) => RequestError::Unreachable(shown),
        _ => RequestError::Passing(shown),
    }
}

/// Whether an established connection broke.
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

/// Whether two addresses have the same scheme, host and port.
#[must_use]
pub fn is_same_origin(one: &str, other: &str) -> bool {
    origin(one).is_some_and(|one| origin(other) == Some(one))
}

/// Scheme, host and port of an address; `None` if one of them is invalid.
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

/// Resolves a `location` header relative to `base`; `None` if it is not HTTP.
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
