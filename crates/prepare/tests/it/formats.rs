//! The same documents give the same tokens in every format and with any number of threads.

use crate::fixture::{
    TempDir, client, delta, documents, expected, gzip, jsonl, parquet, parquet_with, run, some,
    twentieth, zstd,
};
use ::parquet::basic::{BrotliLevel, Compression, Encoding, GzipLevel, ZstdLevel};
use fitgpt_prepare::{Client, Hub, Job};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

#[test]
fn every_format_gives_the_same_tokens() {
    let dir = TempDir::new("formats");
    let documents = documents(300);
    let (train, val) = expected(&documents);
    let mut lines = jsonl(&documents);
    dir.write("a.jsonl", &lines);
    dir.write("a.jsonl.gz", &gzip(&lines));
    // Two concatenated frames.
    let half = lines.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let rest = lines.split_off(half);
    dir.write("a.jsonl.zst", &[zstd(&lines), zstd(&rest)].concat());
    parquet(&dir.path("a.parquet"), &some(&documents), Compression::SNAPPY);
    let zstd = Compression::ZSTD(ZstdLevel::default());
    parquet(&dir.path("b.parquet"), &some(&documents), zstd);
    let brotli = Compression::BROTLI(BrotliLevel::default());
    let gzip_codec = Compression::GZIP(GzipLevel::default());
    let rarer =
        [("c", Compression::LZ4_RAW), ("d", brotli), ("e", Compression::LZ4), ("f", gzip_codec)];
    for (name, codec) in rarer {
        parquet(&dir.path(&format!("{name}.parquet")), &some(&documents), codec);
    }
    for (name, encoding) in
        [("g", Encoding::DELTA_BYTE_ARRAY), ("h", Encoding::DELTA_LENGTH_BYTE_ARRAY)]
    {
        parquet_with(&dir.path(&format!("{name}.parquet")), &some(&documents), delta(encoding));
    }
    for (index, text) in documents.iter().enumerate() {
        // A zero byte would make a text file binary; documents in the other formats may have them.
        dir.write(&format!("txt/d{index}.md.gz"), &gzip(text.as_bytes()));
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
            let from = dir.path(source);
            let mut request = twentieth(dir.request(from.to_str().unwrap(), &out));
            request.workers = workers;
            let totals = run(request).unwrap();
            assert_eq!(totals.train_documents + totals.val_documents, 300, "{source}");
            assert!(dir.ids(&format!("{out}/train.bin")) == train, "{source}");
            assert!(dir.ids(&format!("{out}/val.bin")) == val, "{source}");
        }
    }
}

#[test]
fn patterns_and_several_sources_go_in_order() {
    let dir = TempDir::new("patterns");
    for name in ["c/x10.txt", "c/x9.txt", "c/deep/x1.txt", "c/.hidden.txt"] {
        dir.write(name, name.as_bytes());
    }
    dir.write("c/picture.png", b"\x89PNG");
    dir.write("c/zeros.txt", b"a\0b");
    let pattern = dir.path("c/x*.txt");
    let mut request = dir.request(pattern.to_str().unwrap(), "pattern");
    run(request.clone()).unwrap();
    let text = |name: &str| {
        let ids: Vec<u32> = dir.ids(name).into_iter().map(u32::from).collect();
        tiktoken::encoding::gpt2().decode_to_string(&ids).unwrap()
    };
    assert_eq!(text("pattern/val.bin") + &text("pattern/train.bin"), {
        "c/x9.txt<|endoftext|>c/x10.txt<|endoftext|>"
    });
    request.sources = vec![dir.path("c").to_str().unwrap().to_owned()];
    request.out = dir.path("folder");
    run(request).unwrap();
    assert_eq!(text("folder/val.bin"), "c/deep/x1.txt<|endoftext|>");
}

#[test]
fn enough_is_enough_at_the_end_of_a_document() {
    let dir = TempDir::new("enough");
    let documents = documents(300);
    let (train, _) = expected(&documents);
    let source = dir.write("a.jsonl", &jsonl(&documents));
    let mut request = twentieth(dir.request(&source, "out"));
    request.max_tokens = Some(5000);
    let totals = run(request).unwrap();
    let found = dir.ids("out/train.bin");
    assert!((5000..7000).contains(&found.len()), "{}", found.len());
    assert_eq!(found[..], train[..found.len()]);
    assert_eq!(found.last(), Some(&50256));
    assert_eq!(totals.train_tokens, found.len() as u64);
}

/// A folder may have millions of files, so listing them must be interruptible.
#[test]
fn a_walk_ends_when_asked_to() {
    let dir = TempDir::new("walk");
    dir.write("c/a.txt", b"a few words");
    let hub = Hub { endpoint: "http://127.0.0.1:1".to_owned(), token: None };
    let stopped = Client::new(hub, Arc::new(AtomicBool::new(true)));
    for source in ["c", "c/*.txt"] {
        let request = dir.request(dir.path(source).to_str().unwrap(), "out");
        assert!(Job::new(request.clone(), &client("http://127.0.0.1:1")).is_ok());
        assert!(Job::new(request, &stopped).is_err(), "{source}");
    }
}
