//! The same documents give the same tokens, whatever they come in and however many work on them.

use crate::fixture::{
    Place, client, delta, documents, expected, gzip, jsonl, parquet, parquet_with, run, some,
    twentieth, zstd,
};
use ::parquet::basic::{BrotliLevel, Compression, Encoding, GzipLevel, ZstdLevel};
use fitgpt_prepare::{Client, Hub, Job};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

#[test]
fn every_format_gives_the_same_tokens() {
    let place = Place::new("formats");
    let documents = documents(300);
    let (train, val) = expected(&documents);
    let mut lines = jsonl(&documents);
    place.write("a.jsonl", &lines);
    place.write("a.jsonl.gz", &gzip(&lines));
    // Two frames, one after the other, as `cat` makes them.
    let half = lines.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let rest = lines.split_off(half);
    place.write("a.jsonl.zst", &[zstd(&lines), zstd(&rest)].concat());
    parquet(&place.path("a.parquet"), &some(&documents), Compression::SNAPPY);
    let zstd = Compression::ZSTD(ZstdLevel::default());
    parquet(&place.path("b.parquet"), &some(&documents), zstd);
    let brotli = Compression::BROTLI(BrotliLevel::default());
    let gzip_codec = Compression::GZIP(GzipLevel::default());
    let rarer =
        [("c", Compression::LZ4_RAW), ("d", brotli), ("e", Compression::LZ4), ("f", gzip_codec)];
    for (name, codec) in rarer {
        parquet(&place.path(&format!("{name}.parquet")), &some(&documents), codec);
    }
    for (name, encoding) in
        [("g", Encoding::DELTA_BYTE_ARRAY), ("h", Encoding::DELTA_LENGTH_BYTE_ARRAY)]
    {
        parquet_with(&place.path(&format!("{name}.parquet")), &some(&documents), delta(encoding));
    }
    for (index, text) in documents.iter().enumerate() {
        // A zero would make a file binary; documents in the other formats may have them.
        place.write(&format!("txt/d{index}.md.gz"), &gzip(text.as_bytes()));
    }
    for source in [
        "a.jsonl",
        "a.jsonl.gz",
        "a.jsonl.zst",
        "a.parquet",
        "b.parquet",
        "c.parquet",
        "d.parquet",
        "e.parquet",
        "f.parquet",
        "g.parquet",
        "h.parquet",
        "txt",
    ] {
        for workers in [1, 4] {
            let out = format!("{source}-{workers}");
            let from = place.path(source);
            let mut request = twentieth(place.request(from.to_str().unwrap(), &out));
            request.workers = workers;
            let totals = run(request).unwrap();
            assert_eq!(totals.train_documents + totals.val_documents, 300, "{source}");
            assert!(place.ids(&format!("{out}/train.bin")) == train, "{source}");
            assert!(place.ids(&format!("{out}/val.bin")) == val, "{source}");
        }
    }
}

#[test]
fn patterns_and_several_sources_go_in_order() {
    let place = Place::new("patterns");
    for name in ["c/x10.txt", "c/x9.txt", "c/deep/x1.txt", "c/.hidden.txt"] {
        place.write(name, name.as_bytes());
    }
    place.write("c/picture.png", b"\x89PNG");
    place.write("c/zeros.txt", b"a\0b");
    let pattern = place.path("c/x*.txt");
    let mut request = place.request(pattern.to_str().unwrap(), "pattern");
    run(request.clone()).unwrap();
    let text = |name: &str| {
        let ids: Vec<u32> = place.ids(name).into_iter().map(u32::from).collect();
        tiktoken::encoding::gpt2().decode_to_string(&ids).unwrap()
    };
    assert_eq!(text("pattern/val.bin") + &text("pattern/train.bin"), {
        "c/x9.txt<|endoftext|>c/x10.txt<|endoftext|>"
    });
    request.sources = vec![place.path("c").to_str().unwrap().to_owned()];
    request.out = place.path("folder");
    run(request).unwrap();
    assert_eq!(text("folder/val.bin"), "c/deep/x1.txt<|endoftext|>");
}

#[test]
fn enough_is_enough_at_the_end_of_a_document() {
    let place = Place::new("enough");
    let documents = documents(300);
    let (train, _) = expected(&documents);
    let source = place.write("a.jsonl", &jsonl(&documents));
    let mut request = twentieth(place.request(&source, "out"));
    request.max_tokens = Some(5000);
    let totals = run(request).unwrap();
    let found = place.ids("out/train.bin");
    assert!((5000..7000).contains(&found.len()), "{}", found.len());
    assert_eq!(found[..], train[..found.len()]);
    assert_eq!(found.last(), Some(&50256));
    assert_eq!(totals.train_tokens, found.len() as u64);
}

/// A folder may have millions of files: who asks to stop does not wait for the last of them.
#[test]
fn a_walk_ends_when_asked_to() {
    let place = Place::new("walk");
    place.write("c/a.txt", b"a few words");
    let hub = Hub { endpoint: "http://127.0.0.1:1".to_owned(), token: None };
    let stopped = Client::new(hub, Arc::new(AtomicBool::new(true)));
    for source in ["c", "c/*.txt"] {
        let request = place.request(place.path(source).to_str().unwrap(), "out");
        assert!(Job::new(request.clone(), &client("http://127.0.0.1:1")).is_ok());
        assert!(Job::new(request, &stopped).is_err(), "{source}");
    }
}
