//! Known data sets and addresses, against a test server that imitates the hub and fails.

use crate::fixture::{
    TempDir, client, documents, expected, jsonl, parquet, run_with, some, twentieth,
};
use crate::server::{Fault, Server};
use ::parquet::basic::{Compression, ZstdLevel};
use sha2::{Digest, Sha256};

const FINEWEB: &str = "HuggingFaceFW/fineweb-edu";

/// Three shards of a hundred documents each.
fn shards(dir: &TempDir) -> (Vec<String>, Vec<Vec<u8>>) {
    let documents = documents(300);
    let shard = |part: &[String]| {
        let path = dir.path("shard.parquet");
        parquet(&path, &some(part), Compression::ZSTD(ZstdLevel::default()));
        std::fs::read(path).unwrap()
    };
    let shards = documents.chunks(100).map(shard).collect();
    (documents, shards)
}

fn serve(server: &Server, folder: &str, shards: &[Vec<u8>]) {
    // Not in reading order.
    let names = ["000_00002.parquet", "000_00010.parquet", "000_00001.parquet"];
    let order = [1, 2, 0];
    let files: Vec<(&str, Vec<u8>)> =
        names.into_iter().zip(order.map(|index| shards[index].clone())).collect();
    server.dataset(FINEWEB, folder, &files);
}

fn resolved(name: &str) -> String {
    format!("/datasets/{FINEWEB}/resolve/main/sample/10BT/{name}")
}

#[test]
fn a_known_name_survives_every_fault() {
    let dir = TempDir::new("known");
    let server = Server::new();
    let (documents, shards) = shards(&dir);
    serve(&server, "sample/10BT", &shards);
    server.fault(
        &format!("/api/datasets/{FINEWEB}/tree/main/sample/10BT"),
        &[Fault::Status(503, "")],
    );
    let (first, second) = (resolved("000_00001.parquet"), resolved("000_00002.parquet"));
    server.fault(&first, &[Fault::Cut(1000), Fault::Status(429, ""), Fault::Cut(2000)]);
    server.fault(&second, &[Fault::Garbled]);
    let client = client(&server.address);
    run_with(twentieth(dir.request("fineweb-edu", "out")), &client).unwrap();
    let (train, val) = expected(&documents);
    assert!(dir.ids("out/train.bin") == train && dir.ids("out/val.bin") == val);
    // A lost connection resumes where it was; a wrong checksum starts over.
    assert_eq!(server.asked(&first), [0, 1000, 1000, 3000]);
    assert_eq!(server.asked(&second), [0, 0]);
    assert!(!dir.path("out/downloads").exists());
}

#[test]
fn a_partial_download_of_an_earlier_run_is_resumed() {
    let dir = TempDir::new("part");
    let server = Server::new();
    let (documents, shards) = shards(&dir);
    serve(&server, "sample/10BT", &shards);
    let copy = |index: usize, name: &str| {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let (url, sum) = (format!("{}{}", server.address, resolved(name)), &shards[index]);
        let sum = Some(hex(&Sha256::digest(sum)));
        let whose = hex(&Sha256::digest(format!("{url} {sum:?}")));
        format!("out/downloads/{index:05}-{}-{name}", &whose[..12])
    };
    // A shard of another data set with the same name is not confused with it.
    dir.write("out/downloads/00000-000000000000-000_00001.parquet", b"another one");
    dir.write(&(copy(0, "000_00001.parquet") + ".part"), &shards[0][..1500]);
    let mut request = twentieth(dir.request("fineweb-edu", "out"));
    request.keep_downloads = true;
    run_with(request, &client(&server.address)).unwrap();
    assert!(dir.ids("out/train.bin") == expected(&documents).0);
    assert_eq!(server.asked(&resolved("000_00001.parquet")), [1500]);
    assert_eq!(dir.read(&copy(2, "000_00010.parquet")), shards[2]);
}

#[test]
fn failed_downloads_are_explained() {
    let dir = TempDir::new("refused");
    let server = Server::new();
    let (_, shards) = shards(&dir);
    serve(&server, "sample/10BT", &shards);
    let client = client(&server.address);
    let fails = |name: &str, words: &[&str]| {
        let message = run_with(dir.request(name, "out"), &client).unwrap_err().to_string();
        for word in words {
            assert!(message.contains(word), "{word:?} in {message}");
        }
    };
    fails("fineweb-edu/sample-1T", &["no config 'sample-1T'", "sample-10BT, sample-100BT"]);
    fails("fineweb-edu/CC-MAIN-1999-01", &["data/CC-MAIN-1999-01", "does not exist (404)"]);
    server.fault(&resolved("000_00001.parquet"), &[Fault::Status(500, ""); 9]);
    fails("fineweb-edu", &["failed 6 times", "500", "run the same command again"]);
    server.fault(&resolved("000_00001.parquet"), &[Fault::Garbled; 9]);
    fails("fineweb-edu", &["its sha256 is", "but should be"]);
    server.fault(&resolved("000_00001.parquet"), &[Fault::Status(403, "")]);
    fails("fineweb-edu", &["HF_TOKEN"]);
    assert!(!dir.path("out/train.bin").exists());
}

