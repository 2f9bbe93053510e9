//! What the server survives: nothing executes, nothing hangs, memory stays bounded.

use crate::fixture::{START, Server, feed, line, resident};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// More than any of these attacks may cost.
const SOME_MEMORY: u64 = 128 << 20;

#[test]
fn a_foreign_host_learns_nothing() {
    let server = Server::new();
    for host in ["evil.example", "localhost.evil.example", "10.0.0.1", "", "localhost@evil.example"]
    {
        let reply = server.send(&format!("GET /api/runs HTTP/1.1\r\nHost: {host}"), "");
        assert!([400, 421].contains(&reply.status), "{host}: {}", reply.status);
        assert!(!reply.body.contains("runs"), "{}", reply.body);
    }
}

#[test]
fn a_foreign_origin_and_a_get_change_nothing() {
    let server = Server::at("localhost", true);
    let port = server.port;
    let head =
        |more: &str| format!("POST /api/control HTTP/1.1\r\nHost: localhost:{port}\r\n{more}");
    let json = "Content-Type: application/json";
    let body = r#"{"action":"stop"}"#;
    for (more, want) in [
        (format!("Origin: http://evil.example\r\n{json}"), 403),
        (format!("Origin: http://localhost:1\r\n{json}"), 403),
        (format!("Origin: null\r\n{json}"), 403),
        (json.to_string(), 403),
        (format!("Origin: http://localhost:{port}\r\nContent-Type: text/plain"), 415),
        (format!("Origin: http://localhost:{port}\r\nSec-Fetch-Site: cross-site\r\n{json}"), 403),
    ] {
        assert_eq!(server.send(&head(&more), body).status, want, "{more}");
    }
    let get = server.get("/api/control?action=stop");
    assert_eq!(get.status, 405);
    for method in ["PUT", "DELETE", "PATCH", "OPTIONS"] {
        let head = head("X: y").replacen("POST", method, 1);
        assert_eq!(server.send(&head, body).status, 405, "{method}");
    }
    assert!(!server.stop.load(Ordering::Relaxed));
}

#[test]
fn no_path_reaches_the_file_system() {
    let server = Server::new();
    for path in [
        "/../../../../etc/passwd",
        "/..%2f..%2fetc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/etc/passwd",
        "/assets/../Cargo.toml",
        "/api/runs/../../etc/passwd",
        "/api/runs/0/../../../etc/passwd",
        "/api/runs/%2fetc%2fpasswd",
        "/style.css%00.html",
        "/style.css/",
    ] {
        let reply = server.get(path);
        assert_eq!(reply.status, 404, "{path}");
        assert!(!reply.body.contains("root:"), "{path}");
    }
}

#[test]
fn the_token_is_needed_once_and_moves_into_a_cookie() {
    let server = Server::at("0.0.0.0", false);
    let url = &server.page.as_ref().unwrap().url;
    let token = url.split("token=").nth(1).unwrap();
    assert_eq!(token.len(), 32);
    assert_eq!(server.get("/").status, 401);
    assert_eq!(server.get("/api/runs").status, 401);
    assert_eq!(server.get("/?token=00000000000000000000000000000000").status, 401);
    let first = server.get(&format!("/?token={token}"));
    assert_eq!(first.status, 303);
    assert!(first.head.contains("location: /\r\n"), "{}", first.head);
    let cookie = first.head.split("set-cookie: ").nth(1).unwrap().split(';').next().unwrap();
    assert!(first.head.contains("httponly; samesite=strict"), "{}", first.head);
    let port = server.port;
    let head = format!("GET /api/runs HTTP/1.1\r\nHost: localhost:{port}\r\nCookie: {cookie}");
    assert_eq!(server.send(&head, "").status, 200);
}

#[test]
fn ten_thousand_connections_are_bounded() {
    let server = Server::new();
    let before = resident();
    let mut kept: Vec<TcpStream> = Vec::new();
    for number in 0..10_000 {
        if let Ok(stream) = TcpStream::connect(("127.0.0.1", server.port)) {
            // Some stay, as many as the test itself may open.
            if number % 16 == 0 {
                kept.push(stream);
            }
        }
    }
    assert!(kept.len() > 500);
    let grown = resident().saturating_sub(before);
    assert!(grown < SOME_MEMORY, "{grown} bytes for {} connections", kept.len());
    drop(kept);
    let began = Instant::now();
    while server.get("/api/runs").status != 200 {
        assert!(began.elapsed() < Duration::from_secs(15));
    }
}

