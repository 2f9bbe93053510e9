//! `train --ui` and `ui` as a person runs them: the page answers while the run trains, it saves and
//! stops the run, and it changes no bit of it.

use crate::fixture::{Ended, TempDir};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Starts a command that serves a page; returns its port.
fn serving(dir: &TempDir, arguments: &[&str]) -> (Child, u16) {
    let mut command = dir.command(arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.find(|line| line.contains("http://localhost:")).unwrap();
    // The rest of the output must not fill the pipe.
    std::thread::spawn(move || lines.for_each(drop));
    let port = line.split("localhost:").nth(1).unwrap().split('/').next().unwrap();
    (child, port.parse().unwrap())
}

fn ask(port: u16, method: &str, path: &str, body: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost:{port}\r\nOrigin: http://localhost:{port}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all((request + body).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

fn get(port: u16, path: &str) -> Value {
    let (status, found) = ask(port, "GET", path, "");
    assert_eq!(status, 200, "{path}: {found}");
    found
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

const ENDLESS: [&str; 5] =
    ["train", "--ui", "--max_iters=1000000", "--eval_interval=100000", "--eval_iters=1"];

#[test]
fn a_run_is_shown_saved_and_stopped() {
    let dir = TempDir::empty("page");
    let (child, port) = serving(&dir, &ENDLESS);
    let run = || get(port, "/api/runs")["runs"][0].clone();
    until("an iteration", || run()["iter"].as_u64() > Some(2));
    assert_eq!((&run()["status"], &run()["own"]), (&json!("running"), &json!(true)));
    let arena = get(port, "/api/runs/0/arena?phase=train");
    assert_eq!(arena["arena_bytes"], run()["arena_bytes"]);
    let (status, refused) = ask(port, "GET", "/api/plan?init_from=/etc/passwd", "");
    assert_eq!((status, refused["error"].is_string()), (422, true));
    assert_eq!(ask(port, "POST", "/api/control", r#"{"action":"save"}"#).0, 200);
    until("a save", || dir.path("out-builtin/last.safetensors").exists());
    until("it is listed", || run()["checkpoints"][0] == "last");
    let wish = r#"{"run":0,"prompt":"The ","tokens":5,"seed":1}"#;
    assert_eq!(ask(port, "POST", "/api/sample", wish).0, 200);
    assert_eq!(ask(port, "POST", "/api/control", r#"{"action":"stop"}"#).0, 200);
    let ended = Ended::from(child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(130), "{ended:?}");
}

#[test]
fn a_log_without_a_process_is_planned_again_and_its_model_speaks() {
    let dir = TempDir::empty("page-log");
    let trained = dir.run(&["train", "--max_iters=20", "--eval_interval=10", "--eval_iters=1"]);
    assert_eq!(trained.code, Some(0), "{trained:?}");
    let (mut child, port) = serving(&dir, &["ui"]);
    until("the run", || get(port, "/api/runs")["runs"][0]["status"] == "finished");
    for phase in ["train", "eval", "sample", "save"] {
        let arena = get(port, &format!("/api/runs/0/arena?phase={phase}"));
        assert_eq!((&arena["is_same"], &arena["phase"]), (&json!(true), &json!(phase)), "{phase}");
        assert!(!arena["rectangles"].as_array().unwrap().is_empty(), "{phase}");
    }
    let plan = get(port, "/api/plan?gpu=RTX+4070&n_layer=12");
    assert_eq!((&plan["fits"], &plan["parameters"]), (&json!(true), &json!(123_587_328)));
    assert!(plan["nanogpt_bytes"].as_u64() > Some(1 << 30), "{plan}");
    let largest = get(port, "/api/plan/largest?gpu=RTX+3060&batch_size=1");
    assert!(largest["n_layer"].as_u64() > Some(12), "{largest}");
    let body = r#"{"text":"CUDA out of memory. Tried to allocate 6.00 GiB","language":"de"}"#;
    let (status, found) = ask(port, "POST", "/api/doctor", body);
    assert_eq!((status, &found["shown"]["language"]), (200, &json!("de")));
    assert_eq!(ask(port, "POST", "/api/control", r#"{"action":"stop"}"#).0, 403);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The losses of a run with and without a text at each evaluation.
#[test]
fn texts_at_evaluations_change_no_loss() {
    let losses = |more: &str| {
        let dir = TempDir::empty(&format!("eval-sample-{}", more.len()));
        let keys = ["train", "--max_iters=30", "--eval_interval=10", "--eval_iters=2", more];
        let trained = dir.run(&[&keys[..], &["--log_interval=1"]].concat());
        assert_eq!(trained.code, Some(0), "{trained:?}");
        let log = String::from_utf8(dir.read("out-builtin/log.jsonl")).unwrap();
        let lines: Vec<Value> = log.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        let of = |kind: &str, field: &str| -> Vec<Value> {
            let rows = lines.iter().filter(|line| line["kind"] == kind);
            rows.map(|line| line[field].clone()).collect()
        };
        (of("iter", "loss"), of("eval", "val_loss"), of("sample", "iter"))
    };
    let (with, without) = (losses("--eval_sample=True"), losses("--eval_sample=False"));
    assert_eq!((&with.0, &with.1), (&without.0, &without.1));
    assert_eq!(with.2, [0, 10, 20, 30, 31].map(Value::from));
    assert_eq!(without.2, [Value::from(31)]);
}
