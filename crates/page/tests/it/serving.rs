//! What the server serves.

use crate::fixture::{START, Server, feed, line};
use serde_json::json;
use std::io::{BufRead, BufReader, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[test]
fn every_file_has_the_headers_that_protect_it() {
    let server = Server::new();
    for path in ["/", "/style.css", "/page.js", "/chart.js", "/favicon.svg", "/api/runs", "/none"] {
        let reply = server.get(path);
        assert_eq!(reply.status, if path == "/none" { 404 } else { 200 }, "{path}");
        for header in [
            "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self';",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cross-origin-opener-policy: same-origin",
            "cross-origin-resource-policy: same-origin",
        ] {
            assert!(reply.head.contains(header), "{path}: {header}: {}", reply.head);
        }
        assert!(!reply.head.contains("access-control"), "{path}");
    }
}

#[test]
fn a_log_is_followed_and_its_series_are_asked_for() {
    let server = Server::new();
    let lines: String = (0..50).map(line).collect();
    let folder = server.log("out", format!("{START}\n{lines}").as_bytes());
    let found = server.wait_for(|run| run["iter"] == 50);
    assert_eq!(
        (&found["name"], &found["status"]),
        (&json!(folder.display().to_string()), &json!("stale"))
    );
    let series = server.get("/api/runs/0/series?buckets=10&from=10&to=29&axis=iter").json();
    let iters = series["train"]["columns"]["iter"].as_array().unwrap();
    assert!((5..=12).contains(&iters.len()) && iters[0].as_u64() >= Some(9), "{iters:?}");
    assert_eq!(server.get("/api/runs/0").json()["config"]["max_iters"], 99);
    assert_eq!(server.get("/api/runs/0/arena").json()["device"], "cpu");
    for path in ["/api/runs/1", "/api/runs/-1", "/api/runs/x", "/api/runs/99999999999999999999"] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
    let log = std::fs::OpenOptions::new().append(true).open(folder.join("log.jsonl"));
    log.unwrap().write_all(line(50).as_bytes()).unwrap();
    server.wait_for(|run| run["iter"] == 51);
}

#[test]
fn news_of_the_own_run_arrive_within_a_second() {
    let server = Server::at("localhost", true);
    let own = server.folder.join("own");
    std::fs::create_dir_all(&own).unwrap();
    let mut sink = server.registry.own(&own);
    feed(&mut sink, 0..3);
    let mut stream = server.connect();
    let request = format!("GET /api/events HTTP/1.1\r\nHost: localhost:{}\r\n\r\n", server.port);
    stream.write_all(request.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let hello = lines.by_ref().find(|line| line.starts_with("data: ")).unwrap();
    assert!(hello.contains("\"control\":true") && hello.contains("\"points\":3"), "{hello}");
    let began = Instant::now();
    feed(&mut sink, 3..5);
    let news = lines.by_ref().find(|line| line.starts_with("data: ")).unwrap();
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert!(news.contains("\"point\":[4.0,") && news.contains("\"to\":5,\"news\""), "{news}");
}

#[test]
fn only_a_run_with_control_is_saved_and_stopped() {
    let server = Server::at("localhost", true);
    assert_eq!(server.post("/api/control", &json!({ "action": "save" })).status, 200);
    assert!(server.save.load(Ordering::Relaxed) && !server.stop.load(Ordering::Relaxed));
    assert_eq!(server.post("/api/control", &json!({ "action": "dance" })).status, 422);
    assert_eq!(server.post("/api/control", &json!({ "action": "stop" })).status, 200);
    assert!(server.stop.load(Ordering::Relaxed));
    let reader = Server::new();
    assert_eq!(reader.post("/api/control", &json!({ "action": "stop" })).status, 403);
    assert!(!reader.stop.load(Ordering::Relaxed));
}

#[test]
fn questions_are_answered_and_a_bug_ends_nothing() {
    let server = Server::new();
    assert_eq!(server.get("/api/plan?n_layer=12&n_layer=13").json()["n_layer"], "13");
    let refused = server.get("/api/plan?n_layer=0");
    assert_eq!((refused.status, refused.json()["error"].as_str().unwrap().len() > 5), (422, true));
    assert_eq!(server.get("/api/plan/largest").status, 500);
    assert_eq!(server.get("/api/about").json()["version"], "test");
    assert_eq!(server.post("/api/doctor", &json!({ "text": "abc" })).json()["length"], 3);
}

#[test]
fn a_text_streams_from_a_child() {
    let server = Server::new();
    let folder = server.log("out", format!("{START}\n").as_bytes());
    server.wait_for(|run| run["status"] == "stale");
    let wish = json!({ "run": 0, "checkpoint": "last", "prompt": "x" });
    assert_eq!(server.post("/api/sample", &wish).status, 422);
    std::fs::write(folder.join("last.safetensors"), "").unwrap();
    let reply = server.post("/api/sample", &wish);
    assert_eq!(reply.status, 200);
    assert!(reply.head.contains("application/x-ndjson"), "{}", reply.head);
    assert!(reply.body.contains(r#"{"token":"<script>","p":1}"#), "{}", reply.body);
    for bad in [
        json!({ "run": 7 }),
        json!({ "run": "../x" }),
        json!({ "run": 0, "checkpoint": "../last" }),
    ] {
        assert_eq!(server.post("/api/sample", &bad).status, 422, "{bad}");
    }
}
