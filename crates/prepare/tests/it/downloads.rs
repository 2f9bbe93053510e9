//! Known data sets and addresses, against a server that speaks the hub's paths and fails.

use crate::fixture::{
    Place, client, documents, expected, jsonl, parquet, run_with, some, twentieth,
};
use crate::server::{Fault, Server};
use ::parquet::basic::{Compression, ZstdLevel};
use sha2::{Digest, Sha256};

const FINEWEB: &str = "HuggingFaceFW/fineweb-edu";

/// Three shards of a hundred documents each.
fn shards(place: &Place) -> (Vec<String>, Vec<Vec<u8>>) {
    let documents = documents(300);
    let shard = |part: &[String]| {
        let path = place.path("shard.parquet");
        parquet(&path, &some(part), Compression::ZSTD(ZstdLevel::default()));
        std::fs::read(path).unwrap()
    };
    let shards = documents.chunks(100).map(shard).collect();
    (documents, shards)
}

fn serve(server: &Server, folder: &str, shards: &[Vec<u8>]) {
    // Not in the order in which they are to be read.
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
fn a_known_name_through_all_that_goes_wrong() {
    let place = Place::new("known");
    let server = Server::new();
    let (documents, shards) = shards(&place);
    serve(&server, "sample/10BT", &shards);
    server.fault(&format!("/api/datasets/{FINEWEB}/tree/main/sample/10BT"), &[Fault::Status(503)]);
    let (first, second) = (resolved("000_00001.parquet"), resolved("000_00002.parquet"));
    server.fault(&first, &[Fault::Cut(1000), Fault::Status(429), Fault::Cut(2000)]);
    server.fault(&second, &[Fault::Garbled]);
    let client = client(&server.address);
    run_with(twentieth(place.request("fineweb-edu", "out")), &client).unwrap();
    let (train, val) = expected(&documents);
    assert!(place.ids("out/train.bin") == train && place.ids("out/val.bin") == val);
    // A cut connection goes on where it was; a wrong checksum begins anew.
    assert_eq!(server.asked(&first), [0, 1000, 1000, 3000]);
    assert_eq!(server.asked(&second), [0, 0]);
    assert!(!place.path("out/downloads").exists());
}

#[test]
fn a_part_of_an_earlier_run_is_gone_on_with() {
    let place = Place::new("part");
    let server = Server::new();
    let (documents, shards) = shards(&place);
    serve(&server, "sample/10BT", &shards);
    let copy = |index: usize, name: &str| {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let (url, sum) = (format!("{}{}", server.address, resolved(name)), &shards[index]);
        let sum = Some(hex(&Sha256::digest(sum)));
        let whose = hex(&Sha256::digest(format!("{url} {sum:?}")));
        format!("out/downloads/{index:05}-{}-{name}", &whose[..12])
    };
    // Another data set's shard of the same name is not taken for it.
    place.write("out/downloads/00000-000000000000-000_00001.parquet", b"another one");
    place.write(&(copy(0, "000_00001.parquet") + ".part"), &shards[0][..1500]);
    let mut request = twentieth(place.request("fineweb-edu", "out"));
    request.keep_downloads = true;
    run_with(request, &client(&server.address)).unwrap();
    assert!(place.ids("out/train.bin") == expected(&documents).0);
    assert_eq!(server.asked(&resolved("000_00001.parquet")), [1500]);
    assert_eq!(place.read(&copy(2, "000_00010.parquet")), shards[2]);
}

#[test]
fn what_cannot_be_had_is_told() {
    let place = Place::new("refused");
    let server = Server::new();
    let (_, shards) = shards(&place);
    serve(&server, "sample/10BT", &shards);
    let client = client(&server.address);
    let fails = |name: &str, words: &[&str]| {
        let message = run_with(place.request(name, "out"), &client).unwrap_err().to_string();
        for word in words {
            assert!(message.contains(word), "{word:?} in {message}");
        }
    };
    fails("fineweb-edu/sample-1T", &["no config 'sample-1T'", "sample-10BT, sample-100BT"]);
    fails("fineweb-edu/CC-MAIN-1999-01", &["data/CC-MAIN-1999-01", "is not there (404)"]);
    server.fault(&resolved("000_00001.parquet"), &[Fault::Status(500); 9]);
    fails("fineweb-edu", &["failed 6 times", "500", "run the same command again"]);
    server.fault(&resolved("000_00001.parquet"), &[Fault::Garbled; 9]);
    fails("fineweb-edu", &["its sha256 is", "but should be"]);
    server.fault(&resolved("000_00001.parquet"), &[Fault::Status(403)]);
    fails("fineweb-edu", &["HF_TOKEN"]);
    assert!(!place.path("out/train.bin").exists());
}

/// The halves of a data set that has its own; an address.
#[test]
fn halves_and_addresses() {
    let place = Place::new("halves");
    let server = Server::new();
    let (documents, shards) = shards(&place);
    let names = ["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"];
    let files = [
        (names[0], shards[0].clone()),
        (names[1], shards[1].clone()),
        ("validation-00000-of-00001.parquet", shards[2].clone()),
    ];
    server.dataset("roneneldan/TinyStories", "data", &files);
    let with_server = client(&server.address);
    let totals = run_with(place.request("tinystories", "stories"), &with_server).unwrap();
    assert_eq!((totals.train_documents, totals.val_documents), (200, 100));
    server.file("/some/a.jsonl", jsonl(&documents));
    let address = format!("{}/some/a.jsonl?download=1", server.address);
    server.fault("/some/a.jsonl", &[Fault::Cut(5000)]);
    run_with(twentieth(place.request(&address, "address")), &with_server).unwrap();
    assert!(place.ids("address/train.bin") == expected(&documents).0);
}

/// Who cannot be reached at all is not asked again: the pauses between six tries would be 31 s.
#[test]
fn offline_is_told_at_once() {
    let place = Place::new("offline");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let refusing = format!("http://127.0.0.1:{port}");
    for endpoint in [&refusing[..], "http://no-such-host.invalid"] {
        let mut nobody = client(endpoint);
        nobody.first_pause = std::time::Duration::from_secs(1);
        let file = format!("{endpoint}/a.txt");
        for source in ["tinystories", &file] {
            let start = std::time::Instant::now();
            let asked = run_with(place.request(source, "none"), &nobody);
            let message = asked.unwrap_err().to_string();
            assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
            assert!(message.contains("cannot be reached"), "{message}");
            assert!(message.contains("on this machine"), "{message}");
            assert!(message.contains("HF_ENDPOINT"), "{message}");
        }
    }
    let mut elsewhere = client("https://hub.invalid");
    elsewhere.first_pause = std::time::Duration::from_secs(1);
    let asked = run_with(place.request(&format!("{refusing}/a.txt"), "none"), &elsewhere);
    let message = asked.unwrap_err().to_string();
    assert!(message.contains("check the network, or"), "{message}");
    let asked = run_with(place.request("tinystories", "none"), &client("http://no hub"));
    let message = asked.unwrap_err().to_string();
    for word in ["this is no address (", "check the spelling of HF_ENDPOINT"] {
        assert!(message.contains(word), "{word:?} in {message}");
    }
    assert!(!message.contains("network"), "{message}");
    let typed = format!("{refusing}/a b.txt");
    let message = run_with(place.request(&typed, "none"), &client(&refusing)).unwrap_err();
    assert!(message.to_string().ends_with("check the spelling"), "{message}");
}

/// Pages that never end, each with the next.
#[test]
fn a_listing_of_too_many_pages_is_told() {
    let place = Place::new("pages");
    let server = Server::new();
    let path = format!("/api/datasets/{FINEWEB}/tree/main/sample/10BT");
    server.file(&path, b"[{\"path\":\"a.parquet\"}]".to_vec());
    let next = format!("{}{path}", server.address);
    server.state.lock().unwrap().next.insert(path.clone(), next);
    let asked = run_with(place.request("fineweb-edu", "out"), &client(&server.address));
    let message = asked.unwrap_err().to_string();
    assert!(message.contains("more than 100 pages; name a folder or a single file"), "{message}");
    assert_eq!(server.asked(&path).len(), 100);
}

/// Enough tokens: what is still on its way is given up, and nothing of it stays behind.
#[test]
fn enough_ends_downloads() {
    let place = Place::new("enough-shards");
    let server = Server::new();
    let (_, shards) = shards(&place);
    serve(&server, "sample/10BT", &shards);
    // The last shard never comes whole: whoever waited for it would fail.
    server.fault(&resolved("000_00010.parquet"), &[Fault::Cut(10); 99]);
    let mut request = twentieth(place.request("fineweb-edu", "out"));
    request.max_tokens = Some(100);
    run_with(request, &client(&server.address)).unwrap();
    assert!(place.path("out/train.bin").exists());
    assert!(!place.path("out/downloads").exists());
}
