//! A small server that imitates the hub and can fail in the ways that servers do.

use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// How one answer goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection ends after this many bytes of the body.
    Cut(usize),
    /// This status instead of an answer.
    Status(u16),
    /// Some bytes of the body are changed.
    Garbled,
    /// The range starts this many bytes after the requested one.
    Elsewhere(usize),
    /// After this many bytes nothing more arrives, and the connection stays open.
    Stall(usize),
    /// Nothing arrives at all.
    Silence,
}

#[derive(Default)]
pub struct State {
    /// Content by path, without a query.
    pub files: HashMap<String, Vec<u8>>,
    /// The next faults by path; the last one comes first.
    pub faults: HashMap<String, Vec<Fault>>,
    /// Requested paths, with the start of the range.
    pub asked: Vec<(String, u64)>,
    /// Whether each of them carried the token.
    pub authorized: Vec<bool>,
    /// Redirects by path.
    pub moved: HashMap<String, String>,
    /// Whether reading needs no token.
    pub is_open: bool,
    /// The ETag of all files.
    pub tag: Option<&'static str>,
    /// The next pages of listings, by path.
    pub next: HashMap<String, String>,
}

pub struct Server {
    pub address: String,
    pub state: Arc<Mutex<State>>,
}

impl Server {
    pub fn new() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let state: Arc<Mutex<State>> = Arc::default();
        let shared = Arc::clone(&state);
        // It ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                std::thread::spawn(move || answer(stream, &state));
            }
        });
        Server { address, state }
    }

    pub fn file(&self, path: &str, content: Vec<u8>) {
        self.state.lock().unwrap().files.insert(path.to_owned(), content);
    }

    pub fn fault(&self, path: &str, faults: &[Fault]) {
        let faults = faults.iter().rev().copied().collect();
        self.state.lock().unwrap().faults.insert(path.to_owned(), faults);
    }

    /// Redirects `path` to another address.
    pub fn moved(&self, path: &str, to: &str) {
        self.state.lock().unwrap().moved.insert(path.to_owned(), to.to_owned());
    }

    /// Adds a folder of a repository with files, under both of the hub's paths.
    pub fn dataset(&self, repository: &str, folder: &str, files: &[(&str, Vec<u8>)]) {
        let mut entries = vec![serde_json::json!({"type": "directory", "path": folder})];
        for (name, content) in files {
            let path = format!("{folder}/{name}");
            let oid: String = Sha256::digest(content).iter().map(|b| format!("{b:02x}")).collect();
            let lfs = serde_json::json!({"oid": oid, "size": content.len()});
            entries.push(serde_json::json!({
                "type": "file", "path": path, "size": content.len(), "lfs": lfs,
            }));
            self.file(&format!("/datasets/{repository}/resolve/main/{path}"), content.clone());
        }
        let list = serde_json::Value::Array(entries).to_string();
        self.file(&format!("/api/datasets/{repository}/tree/main/{folder}"), list.into_bytes());
    }

    pub fn asked(&self, path: &str) -> Vec<u64> {
        let state = self.state.lock().unwrap();
        state.asked.iter().filter(|(asked, _)| asked == path).map(|(_, from)| *from).collect()
    }
}

/// What a request asks for: the first byte, whether it may, and of which version.
fn headers(lines: impl Iterator<Item = String>) -> (usize, bool, Option<String>) {
    let (mut from, mut authorized, mut version) = (0, false, None);
    for line in lines.take_while(|line| !line.is_empty()) {
        let line = line.to_lowercase();
        if let Some(range) = line.strip_prefix("range: bytes=") {
            from = range.trim_end_matches('-').parse().unwrap();
        }
        version = line.strip_prefix("if-range: ").map(str::to_owned).or(version);
        authorized |= line == "authorization: bearer secret";
    }
    (from, authorized, version)
}

fn answer(mut stream: TcpStream, state: &Mutex<State>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    let path = first.split(' ').nth(1).unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default().to_owned();
    let (mut from, authorized, version) = headers(lines);
    let (content, fault, moved, is_open, tag, next) = {
        let mut state = state.lock().unwrap();
        state.asked.push((path.clone(), from as u64));
        state.authorized.push(authorized);
        let fault = state.faults.get_mut(&path).and_then(Vec::pop);
        let moved = state.moved.get(&path).cloned();
        let next = state.next.get(&path).cloned();
        (state.files.get(&path).cloned(), fault, moved, state.is_open, state.tag, next)
    };
    if version.is_some_and(|version| Some(version.as_str()) != tag) {
        from = 0; // another version by now: all of it
    }
    if fault == Some(Fault::Silence) {
        return drop(stream.read(&mut [0]));
    }
    let (status, mut body) = match (content, fault) {
        (_, Some(Fault::Status(status))) => (status, Vec::new()),
        _ if moved.is_some() => (302, Vec::new()),
        (None, _) => (404, Vec::new()),
        (Some(_), _) if !authorized && !is_open => (401, Vec::new()),
        (Some(content), _) if from > content.len() => (416, Vec::new()),
        (Some(content), Some(Fault::Elsewhere(by))) => {
            from += by;
            (206, content[from..].to_vec())
        }
        (Some(content), _) if from > 0 => (206, content[from..].to_vec()),
        (Some(content), _) => (200, content),
    };
    let whole = from + body.len();
    if fault == Some(Fault::Garbled) {
        let middle = body.len() / 2;
        body[middle] ^= 0x20;
    }
    let mut head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n", body.len());
    if status == 206 {
        head += &format!("content-range: bytes {from}-{}/{whole}\r\n", whole - 1);
    }
    let fields = [
        moved.map(|to| format!("location: {to}\r\n")),
        next.map(|next| format!("link: <{next}>; rel=\"next\"\r\n")),
        tag.map(|tag| format!("etag: {tag}\r\n")),
    ];
    head.extend(fields.into_iter().flatten());
    head += "connection: close\r\n\r\n";
    if let Some(Fault::Cut(count) | Fault::Stall(count)) = fault {
        body.truncate(count);
    }
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
    if !matches!(fault, Some(Fault::Stall(_))) {
        let _ = stream.shutdown(std::net::Shutdown::Write);
    }
    let _ = stream.read(&mut [0]);
}
