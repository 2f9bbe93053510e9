//! A small server that speaks the hub's paths for models. Also the tests of other crates use this
//! file.

use crate::http::{Faults, Reply, Request, listen};
use sha1::Digest;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

pub use crate::http::Fault;

/// The commit of every repository.
pub const COMMIT: &str = "607a30d783dfa663caf39e06633721c8d4cfcd7e";

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
    /// The next faults by `<method> <path>`.
    pub faults: Faults,
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

#[allow(dead_code)]
impl HubServer {
    pub fn new() -> HubServer {
        let state: Arc<Mutex<State>> = Arc::default();
        let shared = Arc::clone(&state);
        let address = listen(move |request| serve(request, &mut shared.lock().unwrap()));
        HubServer { address, state }
    }

    /// Adds a file to a repository.
    pub fn file(&self, repo: &str, file: &str, content: impl Into<Vec<u8>>) {
        self.state.lock().unwrap().files.insert(format!("{repo}/{file}"), content.into());
    }

    /// The next answers to `<method> <path>` go wrong.
    pub fn fault(&self, line: &str, faults: &[Fault]) {
        let faults = faults.iter().rev().copied().collect();
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

fn serve(request: &Request, state: &mut State) -> (Reply, Option<Fault>) {
    let (from, token) = (request.from(), request.token());
    let line = format!("{} {}", request.method, request.path);
    let fault = state.faults.get_mut(&line).and_then(Vec::pop);
    state.asked.push(Asked { line, from, token: token.map(str::to_owned) });
    (Reply { from, ..reply(state, &request.path, token) }, fault)
}

fn reply(state: &State, path: &str, token: Option<&str>) -> Reply {
    let said = Reply::said;
    let whole = |headers: String, body: &[u8]| Reply { body: body.to_vec(), ..said(200, headers) };
    if let Some(sha256) = path.strip_prefix("/storage/") {
        let is_it = |(name, content): &(&String, &Vec<u8>)| etag(name, content) == sha256;
        return match state.files.iter().filter(|(name, _)| is_large(name)).find(is_it) {
            Some((_, content)) => whole("etag: \"of-the-storage\"\r\n".to_owned(), content),
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
            whole(headers, content)
        }
    }
}
