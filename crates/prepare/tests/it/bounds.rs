//! Long documents, empty ones, and texts without a single space.

use crate::fixture::{TempDir, documents, jsonl, parquet, run, some, twentieth};
use ::parquet::basic::Compression;
use fitgpt_prepare::TokenizerChoice;

/// A document that is much longer than a piece still gives the tokens of the whole document.
#[test]
fn a_long_line_is_encoded_as_a_whole() {
    let dir = TempDir::new("long-line");
    let long = documents(2000).join(" ").replace('\n', " ");
    assert!(long.len() > 1_500_000, "{}", long.len());
    let whole: Vec<u32> = tiktoken::encoding::gpt2().encode(&long);
    let all = ["first".to_owned(), long, String::new(), "last".to_owned()];
    let lines = dir.write("a.jsonl", &jsonl(&all));
    parquet(&dir.path("a.parquet"), &some(&all), Compression::UNCOMPRESSED);
    let table = dir.path("a.parquet").to_str().unwrap().to_owned();
    for source in [lines, table] {
        let out = if source.ends_with('l') { "lines" } else { "table" };
        run(twentieth(dir.request(&source, out))).unwrap();
        let train = dir.ids(&format!("{out}/train.bin"));
        let train: Vec<u32> = train.into_iter().map(u32::from).collect();
        assert!(train[..whole.len()] == whole);
        // An empty document is only its end token, as in nanoGPT's script.
        assert_eq!(train[whole.len()..], [50256, 50256, 12957, 50256]);
    }
}

/// A word of a megabyte is split, always at the same positions, and decodes to itself.
#[test]
fn a_very_long_word_is_split() {
    let dir = TempDir::new("long-word");
    let word = "ab".repeat(500_000) + &"é".repeat(300_000) + &" ".repeat(300_000);
    let source = dir.write("a.txt", word.as_bytes());
    let mut found = Vec::new();
    for workers in [1, 3] {
        let out = format!("out{workers}");
        let mut request = dir.request(&source, &out);
        request.workers = workers;
        run(request).unwrap();
        let halves = ["train", "val"].map(|half| dir.ids(&format!("{out}/{half}.bin")));
        found.push(halves.concat());
    }
    assert_eq!(found[0], found[1]);
    let ids: Vec<u32> = found[0].iter().copied().map(u32::from).collect();
    assert!(tiktoken::encoding::gpt2().decode_to_string(&ids).unwrap() == word);
}

#[test]
fn a_second_call_finds_the_work_done() {
    let dir = TempDir::new("twice");
    let source = dir.write("a.txt", "word ".repeat(100).as_bytes());
    let first = run(dir.request(&source, "out")).unwrap();
    let modified = || dir.path("out/train.bin").metadata().unwrap().modified().unwrap();
    let before = modified();
    assert_eq!(run(dir.request(&source, "out")).unwrap(), first);
    assert_eq!(modified(), before);
    let mut other = dir.request(&source, "out");
    other.val = Some(0.5);
    let refused = run(other.clone()).unwrap_err().to_string();
    assert!(refused.contains("--overwrite"), "{refused}");
    other.overwrite = true;
    assert!(run(other).unwrap().val_tokens > first.val_tokens);
}

/// Without a server, and with a file that has no text.
#[test]
fn a_call_that_gets_no_text_leaves_the_data_set_alone() {
    let dir = TempDir::new("no-text");
    let source = dir.write("a.txt", "word ".repeat(100).as_bytes());
    run(dir.request(&source, "out")).unwrap();
    let names = ["train.bin", "val.bin", "prepare.json"].map(|name| format!("out/{name}"));
    let content = || names.each_ref().map(|name| std::fs::read(dir.path(name)).unwrap());
    let before = content();
    let nothing = dir.write("b.jsonl", b"{\"text\": null}\n{\"text\": null}\n");
    let absent = ["http://127.0.0.1:1/text.txt", "http://127.0.0.1:1/text.jsonl"];
    for unusable in [absent[0], absent[1], &nothing] {
        for tokenizer in [TokenizerChoice::Gpt2, TokenizerChoice::Char] {
            let mut request = dir.request(unusable, "out");
            (request.overwrite, request.tokenizer) = (true, Some(tokenizer.clone()));
            let error = run(request).unwrap_err();
            assert!(content() == before, "{unusable}, {tokenizer:?}: {error}");
        }
    }
    run(dir.request(absent[0], "new")).unwrap_err();
    for (folder, files) in [("out", names.len()), ("new", 0)] {
        let left: Vec<_> = std::fs::read_dir(dir.path(folder)).unwrap().collect();
        assert_eq!(left.len(), files, "{left:?}");
    }
}

#[test]
fn a_call_that_gets_no_text_leaves_an_unfinished_data_set_alone() {
    let dir = TempDir::new("no-text-unfinished");
    let source = dir.write("a.txt", "word ".repeat(100).as_bytes());
    let totals = run(dir.request(&source, "out")).unwrap();
    std::fs::rename(dir.path("out/train.bin"), dir.path("out/train.bin.part")).unwrap();
    let (journal, tokens) = (dir.read("out/prepare.json"), dir.read("out/train.bin.part"));
    run(dir.request("http://127.0.0.1:1/text.jsonl", "out")).unwrap_err();
    assert!(dir.read("out/prepare.json") == journal && dir.read("out/train.bin.part") == tokens);
    assert_eq!(run(dir.request(&source, "out")).unwrap(), totals);
    assert!(dir.read("out/train.bin") == tokens);
}

/// A kill between the last token and the last rename, with and without a limit on tokens.
#[test]
fn the_next_call_finishes_the_renames() {
    let dir = TempDir::new("names");
    let source = dir.write("a.jsonl", &jsonl(&documents(200)));
    for max_tokens in [None, Some(2000)] {
        let out = format!("out{max_tokens:?}");
        let mut request = twentieth(dir.request(&source, &out));
        request.max_tokens = max_tokens;
        let totals = run(request.clone()).unwrap();
        let file = |name: &str| dir.path(&format!("{out}/{name}"));
        let (train, val) = (std::fs::read(file("train.bin")), std::fs::read(file("val.bin")));
        std::fs::rename(file("train.bin"), file("train.bin.part")).unwrap();
        assert_eq!(run(request.clone()).unwrap(), totals);
        assert_eq!(std::fs::read(file("train.bin")).unwrap(), train.unwrap());
        assert_eq!(std::fs::read(file("val.bin")).unwrap(), val.unwrap());
    }
}
