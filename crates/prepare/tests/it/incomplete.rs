//! Data sets that do not match their journal: the error says what is missing and what to do.

use crate::fixture::{TempDir, by_characters, documents, jsonl, run, twentieth};
use fitgpt_prepare::{Request, Totals};

/// Makes a data set.
fn made(dir: &TempDir) -> (Request, Totals) {
    let source = dir.write("a.jsonl", &jsonl(&documents(50)));
    let request = by_characters(twentieth(dir.request(&source, "out")));
    let totals = run(request.clone()).unwrap();
    (request, totals)
}

#[track_caller]
fn refused(request: &Request, words: &[&str]) {
    let message = run(request.clone()).unwrap_err().to_string();
    for word in words {
        assert!(message.contains(word), "{word:?} in {message}");
    }
}

#[test]
fn a_file_that_is_gone_or_changed_is_named() {
    let dir = TempDir::new("gone");
    let (mut request, totals) = made(&dir);
    for name in ["val.bin", "meta.pkl"] {
        let kept = dir.read(&format!("out/{name}"));
        std::fs::remove_file(dir.path(&format!("out/{name}"))).unwrap();
        refused(&request, &[&format!("incomplete: {name} is missing;"), "--overwrite"]);
        dir.write(&format!("out/{name}"), &kept);
        assert_eq!(run(request.clone()).unwrap(), totals);
    }
    for name in ["train.bin", "val.bin"] {
        let kept = dir.read(&format!("out/{name}"));
        for changed in [&kept[2..], &[&kept[..], b"ab"].concat()] {
            dir.write(&format!("out/{name}"), changed);
            let sizes = format!("has {} bytes, but should have {}", changed.len(), kept.len());
            refused(&request, &[name, &sizes]);
        }
        dir.write(&format!("out/{name}"), &kept);
    }
    // Both ways that the message suggests work.
    std::fs::remove_file(dir.path("out/val.bin")).unwrap();
    request.overwrite = true;
    assert_eq!(run(request.clone()).unwrap(), totals);
    request.overwrite = false;
    for name in ["out/val.bin", "out/train.bin", "out/prepare.json"] {
        std::fs::remove_file(dir.path(name)).unwrap();
    }
    assert_eq!(run(request).unwrap(), totals);
}

/// Counts that once overflowed to 0 bytes and produced an empty data set.
#[test]
fn a_journal_that_cannot_be_is_named_as_damaged() {
    let dir = TempDir::new("journal");
    let (request, totals) = made(&dir);
    let good: serde_json::Value = serde_json::from_slice(&dir.read("out/prepare.json")).unwrap();
    for (field, value) in [
        ("train_tokens", 1_u64 << 63),
        ("val_tokens", 1 << 63),
        ("text_bytes", u64::MAX),
        ("train_tokens", totals.text_bytes + 1000),
        ("first_document", 1_000_000),
        ("source", 7),
    ] {
        std::fs::rename(dir.path("out/train.bin"), dir.path("out/train.bin.part")).unwrap();
        let mut journal = good.clone();
        journal[field] = value.into();
        journal["complete"] = false.into();
        dir.write("out/prepare.json", journal.to_string().as_bytes());
        refused(&request, &["prepare.json: is damaged: it", "remove it to start over"]);
        if value > 1 << 56 {
            refused(&request, &[&format!("its {field} is {value},")]);
        }
        assert!(!dir.path("out/train.bin").exists(), "{field}");
        std::fs::rename(dir.path("out/train.bin.part"), dir.path("out/train.bin")).unwrap();
    }
    let mut journal = good.clone();
    journal["batches"] = 99.into();
    journal["source"] = 0.into();
    journal["complete"] = false.into();
    std::fs::rename(dir.path("out/train.bin"), dir.path("out/train.bin.part")).unwrap();
    dir.write("out/prepare.json", journal.to_string().as_bytes());
    refused(&request, &["is damaged", "99 batches of"]);
}