/// Idle connections end, so that they cannot keep others out.
#[test]
fn a_slow_client_is_let_go() {
    let server = Server::new();
    let mut slow: Vec<TcpStream> = (0..300).map(|_| server.connect()).collect();
    let began = Instant::now();
    let mut ended = 0;
    for stream in &mut slow {
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: local");
    }
    for stream in &mut slow {
        let mut rest = Vec::new();
        ended += usize::from(stream.read_to_end(&mut rest).is_ok());
    }
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    assert!(ended > 250, "{ended}");
    assert_eq!(server.get("/").status, 200);
}

#[test]
fn a_client_that_never_reads_costs_little() {
    let server = Server::at("localhost", true);
    let own = server.folder.join("own");
    std::fs::create_dir_all(&own).unwrap();
    let mut sink = server.registry.own(&own);
    let port = server.port;
    let mut deaf: Vec<TcpStream> = (0..20).map(|_| server.connect()).collect();
    for stream in &mut deaf {
        let request = format!("GET /api/events HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
    }
    let before = resident();
    for round in 0..20 {
        feed(&mut sink, round * 5_000..(round + 1) * 5_000);
        std::thread::sleep(Duration::from_millis(100));
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < SOME_MEMORY, "{grown}");
    assert_eq!(server.get("/api/runs").json()["runs"][0]["points"], 100_000);
}

#[test]
fn bodies_and_heads_are_bounded() {
    let server = Server::new();
    let long = "x".repeat(5 << 20);
    assert_eq!(server.post("/api/doctor", &json!({ "text": long })).status, 413);
    let some = "x".repeat(100 << 10);
    assert_eq!(server.post("/api/sample", &json!({ "prompt": some })).status, 413);
    let head = format!("GET /{} HTTP/1.1\r\nHost: localhost", "a".repeat(100 << 10));
    assert!([400, 414, 431].contains(&server.send(&head, "").status));
    let headers: String = (0..500).map(|number| format!("X-{number}: y\r\n")).collect();
    let head = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}", headers.trim_end());
    assert!([400, 431].contains(&server.send(&head, "").status));
    assert_eq!(server.send("rubbish", "").status, 400);
    assert_eq!(server.get("/").status, 200);
}

#[test]
fn a_text_with_a_script_stays_text() {
    let server = Server::new();
    let sample = json!({ "kind": "sample", "iter": 1, "text": "<script>alert(1)</script>",
                         "unix_time": 1, "seconds": 1 });
    server.log("out", format!("{START}\n{sample}\n").as_bytes());
    server.wait_for(|run| run["samples"] == 1);
    let reply = server.get("/api/runs/0");
    assert!(reply.head.contains("content-type: application/json"), "{}", reply.head);
    assert_eq!(reply.json()["samples"][0]["text"], "<script>alert(1)</script>");
}

#[test]
fn a_damaged_log_is_counted_and_shown() {
    let server = Server::new();
    let mut content = format!("{START}\n{}", line(0)).into_bytes();
    content.extend((0..200_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8));
    content.extend(format!("\n{{\"kind\":\"iter\",\"iter\":\n{}", line(1)).bytes());
    server.log("out", &content);
    let found = server.wait_for(|run| run["iter"] == 2);
    assert!(found["unreadable"].as_u64() > Some(1), "{found}");
    assert!(found["problem"].as_str().unwrap().starts_with("line "), "{found}");
    let other = Server::new();
    other.log("out", &content[content.len() / 2..content.len() / 2 + 500]);
    assert!(other.wait_for(|run| run["status"] == "broken")["problem"].is_string());
}

/// A hole of 2 GiB: one line without an end.
#[test]
fn a_log_of_two_gibibytes_takes_little_memory_and_blocks_nobody() {
    let server = Server::new();
    let before = resident();
    let folder = server.folder.join("huge");
    std::fs::create_dir_all(&folder).unwrap();
    let mut file = std::fs::File::create(folder.join("log.jsonl")).unwrap();
    write!(file, "{START}\n{}", line(0)).unwrap();
    file.set_len(2 << 30).unwrap();
    let mut slowest = Duration::ZERO;
    let began = Instant::now();
    loop {
        let asked = Instant::now();
        let found = server.get("/api/runs").json()["runs"][0].clone();
        slowest = slowest.max(asked.elapsed());
        if found["iter"] == 1 && found["reading"].is_null() {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{found}");
    }
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    let grown = resident().saturating_sub(before);
    assert!(grown < SOME_MEMORY, "{grown}");
}
