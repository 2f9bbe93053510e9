//! Everything that can go wrong on the way: each says what to do next, or heals itself.

use crate::models::{TempDir, Told, WEIGHTS, client, gpt2, weights, with_gpt2};
use crate::server::{Fault, HubServer, etag, main_path, path};
use fitgpt_hub::{Client, ModelRepo};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn storage() -> String {
    format!("GET /storage/{}", etag(WEIGHTS, &weights()))
}

#[track_caller]
fn fails(dir: &TempDir, client: &Client, words: &[&str]) {
    let said = client.model(&dir.cache(), &gpt2(), &mut Told::default());
    let said = said.unwrap_err().to_string();
    for word in words {
        assert!(said.contains(word), "{word:?} in {said}");
    }
    assert!(!said.contains('\n'), "{said}");
}

#[test]
fn a_cut_download_resumes_where_it_was() {
    let (dir, server) = (TempDir::new("cut"), with_gpt2());
    server.fault(&storage(), &[Fault::Cut(150_000), Fault::Status(503, ""), Fault::Cut(100_000)]);
    let client = client(&server.address, None);
    let model = client.model(&dir.cache(), &gpt2(), &mut Told::default()).unwrap();
    assert_eq!(std::fs::read(model.path.join(WEIGHTS)).unwrap(), weights());
    let from: Vec<usize> = server.asked(&storage()).iter().map(|asked| asked.from).collect();
    assert_eq!(from, [0, 150_000, 150_000, 250_000]);
}

#[test]
fn what_was_received_is_kept_for_the_next_call() {
    let (dir, server) = (TempDir::new("kept"), with_gpt2());
    let faults = [&[Fault::Cut(150_000)][..], &[const { Fault::Status(500, "") }; 9]].concat();
    server.fault(&storage(), &faults);
    let client = client(&server.address, None);
    fails(&dir, &client, &["failed 6 times", "150000 bytes of it are kept", "same command"]);
    let part = dir.blob(&(etag(WEIGHTS, &weights()) + ".incomplete"));
    assert_eq!(std::fs::read(&part).unwrap(), weights()[..150_000]);
    server.fault(&storage(), &[]);
    server.asked("");
    client.model(&dir.cache(), &gpt2(), &mut Told::default()).unwrap();
    assert_eq!(server.asked(&storage())[0].from, 150_000);
    assert!(!part.exists());
}

#[test]
fn a_wrong_checksum_starts_over_and_never_takes_the_name() {
    let (dir, server) = (TempDir::new("sum"), with_gpt2());
    server.fault(&storage(), &[Fault::Garbled]);
    let client = client(&server.address, None);
    let model = client.model(&dir.cache(), &gpt2(), &mut Told::default()).unwrap();
    assert_eq!(std::fs::read(model.path.join(WEIGHTS)).unwrap(), weights());
    let dir = TempDir::new("sums");
    server.fault(&storage(), &[const { Fault::Garbled }; 9]);
    fails(&dir, &client, &["its sha256 is", "but should be"]);
    assert!(!dir.blob(&etag(WEIGHTS, &weights())).exists());
    // Files that git keeps have a checksum, too.
    let line = format!("GET {}", path("gpt2", "tokenizer.json"));
    server.fault(&line, &[const { Fault::Garbled }; 9]);
    fails(&TempDir::new("git"), &client, &["its git hash is", "but should be"]);
}

#[test]
fn refusals_say_the_next_move() {
    let (dir, server) = (TempDir::new("refused"), with_gpt2());
    let head = format!("HEAD {}", main_path("gpt2", "config.json"));
    let plain = client(&server.address, None);
    for (status, headers, words) in [
        (403, "x-error-code: GatedRepo\r\n", ["is gated (403)", "accept its terms", "HF_TOKEN"]),
        (401, "x-error-code: GatedRepo\r\n", ["is gated (401)", "accept its terms", "HF_TOKEN"]),
        (
            401,
            "x-error-code: RepoNotFound\r\n",
            ["no such repository", "check the name", "HF_TOKEN"],
        ),
        (403, "", ["needs permission (403)", "HF_TOKEN", ""]),
        (404, "", ["does not exist (404)", "check the name", ""]),
        (429, "retry-after: 300\r\n", ["429", "wait 300 s", "with a token in HF_TOKEN"]),
        (200, "etag: \"x\"\r\n", ["names no commit", "is HF_ENDPOINT a hub?", ""]),
    ] {
        server.fault(&head, &[Fault::Status(status, headers)]);
        fails(&dir, &plain, &words);
    }
    server.fault(&head, &[const { Fault::Status(429, "") }; 9]);
    fails(&dir, &plain, &["failed 6 times", "429 (too many requests)", "same command again"]);
    let nobody = ModelRepo::new("nobody/nothing").unwrap();
    let said = plain.model(&dir.cache(), &nobody, &mut Told::default()).unwrap_err().to_string();
    assert!(said.contains("nobody/nothing") && said.contains("no such repository"), "{said}");
}

#[test]
fn a_server_may_ask_for_a_pause() {
    let (dir, server) = (TempDir::new("pause"), with_gpt2());
    let head = format!("HEAD {}", main_path("gpt2", "config.json"));
    server.fault(&head, &[Fault::Status(429, "retry-after: 1\r\n")]);
    let start = Instant::now();
    let client = client(&server.address, None);
    client.model(&dir.cache(), &gpt2(), &mut Told::default()).unwrap();
    assert!(start.elapsed() >= Duration::from_secs(1), "{:?}", start.elapsed());
}

