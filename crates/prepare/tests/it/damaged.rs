//! Sources that are cut off, damaged or not what they seem: a clear word, or a counted repair.

use crate::fixture::{Place, documents, fails, gzip, jsonl, parquet, run, some, twentieth, zstd};
use ::parquet::basic::{Compression, ZstdLevel};

fn long_jsonl() -> Vec<u8> {
    jsonl(&documents(3000))
}

#[test]
fn packed_files_that_are_cut_or_damaged() {
    let place = Place::new("packed");
    let whole = zstd(&long_jsonl());
    let cut = place.write("cut.jsonl.zst", &whole[..whole.len() / 2]);
    fails(place.request(&cut, "a"), &["cut.jsonl.zst", "cut off or damaged", "get the file again"]);
    let mut bad = whole.clone();
    let middle = bad.len() / 2;
    bad[middle..middle + 200].fill(0x55);
    let bad = place.write("bad.jsonl.zst", &bad);
    fails(place.request(&bad, "b"), &["bad.jsonl.zst"]);
    let packed = gzip(&long_jsonl());
    let cut = place.write("cut.jsonl.gz", &packed[..packed.len() / 2]);
    fails(place.request(&cut, "c"), &["gzip data is cut off"]);
    // Once the file is whole, the same call goes on.
    place.write("cut.jsonl.zst", &whole);
    run(place.request(&cut.replace(".gz", ".zst"), "a")).unwrap();
}

#[test]
fn parquet_that_is_cut_damaged_or_without_the_column() {
    let place = Place::new("shards");
    let codec = Compression::ZSTD(ZstdLevel::default());
    parquet(&place.path("a.parquet"), &some(&documents(200)), codec);
    let whole = place.read("a.parquet");
    let cut = place.write("cut.parquet", &whole[..whole.len() / 2]);
    fails(place.request(&cut, "a"), &["cut.parquet", "cut off or damaged parquet"]);
    let mut bad = whole.clone();
    bad[2000..2600].fill(0xaa);
    let bad = place.write("bad.parquet", &bad);
    fails(place.request(&bad, "b"), &["bad.parquet"]);
    let good = place.path("a.parquet").to_str().unwrap().to_owned();
    let mut request = place.request(&good, "c");
    request.column = Some("content".to_owned());
    fails(request.clone(), &["no column 'content'", "it has: id, text", "--column"]);
    request.column = Some("id".to_owned());
    fails(request, &["column 'id' holds no text"]);
}

/// Of the codecs that the format names, LZO is the one that is not built in.
#[test]
fn parquet_in_an_unknown_packing_is_not_called_damaged() {
    let place = Place::new("lzo");
    parquet(&place.path("a.parquet"), &some(&documents(200)), Compression::SNAPPY);
    let mut bytes = place.read("a.parquet");
    let (column, codec) = (b"\x18\x04text\x15\x02", b"\x18\x04text\x15\x06");
    for at in 0..bytes.len() - column.len() {
        if bytes[at..].starts_with(column) {
            bytes[at..at + codec.len()].copy_from_slice(codec);
        }
    }
    let source = place.write("lzo.parquet", &bytes);
    let words = ["not supported", "LZO", "snappy or zstd"];
    fails(place.request(&source, "out"), &words);
    let message = run(place.request(&source, "out")).unwrap_err().to_string();
    assert!(!message.contains("damaged"), "{message}");
}

#[test]
fn lines_that_are_no_json() {
    let place = Place::new("lines");
    for (line, words) in [
        ("[1]", &["line 2 begins with '['"][..]),
        ("{\"a\": 1, \"b\": {}}", &["line 2 has no field 'text' (it has: a, b)", "--field"]),
        ("{\"text\": 5}", &["line 2 has no text in field 'text'"]),
        ("{\"text\": \"x", &["line 2 ends"]),
        ("{\"text\": \"x\\q\"}", &["has \\ before 'q'"]),
        ("{\"text\": \"x\" 1}", &["behind a value"]),
        ("{text: 1}", &["where a name belongs"]),
        ("{\"a\": ]}", &["has ']' in a value"]),
        ("{\"text\": \"\\u12g4\"}", &["bad \\u escape"]),
    ] {
        let source = place.write("a.jsonl", format!("{{\"text\": \"ok\"}}\n{line}").as_bytes());
        let _ = std::fs::remove_dir_all(place.path("out"));
        fails(place.request(&source, "out"), words);
    }
}

#[test]
fn what_is_no_utf8_is_replaced_and_counted() {
    let place = Place::new("utf8");
    let lines = b"{\"text\": \"first\"}\n\
        {\"text\": \"a\xff\xfeb \\ud83d\\ude00 \\ud83d \\udc00 \\ud83d\\n \xe2\x82\"}\n\
        {\"text\": null}\n\n\
        {\"id\": 3, \"text\": \"\"}\n";
    let source = place.write("a.jsonl", lines);
    let totals = run(twentieth(place.request(&source, "out"))).unwrap();
    assert_eq!((totals.replaced, totals.skipped, totals.train_documents), (6, 1, 2));
    let ids: Vec<u32> = place.ids("out/train.bin").into_iter().map(u32::from).collect();
    let text = tiktoken::encoding::gpt2().decode_to_string(&ids).unwrap();
    let r = char::REPLACEMENT_CHARACTER;
    let want = format!("a{r}{r}b \u{1f600} {r} {r} {r}\n {r}<|endoftext|><|endoftext|>");
    assert_eq!(text, want);
}

#[test]
fn texts_that_are_none() {
    let place = Place::new("none");
    let zeros = place.write("a.txt", b"a\0b");
    fails(place.request(&zeros, "out"), &["zero bytes"]);
    fails(place.request("nowhere.txt", "out"), &["is no file, folder", "tinystories"]);
    let empty = place.write("empty.txt", b"");
    fails(place.request(&empty, "out"), &["nothing is left for train"]);
    let one = place.write("one.jsonl", b"{\"text\": \"only one\"}");
    fails(place.request(&one, "out1"), &["nothing is left for train", "1 documents"]);
}
