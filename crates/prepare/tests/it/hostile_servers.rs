//! Servers that lie, stall or redirect, and errors that another try cannot fix.

use crate::fixture::{TempDir, client, documents, expected, jsonl, run_with, twentieth};
use crate::server::{Fault, Server};
use fitgpt_prepare::{Client, Hub, Job, Observer, Outcome, Progress};
use requires::{Need, absent};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PATH: &str = "/a.jsonl";

/// A server with one file that anybody may read, and the file's address.
fn one_file(documents: &[String]) -> (Server, String) {
    let server = Server::new();
    server.file(PATH, jsonl(documents));
    server.state.lock().unwrap().is_open = true;
    let address = format!("{}{PATH}", server.address);
    (server, address)
}

/// A client with realistic pauses, so that another try shows in the time it takes.
fn patient(endpoint: &str) -> Client {
    let mut client = client(endpoint);
    client.first_pause = Duration::from_secs(1);
    client
}

#[track_caller]
fn fails_at_once(dir: &TempDir, address: &str, client: &Client, words: &[&str]) {
    let start = Instant::now();
    let message = run_with(dir.request(address, "out"), client).unwrap_err().to_string();
    for word in words {
        assert!(message.contains(word), "{word:?} in {message}");
    }
    // Six tries would take 31 seconds.
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}: {message}", start.elapsed());
}

#[test]
fn a_short_file_without_a_rest_does_not_retry_for_ever() {
    let dir = TempDir::new("short");
    let (server, address) = one_file(&documents(50));
    server.state.lock().unwrap().tag = Some("\"one\"");
    server.fault(PATH, &[Fault::Cut(1000), Fault::Status(416, "")].repeat(40));
    let message = run_with(dir.request(&address, "out"), &client("http://127.0.0.1:1"));
    let message = message.unwrap_err().to_string();
    assert!(message.contains("failed 6 times"), "{message}");
    assert!(server.asked(PATH).len() < 20, "{:?}", server.asked(PATH));
}

#[test]
fn another_part_than_the_one_asked_for_is_not_taken() {
    let dir = TempDir::new("elsewhere");
    let documents = documents(50);
    let (server, address) = one_file(&documents);
    server.state.lock().unwrap().tag = Some("\"one\"");
    server.fault(PATH, &[Fault::Cut(5000), Fault::Elsewhere(100), Fault::Cut(9000)]);
    let request = twentieth(dir.request(&address, "out"));
    run_with(request, &client("http://127.0.0.1:1")).unwrap();
    assert!(dir.ids("out/train.bin") == expected(&documents).0);
    assert_eq!(server.asked(PATH), [0, 5000, 0, 9000]);
}

struct Nobody;

impl Observer for Nobody {
    fn note(&mut self, _: &str) {}
    fn progress(&mut self, _: &Progress) {}
}

#[test]
fn a_silent_server_is_left_at_once() {
    for fault in [Fault::Stall(1000), Fault::Silence] {
        let dir = TempDir::new(&format!("stall-{}", fault == Fault::Silence));
        let (server, address) = one_file(&documents(50));
        server.fault(PATH, &[fault]);
        let stop = Arc::new(AtomicBool::new(false));
        let hub = Hub { endpoint: "http://127.0.0.1:1".to_owned(), token: None };
        let client = Client::new(hub, Arc::clone(&stop));
        let job = Job::new(twentieth(dir.request(&address, "out")), &client).unwrap();
        let signal = std::thread::spawn(move || {
            let start = Instant::now();
            while server.asked(PATH).is_empty() && start.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(10));
            }
            std::thread::sleep(Duration::from_millis(300));
            stop.store(true, Ordering::Relaxed);
            Instant::now()
        });
        let outcome = fitgpt_prepare::run(job, &client, &mut Nobody).unwrap();
        let took = signal.join().unwrap().elapsed();
        assert!(matches!(outcome, Outcome::Interrupted(_)), "{outcome:?}");
        assert!(took < Duration::from_secs(2), "{fault:?}: {took:?}");
    }
}

#[test]
fn permanent_errors_are_not_retried() {
    let dir = TempDir::new("final");
    let (server, address) = one_file(&documents(5));
    let client = patient("http://127.0.0.1:1");
    // A server has answered, so from here on an error may be temporary.
    server.fault(PATH, &[Fault::Status(404, "")]);
    fails_at_once(&dir, &address, &client, &["does not exist (404)"]);
    for status in [400, 410, 418, 425, 451] {
        server.fault(PATH, &[Fault::Status(status, "")]);
        fails_at_once(&dir, &address, &client, &[&format!("the server answered {status}")]);
    }
    assert_eq!(server.asked(PATH).len(), 6);
    server.moved("/loop", "/loop");
    let address = format!("{}/loop", server.address);
    fails_at_once(&dir, &address, &client, &["redirects more than 10 times"]);
    server.moved("/file", "file:///etc/passwd");
    let address = format!("{}/file", server.address);
    fails_at_once(
        &dir,
        &address,
        &client,
        &["redirects to 'file:///etc/passwd'", "not a valid address"],
    );
    server.moved("/odd", "http://127.0.0.1:99999/a");
    let odd = format!("{}/odd", server.address);
    let words = ["redirects to 'http://127.0.0.1:99999/a'", "which is not a valid address"];
    fails_at_once(&dir, &odd, &client, &words);
    for address in ["http://127.0.0.1:99999/a.txt", "http://[::1/a.txt", "http:///a.txt"] {
        fails_at_once(
            &dir,
            address,
            &client,
            &["this is not a valid address (", "check the spelling"],
        );
    }
}