#[test]
fn redirects_in_a_circle_end() {
    let (dir, server) = (TempDir::new("circle"), with_gpt2());
    server.state.lock().unwrap().moved.insert("gpt2".to_owned(), "gpt2".to_owned());
    fails(&dir, &client(&server.address, None), &["redirects more than 10 times"]);
}

#[test]
fn offline_and_unreachable_are_told_apart() {
    let dir = TempDir::new("offline");
    let mut offline = client("http://127.0.0.1:1", None);
    fails(&dir, &offline, &["cannot be reached", "check the network", "HF_ENDPOINT"]);
    offline.is_offline = true;
    fails(&dir, &offline, &["gpt2: is not complete in", "HF_HUB_OFFLINE", "unset it"]);
}

#[test]
fn a_repository_without_safetensors_is_explained() {
    let (dir, server) = (TempDir::new("pickled"), HubServer::new());
    server.file("gpt2", "config.json", "{}");
    server.file("gpt2", "pytorch_model.bin", "x");
    let words = ["neither model.safetensors nor", "save_pretrained", "give its folder"];
    fails(&dir, &client(&server.address, None), &words);
}

/// A model that no disk holds is refused before its weights are asked for.
#[test]
fn a_disk_without_room_is_found_before_the_download() {
    let (dir, server) = (TempDir::new("room"), with_gpt2());
    let line = format!("HEAD {}", path("gpt2", WEIGHTS));
    let headers = concat!(
        "etag: \"5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03\"\r\n",
        "x-linked-size: 9000000000000000000\r\n"
    );
    server.fault(&line, &[Fault::Status(200, headers)]);
    let words = ["needs 90000000000000", "bytes more, but the disk has", "HF_HUB_CACHE"];
    fails(&dir, &client(&server.address, None), &words);
    assert!(server.asked("GET /storage").is_empty());
}

/// A body without end stops at the announced size, or at the most that such a file has.
#[test]
fn a_file_without_end_does_not_fill_the_disk() {
    let (dir, server) = (TempDir::new("endless"), with_gpt2());
    server.fault(&storage(), &[Fault::Endless]);
    let client = client(&server.address, None);
    let mut told = Told::default();
    let model = client.model(&dir.cache(), &gpt2(), &mut told).unwrap();
    assert_eq!(std::fs::read(model.path.join(WEIGHTS)).unwrap(), weights());
    assert!(told.most <= 400_000, "{}", told.most);
    let dir = TempDir::new("endless-always");
    server.fault(&storage(), &[const { Fault::Endless }; 9]);
    fails(&dir, &client, &["failed 6 times", "but at most 400000 are right"]);
    assert!(!dir.blob(&(etag(WEIGHTS, &weights()) + ".incomplete")).exists());
    // Neither answer says how large the tokenizer is.
    let dir = TempDir::new("endless-tokenizer");
    let file = path("gpt2", "tokenizer.json");
    server.fault(&format!("HEAD {file}"), &[Fault::Endless]);
    server.fault(&format!("GET {file}"), &[const { Fault::Endless }; 9]);
    fails(&dir, &client, &["failed 6 times", "but at most 67108864 are right"]);
    // Weights of unknown size, and a config that is too large for one.
    server.fault(
        &format!("HEAD {}", path("gpt2", WEIGHTS)),
        &[Fault::Status(302, "x-linked-etag: \"a\"\r\nlocation: http://127.0.0.1:1/\r\n")],
    );
    fails(&dir, &client, &["does not say the file's size"]);
    let headers = "x-repo-commit: b\r\netag: \"a\"\r\nx-linked-size: 16777217\r\n";
    let head = format!("HEAD {}", main_path("gpt2", "config.json"));
    server.fault(&head, &[Fault::Status(200, headers)]);
    fails(&dir, &client, &["has 16777217 bytes, but a config.json has at most 16777216"]);
}

#[test]
fn names_from_the_server_cannot_leave_the_cache() {
    let (dir, server) = (TempDir::new("names"), with_gpt2());
    let head = format!("HEAD {}", main_path("gpt2", "config.json"));
    let plain = client(&server.address, None);
    for headers in [
        "x-repo-commit: ../../x\r\netag: \"a\"\r\n",
        "x-repo-commit: .\r\netag: \"a\"\r\n",
        "x-repo-commit: a\r\netag: \"../../x\"\r\n",
        "x-repo-commit: a\r\netag: \"\"\r\n",
    ] {
        server.fault(&head, &[Fault::Status(200, headers)]);
        fails(&dir, &plain, &["is HF_ENDPOINT a hub?"]);
    }
}

#[test]
fn the_user_can_stop_and_keeps_what_is_there() {
    let (dir, server) = (TempDir::new("stopped"), with_gpt2());
    let faults = [Fault::Cut(150_000), Fault::Late(20_000)];
    server.fault(&storage(), &faults);
    let stop = Arc::new(AtomicBool::new(false));
    let hub = client(&server.address, None).hub().clone();
    let client = Client::new(hub, Arc::clone(&stop));
    let part = dir.blob(&(etag(WEIGHTS, &weights()) + ".incomplete"));
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let is_there = || part.metadata().is_ok_and(|metadata| metadata.len() == 150_000);
            while !is_there() && start.elapsed() < Duration::from_secs(10) {
                std::thread::sleep(Duration::from_millis(10));
            }
            stop.store(true, Ordering::Relaxed);
        });
        fails(&dir, &client, &["stopped"]);
    });
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_eq!(part.metadata().unwrap().len(), 150_000);
}