/// A data set with its own halves, and a plain address.
#[test]
fn halves_and_addresses() {
    let dir = TempDir::new("halves");
    let server = Server::new();
    let (documents, shards) = shards(&dir);
    let names = ["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"];
    let files = [
        (names[0], shards[0].clone()),
        (names[1], shards[1].clone()),
        ("validation-00000-of-00001.parquet", shards[2].clone()),
    ];
    server.dataset("roneneldan/TinyStories", "data", &files);
    let with_server = client(&server.address);
    let totals = run_with(dir.request("tinystories", "stories"), &with_server).unwrap();
    assert_eq!((totals.train_documents, totals.val_documents), (200, 100));
    server.file("/some/a.jsonl", jsonl(&documents));
    let address = format!("{}/some/a.jsonl?download=1", server.address);
    server.fault("/some/a.jsonl", &[Fault::Cut(5000)]);
    run_with(twentieth(dir.request(&address, "address")), &with_server).unwrap();
    assert!(dir.ids("address/train.bin") == expected(&documents).0);
}

/// An unreachable server is not tried again: the pauses between six tries would take 31 s.
#[test]
fn offline_is_reported_at_once() {
    let dir = TempDir::new("offline");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let refusing = format!("http://127.0.0.1:{port}");
    for endpoint in [&refusing[..], "http://no-such-host.invalid"] {
        let mut nobody = client(endpoint);
        nobody.first_pause = std::time::Duration::from_secs(1);
        let file = format!("{endpoint}/a.txt");
        for source in ["tinystories", &file] {
            let start = std::time::Instant::now();
            let asked = run_with(dir.request(source, "none"), &nobody);
            let message = asked.unwrap_err().to_string();
            assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
            assert!(message.contains("cannot be reached"), "{message}");
            assert!(message.contains("on this machine"), "{message}");
            assert!(message.contains("HF_ENDPOINT"), "{message}");
        }
    }
    let mut elsewhere = client("https://hub.invalid");
    elsewhere.first_pause = std::time::Duration::from_secs(1);
    let asked = run_with(dir.request(&format!("{refusing}/a.txt"), "none"), &elsewhere);
    let message = asked.unwrap_err().to_string();
    assert!(message.contains("check the network, or"), "{message}");
    let asked = run_with(dir.request("tinystories", "none"), &client("http://no hub"));
    let message = asked.unwrap_err().to_string();
    for word in ["this is not a valid address (", "check the spelling of HF_ENDPOINT"] {
        assert!(message.contains(word), "{word:?} in {message}");
    }
    assert!(!message.contains("network"), "{message}");
    let typed = format!("{refusing}/a b.txt");
    let message = run_with(dir.request(&typed, "none"), &client(&refusing)).unwrap_err();
    assert!(message.to_string().ends_with("check the spelling"), "{message}");
}

/// An endless listing: each page links to the next.
#[test]
fn a_listing_of_too_many_pages_is_refused() {
    let dir = TempDir::new("pages");
    let server = Server::new();
    let path = format!("/api/datasets/{FINEWEB}/tree/main/sample/10BT");
    server.file(&path, b"[{\"path\":\"a.parquet\"}]".to_vec());
    let next = format!("{}{path}", server.address);
    server.state.lock().unwrap().next.insert(path.clone(), next);
    let asked = run_with(dir.request("fineweb-edu", "out"), &client(&server.address));
    let message = asked.unwrap_err().to_string();
    assert!(message.contains("more than 100 pages; name a folder or a single file"), "{message}");
    assert_eq!(server.asked(&path).len(), 100);
}

/// Once there are enough tokens, a running download is abandoned and removed.
#[test]
fn enough_ends_downloads() {
    let dir = TempDir::new("enough-shards");
    let server = Server::new();
    let (_, shards) = shards(&dir);
    serve(&server, "sample/10BT", &shards);
    // The last shard never arrives completely, so waiting for it would fail.
    server.fault(&resolved("000_00010.parquet"), &[Fault::Cut(10); 99]);
    let mut request = twentieth(dir.request("fineweb-edu", "out"));
    request.max_tokens = Some(100);
    run_with(request, &client(&server.address)).unwrap();
    assert!(dir.path("out/train.bin").exists());
    assert!(!dir.path("out/downloads").exists());
}
