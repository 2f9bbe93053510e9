//! A small server that speaks the hub's paths for models, and can fail in the ways that servers do.
//! Also the tests of other crates use this file.

use sha1::Digest;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The commit of every repository.
pub const COMMIT: &str = "607a30d783dfa663caf39e06633721c8d4cfcd7e";

/// How one answer goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
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
}

/// What was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// `HEAD /gpt2/resolve/main/config.json`.
    pub line: String,
    /// The first byte wanted.
    pub from: usize,
    /// The token that came with it.
    pub token: Option<String>,
}

#[derive(Default)]
pub struct State {
    /// Files by `<repository>/<file>`.
    pub files: HashMap<String, Vec<u8>>,
    /// Other names of repositories.
    pub moved: HashMap<String, String>,
    /// The next faults by `<method> <path>`; the last one comes first.
    pub faults: HashMap<String, Vec<Fault>>,
    /// All requests.
    pub asked: Vec<Asked>,
    /// Where large files are stored; on this server if there is none.
    pub storage: Option<String>,
    /// The token that reading needs.
    pub token: Option<&'static str>,
}

pub struct HubServer {
    pub address: String,
    pub state: Arc<Mutex<State>>,
}

/// An answer before it is written.
struct Reply {
    status: u16,
    headers: String,
    body: Vec<u8>,
}

#[allow(dead_code)]
impl HubServer {
    pub fn new() -> HubServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let state: Arc<Mutex<State>> = Arc::default();
        let shared = Arc::clone(&state);
        // It ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        HubServer { address, state }
    }

    /// Adds a file to a repository.
    pub fn file(&self, repo: &str, file: &str, content: impl Into<Vec<u8>>) {
        self.state.lock().unwrap().files.insert(format!("{repo}/{file}"), content.into());
    }

    /// The next answers to `<method> <path>` go wrong.
    pub fn fault(&self, line: &str, faults: &[Fault]) {
        let faults = faults.iter().rev().cloned().collect();
        self.state.lock().unwrap().faults.insert(line.to_owned(), faults);
    }

    /// The requests so far whose line contains this; then they are forgotten.
    pub fn asked(&self, part: &str) -> Vec<Asked> {
        let all = std::mem::take(&mut self.state.lock().unwrap().asked);
        all.into_iter().filter(|asked| asked.line.contains(part)).collect()
    }
}

/// The path of a file at the main revision.
#[allow(dead_code)]
pub fn main_path(repo: &str, file: &str) -> String {
    format!("/{repo}/resolve/main/{file}")
}

