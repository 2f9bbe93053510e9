//! Interrupted downloads: what is resumed and what is not trusted.

use crate::fixture::{TempDir, client, documents, expected, jsonl, run_with, twentieth};
use crate::server::{Fault, Server};
use std::path::PathBuf;

const PATH: &str = "/a.jsonl";

/// A server with one file, with or without an ETag, and the file's address.
fn one_file(documents: &[String], tag: Option<&'static str>) -> (Server, String) {
    let server = Server::new();
    server.file(PATH, jsonl(documents));
    let mut state = server.state.lock().unwrap();
    (state.is_open, state.tag) = (true, tag);
    drop(state);
    let address = format!("{}{PATH}", server.address);
    (server, address)
}

/// The download file whose name ends in `end`.
fn left(dir: &TempDir, end: &str) -> PathBuf {
    let files = std::fs::read_dir(dir.path("out/downloads")).unwrap();
    let mut paths = files.map(|entry| entry.unwrap().path());
    paths.find(|path| path.to_str().unwrap().ends_with(end)).unwrap()
}

/// The rest might belong to another version, so the whole file is downloaded again.
#[test]
fn a_file_without_a_version_starts_over_after_a_cut() {
    let dir = TempDir::new("no-mark");
    let documents = documents(50);
    let (server, address) = one_file(&documents, None);
    server.fault(PATH, &[Fault::Cut(5000), Fault::Status(500, ""), Fault::Cut(7000)]);
    let request = twentieth(dir.request(&address, "out"));
    run_with(request, &client("http://127.0.0.1:1")).unwrap();
    assert_eq!(server.asked(PATH), [0, 0, 0, 0]);
    assert!(dir.ids("out/train.bin") == expected(&documents).0);
}

/// After a power cut a partial file may have its full length but contain zeros, so everything that
/// was not synced is downloaded again. A version file of zeros counts as missing.
#[test]
fn a_partial_file_is_trusted_as_far_as_it_was_synced() {
    let documents = documents(50);
    for is_mark_lost in [false, true] {
        let dir = TempDir::new(&format!("power-cut-{is_mark_lost}"));
        let (server, address) = one_file(&documents, Some("\"one\""));
        let client = client("http://127.0.0.1:1");
        let run = || run_with(twentieth(dir.request(&address, "out")), &client);
        server.fault(PATH, &[&[Fault::Cut(7000)][..], &[Fault::Status(500, ""); 9]].concat());
        let message = run().unwrap_err().to_string();
        assert!(message.contains("7000 bytes of it are kept"), "{message}");
        let part = left(&dir, ".part");
        std::fs::write(&part, [std::fs::read(&part).unwrap(), vec![0; 3000]].concat()).unwrap();
        if is_mark_lost {
            let mark = left(&dir, ".version");
            let zeros = vec![0; mark.metadata().unwrap().len() as usize];
            std::fs::write(&mark, zeros).unwrap();
        }
        server.fault(PATH, &[]);
        server.state.lock().unwrap().asked.clear();
        run().unwrap();
        assert_eq!(server.asked(PATH), [if is_mark_lost { 0 } else { 7000 }]);
        assert!(dir.ids("out/train.bin") == expected(&documents).0);
        assert!(!dir.path("out/downloads").exists());
    }
}
