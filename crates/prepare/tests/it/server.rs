//! A small server that imitates the hub's data sets and other servers.

use crate::http::{Faults, Reply, Request, listen};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

pub use crate::http::Fault;

#[derive(Default)]
pub struct State {
    /// Content by path, without a query.
    pub files: HashMap<String, Vec<u8>>,
    /// The next faults by path.
    pub faults: Faults,
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
        let state: Arc<Mutex<State>> = Arc::default();
        let shared = Arc::clone(&state);
        let address = listen(move |request| serve(request, &mut shared.lock().unwrap()));
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

fn serve(request: &Request, state: &mut State) -> (Reply, Option<Fault>) {
    let (path, is_authorized) = (&request.path, request.token() == Some("secret"));
    state.asked.push((path.clone(), request.from() as u64));
    state.authorized.push(is_authorized);
    let fault = state.faults.get_mut(path).and_then(Vec::pop);
    let fields = [
        state.moved.get(path).map(|to| format!("location: {to}\r\n")),
        state.next.get(path).map(|next| format!("link: <{next}>; rel=\"next\"\r\n")),
        state.tag.map(|tag| format!("etag: {tag}\r\n")),
    ];
    let headers: String = fields.into_iter().flatten().collect();
    let reply = match state.files.get(path) {
        _ if state.moved.contains_key(path) => Reply::said(302, headers),
        None => Reply::said(404, headers),
        Some(_) if !is_authorized && !state.is_open => Reply::said(401, headers),
        Some(content) => {
            // Of another version by now: all of it.
            let version = request.field("if-range");
            let from =
                if version.is_some_and(|it| Some(it) != state.tag) { 0 } else { request.from() };
            Reply { body: content.clone(), from, ..Reply::said(200, headers) }
        }
    };
    (reply, fault)
}
