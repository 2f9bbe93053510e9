//! The HTTP of the test servers: reads a request, writes an answer, and fails in the ways that
//! servers do. What is answered is decided elsewhere. Also the tests of other crates use this file.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// How one answer goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code)] // not every user of this file needs all
pub enum Fault {
    /// The connection ends after this many bytes of the body.
    Cut(usize),
    /// This status and these headers instead of an answer.
    Status(u16, &'static str),
    /// Some bytes of the body are changed.
    Garbled,
    /// The body has no end, and its size is not announced.
    Endless,
    /// The answer comes after this many milliseconds.
    Late(u64),
    /// The range starts this many bytes after the requested one.
    Elsewhere(usize),
    /// After this many bytes nothing more arrives, and the connection stays open.
    Stall(usize),
    /// Nothing arrives at all.
    Silence,
}

/// The next faults by what they are for; the last one comes first.
pub type Faults = HashMap<String, Vec<Fault>>;

/// What is asked.
pub struct Request {
    /// `GET` or `HEAD`.
    pub method: String,
    /// Without its query.
    pub path: String,
    /// By their names in lower case.
    fields: HashMap<String, String>,
}

impl Request {
    /// The first byte wanted.
    pub fn from(&self) -> usize {
        let first = self.field("range").and_then(|range| range.strip_prefix("bytes="));
        first.and_then(|range| range.split('-').next()?.parse().ok()).unwrap_or(0)
    }

    /// The token that comes with it.
    pub fn token(&self) -> Option<&str> {
        self.field("authorization")?.strip_prefix("Bearer ")
    }

    /// A header.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    fn read(stream: &TcpStream) -> Option<Request> {
        let mut lines = BufReader::new(stream.try_clone().ok()?).lines().map_while(Result::ok);
        let first = lines.next()?;
        let mut words = first.split(' ');
        let (method, path) = (words.next()?.to_owned(), words.next()?);
        let field = |line: String| {
            let (name, value) = line.split_once(": ")?;
            Some((name.to_lowercase(), value.to_owned()))
        };
        let fields = lines.take_while(|line| !line.is_empty()).filter_map(field).collect();
        let path = path.split('?').next().unwrap_or_default().to_owned();
        Some(Request { method, path, fields })
    }
}

/// An answer before anything goes wrong with it.
pub struct Reply {
    pub status: u16,
    /// Each ends with a line end.
    pub headers: String,
    /// The whole file.
    pub body: Vec<u8>,
    /// The first byte of it that is sent.
    pub from: usize,
}

impl Reply {
    /// An answer without a body.
    pub fn said(status: u16, headers: String) -> Reply {
        Reply { status, headers, body: Vec::new(), from: 0 }
    }
}

/// Serves on a free port until the test's process ends; returns the address.
pub fn listen(
    serve: impl Fn(&Request) -> (Reply, Option<Fault>) + Send + Sync + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || {
                let Some(request) = Request::read(&stream) else { return };
                let (reply, fault) = serve(&request);
                write(&mut stream, &request, reply, fault);
                let _ = stream.read(&mut [0]);
            });
        }
    });
    address
}

/// Writes an answer, and ends its side of the connection unless it stalls.
fn write(stream: &mut TcpStream, request: &Request, mut reply: Reply, fault: Option<Fault>) {
    match fault {
        Some(Fault::Silence) => return,
        Some(Fault::Status(status, headers)) => reply = Reply::said(status, headers.to_owned()),
        Some(Fault::Late(milliseconds)) => std::thread::sleep(Duration::from_millis(milliseconds)),
        Some(Fault::Elsewhere(by)) => reply.from += by,
        _ => {}
    }
    let Reply { mut status, mut headers, mut body, from } = reply;
    let whole = body.len();
    if status == 200 && from > whole {
        (status, body) = (416, Vec::new());
    } else if status == 200 && from > 0 {
        (status, body) = (206, body.split_off(from));
        headers += &format!("content-range: bytes {from}-{}/{whole}\r\n", whole - 1);
    }
    if fault == Some(Fault::Garbled) && !body.is_empty() {
        let middle = body.len() / 2;
        body[middle] ^= 0x20;
    }
    if fault != Some(Fault::Endless) {
        headers += &format!("content-length: {}\r\n", body.len());
    }
    if let Some(Fault::Cut(count) | Fault::Stall(count)) = fault {
        body.truncate(count);
    }
    let head = format!("HTTP/1.1 {status} X\r\n{headers}connection: close\r\n\r\n");
    let _ = stream.write_all(head.as_bytes());
    if request.method != "HEAD" {
        let _ = stream.write_all(&body);
        let zeros = vec![0; 1 << 16];
        while fault == Some(Fault::Endless) && stream.write_all(&zeros).is_ok() {}
    }
    if !matches!(fault, Some(Fault::Stall(_))) {
        let _ = stream.shutdown(Shutdown::Write);
    }
}