/// The token is for the hub; another server's refusal does not concern it.
#[test]
fn only_the_hub_asks_for_its_token() {
    let dir = TempDir::new("whose-token");
    let (server, address) = one_file(&documents(5));
    for status in [401, 403] {
        server.fault(PATH, &[Fault::Status(status, "")]);
        let asked = run_with(dir.request(&address, "out"), &client("http://127.0.0.1:1"));
        let message = asked.unwrap_err().to_string();
        assert!(message.contains(&format!("({status})")), "{message}");
        assert!(!message.contains("HF_TOKEN"), "{message}");
        server.fault(PATH, &[Fault::Status(status, "")]);
        fails_at_once(&dir, &address, &client(&server.address), &["HF_TOKEN"]);
    }
}

/// A token may end with a line feed; a token that no header can hold is refused by name.
#[test]
fn a_token_that_cannot_be_sent_is_named() {
    let dir = TempDir::new("odd-token");
    let documents = documents(50);
    let (server, address) = one_file(&documents);
    let with = |token: &str| {
        let hub = Hub { endpoint: server.address.clone(), token: Some(token.to_owned()) };
        Client::new(hub, Arc::new(AtomicBool::new(false)))
    };
    for token in ["sec\nret", "sécret"] {
        fails_at_once(&dir, &address, &with(token), &["HF_TOKEN", "letters"]);
    }
    assert!(server.asked(PATH).is_empty());
    run_with(twentieth(dir.request(&address, "out")), &with(" secret\r\n")).unwrap();
    assert_eq!(server.state.lock().unwrap().authorized, [true]);
}

/// A server without TLS, and one with a self-signed certificate.
#[test]
fn an_unsafe_connection_is_refused_at_once() {
    let dir = TempDir::new("tls");
    let (server, address) = one_file(&documents(5));
    let client = patient("http://127.0.0.1:1");
    server.fault(PATH, &[Fault::Status(404, "")]);
    fails_at_once(&dir, &address, &client, &["404"]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("https://{}/a.txt", listener.local_addr().unwrap());
    let plain = std::thread::spawn(move || {
        // It ends with the first connection; a second one would be refused, which may pass.
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        let _ = stream.read(&mut [0; 512]);
    });
    fails_at_once(&dir, &address, &client, &["no secure connection"]);
    plain.join().unwrap();
    let (key, certificate) = (dir.path("key.pem"), dir.path("cert.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout"])
        .args([key.as_os_str(), "-out".as_ref(), certificate.as_os_str()])
        .stderr(Stdio::null())
        .status();
    if !made.is_ok_and(|status| status.success()) {
        return absent(Need::Openssl, "no openssl");
    }
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut other = Command::new("openssl")
        .args(["s_server", "-quiet", "-www", "-accept", &port.to_string(), "-key"])
        .args([key.as_os_str(), "-cert".as_ref(), certificate.as_os_str()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    let is_up = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
    while !is_up() && start.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let address = format!("https://127.0.0.1:{port}/a.txt");
    let message = run_with(dir.request(&address, "out"), &client).unwrap_err().to_string();
    let took = start.elapsed();
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(
        message.contains("no secure connection") && message.contains("ertificate"),
        "{message}"
    );
    assert!(took < Duration::from_secs(20), "{took:?}");
}

/// The token is for the hub alone: another port of the same host is a different server.
#[test]
fn a_token_does_not_follow_to_another_port() {
    let dir = TempDir::new("token");
    let documents = documents(50);
    let (other, address) = one_file(&documents);
    let hub = Server::new();
    hub.moved("/near", "/far");
    hub.moved("/far", &address);
    let client = client(&hub.address);
    let request = twentieth(dir.request(&format!("{}/near", hub.address), "out"));
    let request =
        fitgpt_prepare::Request { format: Some(fitgpt_prepare::Format::Jsonl), ..request };
    run_with(request, &client).unwrap();
    assert!(dir.ids("out/train.bin") == expected(&documents).0);
    assert_eq!(hub.state.lock().unwrap().authorized, [true, true]);
    assert_eq!(other.state.lock().unwrap().authorized, [false]);
}

#[test]
fn a_failed_download_is_kept_and_resumed() {
    let dir = TempDir::new("kept");
    let documents = documents(50);
    let (server, address) = one_file(&documents);
    let client = client("http://127.0.0.1:1");
    let run = || run_with(twentieth(dir.request(&address, "out")), &client);
    let fail = |tag: Option<&'static str>| {
        server.state.lock().unwrap().tag = tag;
        let faults = [&[Fault::Cut(7000)][..], &[Fault::Status(500, ""); 9]].concat();
        server.fault(PATH, &faults);
        let message = run().unwrap_err().to_string();
        server.fault(PATH, &[]);
        server.state.lock().unwrap().asked.clear();
        message
    };
    // Without a version, the rest might belong to another file.
    let message = fail(None);
    assert!(message.contains("starts over"), "{message}");
    let message = fail(Some("\"one\""));
    assert!(message.contains("7000 bytes of it are kept"), "{message}");
    run().unwrap();
    assert_eq!(server.asked(PATH), [7000]);
    assert!(dir.ids("out/train.bin") == expected(&documents).0);
    assert!(!dir.path("out/downloads").exists());
    // Another version is downloaded completely.
    std::fs::remove_dir_all(dir.path("out")).unwrap();
    let message = fail(Some("\"one\""));
    assert!(message.contains("7000 bytes of it are kept"), "{message}");
    server.state.lock().unwrap().tag = Some("\"two\"");
    let longer = crate::fixture::documents(60);
    server.file(PATH, jsonl(&longer));
    run().unwrap();
    assert!(dir.ids("out/train.bin") == expected(&longer).0);
}
