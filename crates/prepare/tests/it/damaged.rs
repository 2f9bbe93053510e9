//! Sources that are truncated, damaged or not what they seem: a clear error, or a counted repair.

use crate::fixture::{TempDir, documents, fails, gzip, jsonl, parquet, run, some, twentieth, zstd};
use ::parquet::basic::{Compression, ZstdLevel};

fn long_jsonl() -> Vec<u8> {
    jsonl(&documents(3000))
}

#[test]
fn packed_files_that_are_cut_or_damaged() {
    let dir = TempDir::new("packed");
    let whole = zstd(&long_jsonl());
    let cut = dir.write("cut.jsonl.zst", &whole[..whole.len() / 2]);
    fails(dir.request(&cut, "a"), &["cut.jsonl.zst", "truncated or damaged", "get the file again"]);
    let mut bad = whole.clone();
    let middle = bad.len() / 2;
    bad[middle..middle + 200].fill(0x55);
    let bad = dir.write("bad.jsonl.zst", &bad);
    fails(dir.request(&bad, "b"), &["bad.jsonl.zst"]);
    let packed = gzip(&long_jsonl());
    let cut = dir.write("cut.jsonl.gz", &packed[..packed.len() / 2]);
    fails(dir.request(&cut, "c"), &["gzip data is truncated"]);
    // Once the file is complete, the same call resumes.
    dir.write("cut.jsonl.zst", &whole);
    run(dir.request(&cut.replace(".gz", ".zst"), "a")).unwrap();
}

#[test]
fn parquet_that_is_cut_damaged_or_without_the_column() {
    let dir = TempDir::new("shards");
    let codec = Compression::ZSTD(ZstdLevel::default());
    parquet(&dir.path("a.parquet"), &some(&documents(200)), codec);
    let whole = dir.read("a.parquet");
    let cut = dir.write("cut.parquet", &whole[..whole.len() / 2]);
    fails(dir.request(&cut, "a"), &["cut.parquet", "truncated or damaged parquet"]);
    let mut bad = whole.clone();
    bad[2000..2600].fill(0xaa);
    let bad = dir.write("bad.parquet", &bad);
    fails(dir.request(&bad, "b"), &["bad.parquet"]);
    let good = dir.path("a.parquet").to_str().unwrap().to_owned();
    let mut request = dir.request(&good, "c");
    request.column = Some("content".to_owned());
    fails(request.clone(), &["no column 'content'", "it has: id, text", "--column"]);
    request.column = Some("id".to_owned());
    fails(request, &["column 'id' holds no text"]);
}

/// LZO is the only codec of the format that is not built in.
#[test]
fn parquet_in_an_unknown_packing_is_not_called_damaged() {
    let dir = TempDir::new("lzo");
    parquet(&dir.path("a.parquet"), &some(&documents(200)), Compression::SNAPPY);
    let mut bytes = dir.read("a.parquet");
    let (column, codec) = (b"\x18\x04text\x15\x02", b"\x18\x04text\x15\x06");
    for at in 0..bytes.len() - column.len() {
        if bytes[at..].starts_with(column) {
            bytes[at..at + codec.len()].copy_from_slice(codec);
        }
    }
    let source = dir.write("lzo.parquet", &bytes);
    let words = ["unsupported", "LZO", "snappy or zstd"];
    fails(dir.request(&source, "out"), &words);
    let message = run(dir.request(&source, "out")).unwrap_err().to_string();
    assert!(!message.contains("damaged"), "{message}");
}

#[test]
fn lines_that_are_not_json() {
    let dir = TempDir::new("lines");
    for (line, words) in [
        ("[1]", &["line 2 begins with '['"][..]),
        ("{\"a\": 1, \"b\": {}}", &["line 2 has no field 'text' (it has: a, b)", "--field"]),
        ("{\"text\": 5}", &["line 2 has no text in field 'text'"]),
        ("{\"text\": \"x", &["line 2 ends"]),
        ("{\"text\": \"x\\q\"}", &["has \\ before 'q'"]),
        ("{\"text\": \"x\" 1}", &["after a value"]),
        ("{text: 1}", &["instead of a name"]),
        ("{\"a\": ]}", &["has ']' in a value"]),
        ("{\"text\": \"\\u12g4\"}", &["bad \\u escape"]),
    ] {
        let source = dir.write("a.jsonl", format!("{{\"text\": \"ok\"}}\n{line}").as_bytes());
        let _ = std::fs::remove_dir_all(dir.path("out"));
        fails(dir.request(&source, "out"), words);
    }
}

#[test]
fn what_is_no_utf8_is_replaced_and_counted() {
    let dir = TempDir::new("utf8");
    let lines = b"{\"text\": \"first\"}\n\
        {\"text\": \"a\xff\xfeb \\ud83d\\ude00 \\ud83d \\udc00 \\ud83d\\n \xe2\x82\"}\n\
        {\"text\": null}\n\n\
        {\"id\": 3, \"text\": \"\"}\n";
    let source = dir.write("a.jsonl", lines);
    let totals = run(twentieth(dir.request(&source, "out"))).unwrap();
    assert_eq!((totals.replaced, totals.skipped, totals.train_documents), (6, 1, 2));
    let ids: Vec<u32> = dir.ids("out/train.bin").into_iter().map(u32::from).collect();
    let text = tiktoken::encoding::gpt2().decode_to_string(&ids).unwrap();
    let r = char::REPLACEMENT_CHARACTER;
    let want = format!("a{r}{r}b \u{1f600} {r} {r} {r}\n {r}<|endoftext|><|endoftext|>");
    assert_eq!(text, want);
}

#[test]
fn files_that_are_not_text() {
    let dir = TempDir::new("none");
    let zeros = dir.write("a.txt", b"a\0b");
    fails(dir.request(&zeros, "out"), &["zero bytes"]);
    fails(dir.request("nowhere.txt", "out"), &["is not a file, folder", "tinystories"]);
    let empty = dir.write("empty.txt", b"");
    fails(dir.request(&empty, "out"), &["no text for train"]);
    let one = dir.write("one.jsonl", b"{\"text\": \"only one\"}");
    fails(dir.request(&one, "out1"), &["no text for train", "1 documents"]);
}
