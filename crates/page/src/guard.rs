//! Who may ask for what: names of this machine only (a foreign page could otherwise point its own
//! name at 127.0.0.1), no request of another page that changes anything, a token where others can
//! connect, and headers that keep the browser from running or showing what is not ours.

use hyper::header::{
    CONTENT_TYPE, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN, SET_COOKIE,
};
use hyper::{Method, StatusCode, Uri};
use std::net::IpAddr;

/// Headers of every answer.
const HEADERS: [(&str, &str); 8] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src \
         'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("x-frame-options", "DENY"),
    ("permissions-policy", "camera=(), microphone=(), geolocation=()"),
    ("cache-control", "no-store"),
];

/// Names under which a page on this machine is reached, whatever the port: `ssh -L` changes it.
const LOOPBACK_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Bytes of a token.
const TOKEN_BYTES: usize = 16;

/// The parameter of the first address.
const TOKEN: &str = "token";

/// Whether an address is one of this machine only.
pub fn loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The rules of a server.
#[derive(Clone, Debug)]
pub struct Access {
    /// Names that the header Host may have, without port, in lower case.
    hosts: Vec<String>,
    /// The token in hexadecimal, if others can connect.
    token: Option<String>,
    /// The name of the cookie: servers on other ports of this machine have their own.
    cookie: String,
}

/// Why a request is refused.
pub type Refusal = (StatusCode, &'static str);

impl Access {
    /// The rules of a server on this host and port. On another host than this machine's own
    /// addresses, a token is drawn.
    pub fn new(host: &str, port: u16) -> std::io::Result<Access> {
        let mut hosts: Vec<String> = LOOPBACK_NAMES.map(str::to_string).to_vec();
        let token = match loopback(host) {
            true => None,
            false => Some(drawn_token()?),
        };
        hosts.push(match host.contains(':') && !host.starts_with('[') {
            true => format!("[{}]", host.to_ascii_lowercase()),
            false => host.to_ascii_lowercase(),
        });
        Ok(Access { hosts, token, cookie: format!("fitgpt-{port}") })
    }

    /// The token to print once.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Whether the server is open to other machines at any of its addresses.
    fn is_open(&self) -> bool {
        self.hosts.iter().any(|host| host == "0.0.0.0" || host == "[::]")
    }

    /// Checks a request; on an allowed one the caller goes on.
    pub fn check(&self, method: &Method, headers: &HeaderMap) -> Result<(), Refusal> {
        let host = text(headers, HOST).ok_or((StatusCode::BAD_REQUEST, "no Host header"))?;
        let name = without_port(host).to_ascii_lowercase();
        // With a token, an address of this machine that the user did not type is no danger.
        let is_address = self.token.is_some() && self.is_open() && is_address(&name);
        if !self.hosts.contains(&name) && !is_address {
            let what = "this Host is not allowed: open the address that fitgpt printed";
            return Err((StatusCode::MISDIRECTED_REQUEST, what));
        }
        if let Some(token) = &self.token
            && !self.has_cookie(headers, token)
        {
            let what = "open the address with the token that fitgpt printed";
            return Err((StatusCode::UNAUTHORIZED, what));
        }
        match *method {
            Method::GET | Method::HEAD => Ok(()),
            Method::POST => may_change(headers, host),
            _ => Err((StatusCode::METHOD_NOT_ALLOWED, "GET or POST")),
        }
    }

    /// The cookie for a first visit with the right token in the address.
    pub fn first_visit(&self, uri: &Uri) -> Option<HeaderValue> {
        let token = self.token.as_ref()?;
        let pairs = crate::query::pairs(uri.query());
        let given = crate::query::get(&pairs, TOKEN)?;
        if !is_equal(given, token) {
            return None;
        }
        let cookie =
            format!("{}={token}; HttpOnly; SameSite=Strict; Path=/; Max-Age=2592000", self.cookie);
        HeaderValue::from_str(&cookie).ok()
    }

    fn has_cookie(&self, headers: &HeaderMap, token: &str) -> bool {
        let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|c| c.split_once('='));
        pairs.any(|(name, value)| name.trim() == self.cookie && is_equal(value.trim(), token))
    }
}

/// What a POST must have: our own page as its origin, and JSON, which no form of another page can
/// send.
fn may_change(headers: &HeaderMap, host: &str) -> Result<(), Refusal> {
    let origin = text(headers, ORIGIN).unwrap_or_default();
    let named = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    let is_own = named.is_some_and(|named| named.eq_ignore_ascii_case(host));
    let site = text(headers, HeaderName::from_static("sec-fetch-site"));
    if !is_own || site.is_some_and(|site| site != "same-origin") {
        return Err((StatusCode::FORBIDDEN, "only the page itself may do this (Origin)"));
    }
    let kind = text(headers, CONTENT_TYPE).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    match kind.eq_ignore_ascii_case("application/json") {
        true => Ok(()),
        false => Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, "send application/json")),
    }
}