/// The path of a file at the commit.
#[allow(dead_code)]
pub fn path(repo: &str, file: &str) -> String {
    format!("/{repo}/resolve/{COMMIT}/{file}")
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Weights are stored elsewhere, by their sha256.
fn is_large(file: &str) -> bool {
    file.ends_with(".safetensors")
}

/// The ETag by which the hub knows a file.
pub fn etag(file: &str, content: &[u8]) -> String {
    match is_large(file) {
        true => hex(&sha2::Sha256::digest(content)),
        false => {
            let blob = [format!("blob {}\0", content.len()).as_bytes(), content].concat();
            hex(&sha1::Sha1::digest(blob))
        }
    }
}

fn serve(mut stream: TcpStream, state: &Mutex<State>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    let mut words = first.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let line = format!("{method} {}", path.split('?').next().unwrap_or_default());
    let (mut from, mut token) = (0, None);
    for field in lines.take_while(|field| !field.is_empty()) {
        let Some((name, value)) = field.split_once(": ") else { continue };
        match name.to_lowercase().as_str() {
            "range" => {
                let first = value.trim_start_matches("bytes=").split('-').next();
                from = first.unwrap_or_default().parse().unwrap_or(0);
            }
            "authorization" => token = value.strip_prefix("Bearer ").map(str::to_owned),
            _ => {}
        }
    }
    let (reply, fault) = {
        let mut state = state.lock().unwrap();
        state.asked.push(Asked { line: line.clone(), from, token: token.clone() });
        let fault = state.faults.get_mut(&line).and_then(Vec::pop);
        (reply(&state, path, token.as_deref()), fault)
    };
    write(&mut stream, method, reply, from, fault);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let _ = stream.read(&mut [0]);
}

fn reply(state: &State, path: &str, token: Option<&str>) -> Reply {
    let said = |status, headers: String| Reply { status, headers, body: Vec::new() };
    if let Some(sha256) = path.strip_prefix("/storage/") {
        let is_it = |(name, content): &(&String, &Vec<u8>)| etag(name, content) == sha256;
        return match state.files.iter().filter(|(name, _)| is_large(name)).find(is_it) {
            Some((_, content)) => {
                let headers = "etag: \"of-the-storage\"\r\n".to_owned();
                Reply { status: 200, headers, body: content.clone() }
            }
            None => said(404, String::new()),
        };
    }
    let Some((repo, rest)) = path.trim_start_matches('/').split_once("/resolve/") else {
        return said(404, String::new());
    };
    if let Some(to) = state.moved.get(repo) {
        return said(307, format!("location: /{to}/resolve/{rest}\r\n"));
    }
    let (revision, file) = rest.split_once('/').unwrap_or_default();
    let is_there = state.files.keys().any(|name| name.starts_with(&format!("{repo}/")));
    let commit = format!("x-repo-commit: {COMMIT}\r\n");
    match state.files.get(&format!("{repo}/{file}")) {
        _ if !is_there || !["main", COMMIT].contains(&revision) => {
            said(401, "x-error-code: RepoNotFound\r\n".to_owned())
        }
        _ if state.token.is_some() && state.token != token => {
            said(401, "x-error-code: GatedRepo\r\n".to_owned())
        }
        None => said(404, format!("x-error-code: EntryNotFound\r\n{commit}")),
        Some(content) if is_large(file) => {
            let etag = etag(file, content);
            let storage = state.storage.clone().unwrap_or_default();
            let size = content.len();
            let headers = format!(
                "{commit}x-linked-etag: \"{etag}\"\r\nx-linked-size: {size}\r\netag: \"other\"\r\n\
                 location: {storage}/storage/{etag}\r\n"
            );
            said(302, headers)
        }
        Some(content) => {
            let headers = format!("{commit}etag: \"{}\"\r\n", etag(file, content));
            Reply { status: 200, headers, body: content.clone() }
        }
    }
}

fn write(stream: &mut TcpStream, method: &str, reply: Reply, from: usize, fault: Option<Fault>) {
    let Reply { mut status, mut headers, mut body } = reply;
    match fault {
        Some(Fault::Status(instead, fields)) => {
            (status, headers, body) = (instead, fields.to_owned(), Vec::new());
        }
        Some(Fault::Garbled) => {
            let middle = body.len() / 2;
            body[middle] ^= 0x20;
        }
        Some(Fault::Late(milliseconds)) => {
            std::thread::sleep(std::time::Duration::from_millis(milliseconds));
        }
        _ => {}
    }
    let whole = body.len();
    if status == 200 && from > 0 {
        (status, body) = (206, body.split_off(from.min(whole)));
        headers += &format!("content-range: bytes {from}-{}/{whole}\r\n", whole - 1);
    }
    if fault == Some(Fault::Endless) {
        headers += "connection: close\r\n\r\n";
        let _ = stream.write_all(format!("HTTP/1.1 {status} X\r\n{headers}").as_bytes());
        let zeros = vec![0; 1 << 16];
        while method != "HEAD" && stream.write_all(&zeros).is_ok() {}
        return;
    }
    headers += &format!("content-length: {}\r\nconnection: close\r\n\r\n", body.len());
    if let Some(Fault::Cut(count)) = fault {
        body.truncate(count);
    }
    let _ = stream.write_all(format!("HTTP/1.1 {status} X\r\n{headers}").as_bytes());
    if method != "HEAD" {
        let _ = stream.write_all(&body);
    }
}
