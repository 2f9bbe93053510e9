//! A server on a free port with a folder of runs, and a client that sends raw bytes.

use events::{Event, Iteration, Sink, Start, Time, What};
use fitgpt_page as page;
use page::{Answers, Control, Hardware, Page, Query, Refused, Registry, RunSink, Settings};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Answers without the rest of the program.
struct Stub;

impl Answers for Stub {
    fn about(&self) -> Value {
        json!({ "version": "test" })
    }

    fn plan(&self, query: &Query) -> Result<Value, Refused> {
        match page::get(query, "n_layer") {
            Some("0") => Err(Refused("n_layer is at least 1".to_string())),
            asked => Ok(json!({ "n_layer": asked })),
        }
    }

    fn largest(&self, _: &Query) -> Result<Value, Refused> {
        panic!("a bug in the planner")
    }

    fn arena(&self, _: &Query) -> Result<Value, Refused> {
        Ok(json!({}))
    }

    fn arena_of_run(&self, start: &Start, _: bool, _: &Query) -> Result<Value, Refused> {
        Ok(json!({ "device": start.device }))
    }

    fn diagnose(&self, text: &str, _: Option<&str>, _: &Query) -> Result<Value, Refused> {
        Ok(json!({ "length": text.len() }))
    }

    fn sampler(&self, checkpoint: &Path) -> Result<Command, Refused> {
        assert!(checkpoint.ends_with("last.safetensors"), "{}", checkpoint.display());
        let mut command = Command::new("sh");
        let script = r#"read wish; echo '{"token":"<script>","p":1}'; echo '{"end":{}}'"#;
        command.args(["-c", script]);
        Ok(command)
    }

    fn hardware(&self) -> Option<Hardware> {
        None
    }
}

/// A server and its folder.
pub struct Server {
    pub folder: PathBuf,
    pub port: u16,
    pub page: Option<Page>,
    pub stop: Arc<AtomicBool>,
    pub save: Arc<AtomicBool>,
    pub registry: Arc<Registry>,
}

impl Server {
    /// Serves the runs in a new folder.
    pub fn new() -> Server {
        Server::at("localhost", false)
    }

    /// Serves at a host, with or without control.
    pub fn at(host: &str, has_control: bool) -> Server {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let (id, number) = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(format!("fitgpt-page-it-{id}-{number}"));
        std::fs::create_dir_all(&folder).unwrap();
        let registry = Arc::new(Registry::new(vec![folder.clone()]));
        let (stop, save) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let control = Control { stop: Arc::clone(&stop), save: Arc::clone(&save) };
        let page = page::start(Settings {
            host: host.to_string(),
            port: Some(0),
            registry: Arc::clone(&registry),
            answers: Arc::new(Stub),
            control: has_control.then_some(control),
            is_polite: false,
        });
        let page = page.unwrap();
        let port = page.url.rsplit(':').next().unwrap().split('/').next().unwrap();
        let port = port.parse().unwrap();
        Server { folder, port, page: Some(page), stop, save, registry }
    }

    /// Writes a log into a folder of its own.
    pub fn log(&self, name: &str, content: &[u8]) -> PathBuf {
        let folder = self.folder.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("log.jsonl"), content).unwrap();
        folder
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// Sends a request and reads the answer to its end.
    pub fn send(&self, head: &str, body: &str) -> Reply {
        let mut stream = self.connect();
        let length = body.len();
        let request = format!("{head}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let _ = stream.write_all(body.as_bytes());
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        Reply::of(&all)
    }

    pub fn get(&self, path: &str) -> Reply {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost:{}", self.port), "")
    }

    pub fn post(&self, path: &str, body: &Value) -> Reply {
        let port = self.port;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost:{port}\r\nOrigin: http://localhost:{port}\r\n\
             Content-Type: application/json"
        );
        self.send(&head, &body.to_string())
    }

    /// The summary of the first run once a condition holds; panics after half a minute.
    pub fn wait_for(&self, is_so: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let found = self.get("/api/runs").json()["runs"][0].clone();
            if is_so(&found) {
                return found;
            }
            assert!(began.elapsed() < Duration::from_secs(30), "{found}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.page.take());
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// An answer.
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Reply {
    fn of(all: &[u8]) -> Reply {
        let text = String::from_utf8_lossy(all).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        Reply { status, head: head.to_ascii_lowercase(), body: body.to_string() }
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

/// The first line of a log.
pub const START: &str = "{\"kind\":\"start\",\"schema\":\"fitgpt.log/2\",\"iter\":0,\
     \"config\":{\"max_iters\":99},\
     \"vocab_size\":65,\"steps_hash\":\"x\",\"version\":\"1\",\"device\":\"cpu\",\
     \"tokens_per_iteration\":100,\"tokens_before\":0,\"unix_time\":5,\"seconds\":0}";

pub fn line(iter: u64) -> String {
    let seconds = iter as f64 / 100.0;
    format!(
        "{{\"kind\":\"iter\",\"iter\":{iter},\"loss\":{},\"lr\":0.0006,\
     \"grad_norm\":0.5181726217269897,\"loss_scale\":1.0,\
     \"tokens_per_second\":55009.26508588805,\"ms\":9.307523,\
     \"arena_bytes\":9937920,\"device_bytes_seen\":null,\"resident_bytes\":42364928,\
     \"unix_time\":{},\"seconds\":{seconds}}}",
        2.0 + 2.0 / (1.0 + seconds),
        1e9 + seconds,
    ) + "\n"
}

/// Feeds a sink as a run would.
pub fn feed(sink: &mut RunSink, iters: std::ops::Range<u64>) {
    for iter in iters {
        let what = What::Iteration(Iteration {
            iter,
            loss: 1.5,
            lr: 0.1,
            grad_norm: 1.0,
            loss_scale: 1.0,
            tokens_per_second: 10.0,
            ms: 1.0,
            arena_bytes: 1,
            device_bytes_seen: None,
            resident_bytes: None,
            is_logged: true,
        });
        let time = Time { unix_time: 1e9, seconds: iter as f64 };
        sink.take(&Event { what, time }).unwrap();
    }
}

/// Resident bytes of this process.
pub fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    4096 * text.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
}