/// Adds the headers that every answer has.
pub fn protect(headers: &mut HeaderMap) {
    for (name, value) in HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
}

/// Sets the cookie of a first visit.
pub fn set_cookie(headers: &mut HeaderMap, cookie: HeaderValue) {
    headers.insert(SET_COOKIE, cookie);
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut all = headers.get_all(name).iter();
    let first = all.next()?.to_str().ok();
    // Two different values: somebody plays a trick.
    if all.next().is_some() { None } else { first }
}

fn without_port(host: &str) -> &str {
    match host.rfind(':') {
        Some(at) if !host[at..].contains(']') => &host[..at],
        _ => host,
    }
}

fn is_address(name: &str) -> bool {
    name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok()
}

/// Compares in a time that does not tell where two texts differ.
fn is_equal(one: &str, other: &str) -> bool {
    let differences = one.bytes().zip(other.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    one.len() == other.len() && differences == 0
}

fn drawn_token() -> std::io::Result<String> {
    use std::io::Read;
    let mut bytes = [0; TOKEN_BYTES];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(rows: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in rows {
            let value = HeaderValue::from_str(value).unwrap();
            headers.append(HeaderName::from_static(name), value);
        }
        headers
    }

    fn code(access: &Access, method: Method, rows: &[(&'static str, &str)]) -> u16 {
        access.check(&method, &headers(rows)).map_or_else(|(code, _)| code.as_u16(), |()| 200)
    }

    #[test]
    fn only_names_of_this_machine_are_answered() {
        let access = Access::new("127.0.0.1", 7070).unwrap();
        assert!(access.token().is_none());
        for (host, want) in [
            ("localhost:7070", 200),
            ("LOCALHOST:9999", 200),
            ("127.0.0.1:7070", 200),
            ("[::1]:7070", 200),
            ("[::1]", 200),
            ("evil.example", 421),
            ("127.0.0.1.evil.example:7070", 421),
            ("localhost.evil.example", 421),
            ("192.168.1.5:7070", 421),
            ("", 421),
        ] {
            assert_eq!(code(&access, Method::GET, &[("host", host)]), want, "{host}");
        }
        assert_eq!(code(&access, Method::GET, &[]), 400);
        let twice = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(code(&access, Method::GET, &twice), 400);
        assert_eq!(code(&access, Method::PUT, &[("host", "localhost")]), 405);
    }

    #[test]
    fn a_post_needs_our_origin_and_json() {
        let access = Access::new("localhost", 7070).unwrap();
        let json = ("content-type", "application/json; charset=utf-8");
        let host = ("host", "localhost:7070");
        let own = ("origin", "http://localhost:7070");
        for (rows, want) in [
            (vec![host, own, json], 200),
            (vec![host, own, json, ("sec-fetch-site", "same-origin")], 200),
            (vec![host, own, json, ("sec-fetch-site", "cross-site")], 403),
            (vec![host, json], 403),
            (vec![host, ("origin", "http://evil.example"), json], 403),
            (vec![host, ("origin", "http://localhost:9999"), json], 403),
            (vec![host, ("origin", "null"), json], 403),
            (vec![host, own], 415),
            (vec![host, own, ("content-type", "text/plain")], 415),
            (vec![host, own, ("content-type", "application/x-www-form-urlencoded")], 415),
        ] {
            assert_eq!(code(&access, Method::POST, &rows), want, "{rows:?}");
        }
    }

    #[test]
    fn another_host_needs_the_token_as_a_cookie() {
        let access = Access::new("0.0.0.0", 7070).unwrap();
        let token = access.token().unwrap().to_string();
        assert_eq!(token.len(), 32);
        assert_ne!(Access::new("0.0.0.0", 7070).unwrap().token(), Some(token.as_str()));
        let cookie = format!("a=b; fitgpt-7070={token}");
        let other = format!("fitgpt-7071={token}");
        for (rows, want) in [
            (vec![("host", "192.168.1.5:7070"), ("cookie", cookie.as_str())], 200),
            (vec![("host", "localhost:7070"), ("cookie", cookie.as_str())], 200),
            (vec![("host", "evil.example"), ("cookie", cookie.as_str())], 421),
            (vec![("host", "192.168.1.5:7070")], 401),
            (vec![("host", "localhost:7070")], 401),
            (vec![("host", "localhost:7070"), ("cookie", other.as_str())], 401),
            (vec![("host", "localhost:7070"), ("cookie", "fitgpt-7070=0")], 401),
        ] {
            assert_eq!(code(&access, Method::GET, &rows), want, "{rows:?}");
        }
        let visit = |text: &str| access.first_visit(&text.parse().unwrap());
        let set = visit(&format!("/?token={token}")).unwrap();
        let set = set.to_str().unwrap();
        assert!(set.contains("HttpOnly; SameSite=Strict"), "{set}");
        assert!(visit("/?token=0").is_none() && visit("/").is_none());
        let local = Access::new("::1", 7070).unwrap();
        assert!(local.first_visit(&format!("/?token={token}").parse().unwrap()).is_none());
    }
}
