//! Data sets that are not what their journal says: told, with what is missing and what to do.

use crate::fixture::{Place, by_characters, documents, jsonl, run, twentieth};
use fitgpt_prepare::{Request, Totals};

/// A made data set.
fn made(place: &Place) -> (Request, Totals) {
    let source = place.write("a.jsonl", &jsonl(&documents(50)));
    let request = by_characters(twentieth(place.request(&source, "out")));
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
    let place = Place::new("gone");
    let (mut request, totals) = made(&place);
    for name in ["val.bin", "meta.pkl"] {
        let kept = place.read(&format!("out/{name}"));
        std::fs::remove_file(place.path(&format!("out/{name}"))).unwrap();
        refused(&request, &[&format!("not whole: {name} is not there;"), "--overwrite"]);
        place.write(&format!("out/{name}"), &kept);
        assert_eq!(run(request.clone()).unwrap(), totals);
    }
    for name in ["train.bin", "val.bin"] {
        let kept = place.read(&format!("out/{name}"));
        for changed in [&kept[2..], &[&kept[..], b"ab"].concat()] {
            place.write(&format!("out/{name}"), changed);
            let sizes = format!("has {} bytes, but {} were written", changed.len(), kept.len());
            refused(&request, &[name, &sizes]);
        }
        place.write(&format!("out/{name}"), &kept);
    }
    // The advice works: both ways.
    std::fs::remove_file(place.path("out/val.bin")).unwrap();
    request.overwrite = true;
    assert_eq!(run(request.clone()).unwrap(), totals);
    request.overwrite = false;
    for name in ["out/val.bin", "out/train.bin", "out/prepare.json"] {
        std::fs::remove_file(place.path(name)).unwrap();
    }
    assert_eq!(run(request).unwrap(), totals);
}

/// Numbers that wrapped to 0 bytes and made an empty data set of it.
#[test]
fn a_journal_that_cannot_be_is_named_as_damaged() {
    let place = Place::new("journal");
    let (request, totals) = made(&place);
    let good: serde_json::Value = serde_json::from_slice(&place.read("out/prepare.json")).unwrap();
    for (field, value) in [
        ("train_tokens", 1_u64 << 63),
        ("val_tokens", 1 << 63),
        ("text_bytes", u64::MAX),
        ("train_tokens", totals.text_bytes + 1000),
        ("first_document", 1_000_000),
        ("source", 7),
    ] {
        std::fs::rename(place.path("out/train.bin"), place.path("out/train.bin.part")).unwrap();
        let mut journal = good.clone();
        journal[field] = value.into();
        journal["complete"] = false.into();
        place.write("out/prepare.json", journal.to_string().as_bytes());
        refused(&request, &["prepare.json: is damaged: it ", "remove it to begin anew"]);
        if value > 1 << 56 {
            refused(&request, &[&format!("it has {value} as {field},")]);
        }
        assert!(!place.path("out/train.bin").exists(), "{field}");
        std::fs::rename(place.path("out/train.bin.part"), place.path("out/train.bin")).unwrap();
    }
    let mut journal = good.clone();
    journal["batches"] = 99.into();
    journal["source"] = 0.into();
    journal["complete"] = false.into();
    std::fs::rename(place.path("out/train.bin"), place.path("out/train.bin.part")).unwrap();
    place.write("out/prepare.json", journal.to_string().as_bytes());
    refused(&request, &["is damaged", "99 batches of"]);
}
