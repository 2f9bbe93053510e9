//! A model is downloaded into the layout of the cache, once.

use crate::server::{COMMIT, HubServer, etag, main_path, path};
use fitgpt_hub::{Cache, Client, Hub, ModelRepo, Watch};
use std::fs::TryLockError;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub const WEIGHTS: &str = "model.safetensors";

/// A temporary folder.
pub struct TempDir(pub PathBuf);

impl TempDir {
    pub fn new(name: &str) -> TempDir {
        let path = std::env::temp_dir().join(format!("fitgpt-hub-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    pub fn cache(&self) -> Cache {
        Cache::new(self.0.join("hub"))
    }

    pub fn blob(&self, name: &str) -> PathBuf {
        self.0.join("hub/models--gpt2/blobs").join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Keeps what it is told.
#[derive(Default)]
pub struct Told {
    pub notes: Vec<String>,
    pub files: Vec<(String, Option<u64>)>,
    pub most: u64,
}

impl Watch for Told {
    fn note(&mut self, line: &str) {
        self.notes.push(line.to_owned());
    }
    fn begin(&mut self, file: &str, bytes: Option<u64>) {
        self.files.push((file.to_owned(), bytes));
    }
    fn progress(&mut self, bytes: u64) {
        self.most = self.most.max(bytes);
    }
}

pub fn client(endpoint: &str, token: Option<&str>) -> Client {
    let hub = Hub { endpoint: endpoint.to_owned(), token: token.map(str::to_owned) };
    let mut client = Client::new(hub, Arc::new(AtomicBool::new(false)));
    client.first_pause = Duration::from_millis(1);
    client
}

pub fn gpt2() -> ModelRepo {
    ModelRepo::new("gpt2").unwrap()
}

pub fn weights() -> Vec<u8> {
    (0..100_000_u32).flat_map(|i| i.to_le_bytes()).collect()
}

/// A server with a small model under the name `gpt2`.
pub fn with_gpt2() -> HubServer {
    let server = HubServer::new();
    server.file("gpt2", "config.json", r#"{"model_type": "gpt2"}"#);
    server.file("gpt2", WEIGHTS, weights());
    server.file("gpt2", "tokenizer.json", "{}");
    server
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

#[test]
fn a_model_is_downloaded_once_into_the_layout_of_the_cache() {
    let (dir, server) = (TempDir::new("once"), with_gpt2());
    let (client, cache) = (client(&server.address, None), dir.cache());
    let mut told = Told::default();
    let model = client.model(&cache, &gpt2(), &mut told).unwrap();
    assert_eq!((model.is_new, model.commit.as_str()), (true, COMMIT));
    let folder = dir.0.join("hub/models--gpt2");
    assert_eq!(model.path, folder.join("snapshots").join(COMMIT));
    assert_eq!(read(&folder.join("refs/main")), COMMIT.as_bytes());
    for (file, content) in [(WEIGHTS, weights()), ("tokenizer.json", b"{}".to_vec())] {
        let link = std::fs::read_link(model.path.join(file)).unwrap();
        assert_eq!(link, Path::new("../../blobs").join(etag(file, &content)));
        assert_eq!(read(&model.path.join(file)), content);
    }
    assert!(folder.join(".no_exist").join(COMMIT).join("merges.txt").is_file());
    let names: Vec<&str> = told.files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["config.json", "tokenizer.json", WEIGHTS]);
    assert_eq!((told.files[2].1, told.most), (Some(400_000), 400_000));
    assert!(
        !std::fs::read_dir(folder.join("blobs"))
            .unwrap()
            .any(|entry| { entry.unwrap().file_name().to_string_lossy().contains("incomplete") })
    );
    // The second time nothing is asked, with or without a network.
    server.asked("");
    let again = client.model(&cache, &gpt2(), &mut Told::default()).unwrap();
    assert_eq!((again.is_new, again.path), (false, model.path.clone()));
    let mut offline = client.clone();
    offline.is_offline = true;
    assert_eq!(offline.model(&cache, &gpt2(), &mut Told::default()).unwrap().path, model.path);
    assert!(server.asked("").is_empty());
}

/// As on NFS without its lock service.
#[test]
fn a_file_system_without_locks_is_told_once() {
    let (dir, server) = (TempDir::new("no-locks"), with_gpt2());
    let mut client = client(&server.address, None);
    client.try_lock = |_| Err(TryLockError::Error(rustix::io::Errno::NOLCK.into()));
    let mut told = Told::default();
    let model = client.model(&dir.cache(), &gpt2(), &mut told).unwrap();
    assert_eq!(read(&model.path.join(WEIGHTS)), weights());
    assert_eq!(told.notes.len(), 1, "{:?}", told.notes);
    assert!(told.notes[0].contains("models--gpt2/blobs"), "{:?}", told.notes);
    assert!(told.notes[0].contains("has no file locks; let no other process"), "{:?}", told.notes);
    let dir = TempDir::new("broken-locks");
    client.try_lock = |_| Err(TryLockError::Error(rustix::io::Errno::IO.into()));
    let failed = client.model(&dir.cache(), &gpt2(), &mut told).unwrap_err().to_string();
    assert!(failed.contains("cannot lock it"), "{failed}");
}

#[test]
fn sizes_need_the_config_alone() {
    let (dir, server) = (TempDir::new("config"), with_gpt2());
    let (client, cache) = (client(&server.address, None), dir.cache());
    assert_eq!(cache.config(&gpt2()), None);
    let config = client.model_config(&cache, &gpt2(), &mut Told::default()).unwrap();
    assert_eq!(read(&config), br#"{"model_type": "gpt2"}"#);
    assert_eq!(server.asked("GET").len(), 1);
    assert_eq!(cache.config(&gpt2()), Some(config));
    client.model(&cache, &gpt2(), &mut Told::default()).unwrap();
    assert!(server.asked("GET").iter().all(|asked| !asked.line.contains("config.json")));
}

/// The weights are on another host, which must not learn the token.
#[test]
fn a_token_stays_with_the_hub() {
    let (dir, server, storage) = (TempDir::new("token"), with_gpt2(), HubServer::new());
    storage.file("gpt2", WEIGHTS, weights());
    server.state.lock().unwrap().storage = Some(storage.address.clone());
    server.state.lock().unwrap().token = Some("secret");
    let client = client(&server.address, Some("secret"));
    let model = client.model(&dir.cache(), &gpt2(), &mut Told::default()).unwrap();
    assert_eq!(read(&model.path.join(WEIGHTS)), weights());
    assert!(server.asked("").iter().all(|asked| asked.token.as_deref() == Some("secret")));
    let there = storage.asked("");
    assert_eq!(there.len(), 1, "{there:?}");
    assert!(there[0].line.starts_with("GET /storage/") && there[0].token.is_none(), "{there:?}");
}

/// The hub has given `gpt2` another name since.
#[test]
fn a_renamed_repository_keeps_its_name_in_the_cache() {
    let (dir, server) = (TempDir::new("renamed"), HubServer::new());
    server.file("openai-community/gpt2", "config.json", "{}");
    server.file("openai-community/gpt2", WEIGHTS, weights());
    let moved = ("gpt2".to_owned(), "openai-community/gpt2".to_owned());
    server.state.lock().unwrap().moved.extend([moved]);
    let client = client(&server.address, None);
    let model = client.model(&dir.cache(), &gpt2(), &mut Told::default()).unwrap();
    assert!(model.path.starts_with(dir.0.join("hub/models--gpt2/snapshots")));
    assert_eq!(read(&model.path.join(WEIGHTS)), weights());
}

#[test]
fn weights_may_be_in_several_files() {
    let (dir, server) = (TempDir::new("shards"), HubServer::new());
    let repo = ModelRepo::new("me/big").unwrap();
    server.file("me/big", "config.json", "{}");
    let index =
        r#"{"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}"#;
    server.file("me/big", "model.safetensors.index.json", index);
    server.file("me/big", "model-1-of-2.safetensors", weights());
    let client = client(&server.address, None);
    let said = client.model(&dir.cache(), &repo, &mut Told::default()).unwrap_err().to_string();
    assert!(said.contains("does not exist (404), though model.safetensors.index.json"), "{said}");
    // A note that the commit has no such file is not believed for weights.
    server.file("me/big", "model-2-of-2.safetensors", "x");
    let model = client.model(&dir.cache(), &repo, &mut Told::default()).unwrap();
    assert_eq!(read(&model.path.join("model-1-of-2.safetensors")), weights());
    assert_eq!(read(&model.path.join("model-2-of-2.safetensors")), b"x");
    assert!(!client.model(&dir.cache(), &repo, &mut Told::default()).unwrap().is_new);
}

/// A program that needed the weights alone has left them in the cache.
#[test]
fn a_model_that_was_cached_without_its_tokenizer_gets_it() {
    let (dir, server) = (TempDir::new("bare"), with_gpt2());
    let (client, cache) = (client(&server.address, None), dir.cache());
    let path = client.model(&cache, &gpt2(), &mut Told::default()).unwrap().path;
    let tokenizer = path.join("tokenizer.json");
    let removed = || std::fs::remove_file(&tokenizer).unwrap();
    removed();
    std::fs::remove_dir_all(dir.0.join("hub/models--gpt2/.no_exist")).unwrap();
    let mut offline = client.clone();
    offline.is_offline = true;
    assert!(!offline.model(&cache, &gpt2(), &mut Told::default()).unwrap().is_new);
    assert!(!tokenizer.exists());
    assert!(client.model(&cache, &gpt2(), &mut Told::default()).unwrap().is_new);
    assert_eq!(read(&tokenizer), b"{}");
    // Without a network the model is used as it is.
    removed();
    let mut told = Told::default();
    let alone = crate::models::client("http://127.0.0.1:1", None);
    assert!(!alone.model(&cache, &gpt2(), &mut told).unwrap().is_new);
    assert!(told.notes[0].contains("no tokenizer of gpt2"), "{:?}", told.notes);
}

/// Only the hub's own word is noted, not a proxy's 404.
#[test]
fn a_missing_file_is_noted_if_the_hub_says_so() {
    let (dir, server) = (TempDir::new("notes"), with_gpt2());
    let head = |file: &str| format!("HEAD {}", path("gpt2", file));
    let plain = crate::server::Fault::Status(404, "");
    server.fault(&head("tokenizer.json"), std::slice::from_ref(&plain));
    server.fault(&head(WEIGHTS), &[plain]);
    let client = client(&server.address, None);
    let said = client.model(&dir.cache(), &gpt2(), &mut Told::default()).unwrap_err().to_string();
    assert!(said.contains("neither model.safetensors nor"), "{said}");
    let model = client.model(&dir.cache(), &gpt2(), &mut Told::default()).unwrap();
    assert!(!model.path.join("tokenizer.json").exists());
    let notes = dir.0.join("hub/models--gpt2/.no_exist").join(COMMIT);
    let has = |file: &str| notes.join(file).exists();
    assert!(has("vocab.json") && !has("tokenizer.json") && !has(WEIGHTS));
    client.model(&dir.cache(), &gpt2(), &mut Told::default()).unwrap();
    assert!(model.path.join("tokenizer.json").exists());
}

/// Both want the same model; one downloads, the other waits for it.
#[test]
fn two_at_once_download_it_once() {
    let (dir, server) = (TempDir::new("two"), with_gpt2());
    let storage = format!("/storage/{}", etag(WEIGHTS, &weights()));
    server.fault(&format!("GET {storage}"), &[crate::server::Fault::Late(2500)]);
    let work = || {
        let (client, cache) = (client(&server.address, None), dir.cache());
        let mut told = Told::default();
        let model = client.model(&cache, &gpt2(), &mut told).unwrap();
        assert_eq!(read(&model.path.join(WEIGHTS)), weights());
        told.notes
    };
    let notes = std::thread::scope(|scope| {
        let threads = [(); 2].map(|()| scope.spawn(work));
        threads.map(|thread| thread.join().unwrap()).concat()
    });
    assert_eq!(notes, ["another process downloads model.safetensors of gpt2: waiting"]);
    assert_eq!(server.asked(&format!("GET {storage}")).len(), 1);
}

#[test]
fn requests_are_few_and_for_one_commit() {
    let (dir, server) = (TempDir::new("requests"), with_gpt2());
    client(&server.address, None).model(&dir.cache(), &gpt2(), &mut Told::default()).unwrap();
    let asked = server.asked("resolve");
    assert_eq!(asked[0].line, format!("HEAD {}", main_path("gpt2", "config.json")));
    assert!(asked[1..].iter().all(|asked| asked.line.contains(&path("gpt2", ""))), "{asked:?}");
    assert_eq!(asked.len(), 1 + 1 + 2 * 2 + 5);
}
