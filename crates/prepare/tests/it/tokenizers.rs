//! A tokenizer.json makes the data set's files.

use crate::fixture::{TempDir, documents, expected, fails, jsonl, run, twentieth};
use fitgpt_prepare::TokenizerChoice;
use serde_json::{Value, json};
use tokenizer::Tokenizer;

/// GPT-2's vocabulary as Hugging Face writes it.
fn gpt2_json() -> Value {
    serde_json::from_str(Tokenizer::Gpt2.to_json().unwrap()).unwrap()
}

#[test]
fn a_tokenizer_json_is_followed() {
    let dir = TempDir::new("json");
    let documents = documents(100);
    let source = dir.write("a.jsonl", &jsonl(&documents));
    let mut file = gpt2_json();
    let path = dir.write("tokenizer.json", file.to_string().as_bytes());
    let mut request = twentieth(dir.request(&source, "out"));
    request.tokenizer = Some(TokenizerChoice::Json(path.clone().into()));
    run(request.clone()).unwrap();
    assert!(dir.ids("out/train.bin") == expected(&documents).0);
    let meta = data::Meta::read(&dir.path("out/meta.pkl")).unwrap();
    assert_eq!(meta.vocab_size, 50257);
    assert_eq!(dir.read("out/tokenizer.json"), dir.read("tokenizer.json"));

    // The tokenizer of the data set that is replaced.
    let (tokens, own) = (dir.read("out/train.bin"), dir.read("out/tokenizer.json"));
    request.tokenizer = Some(TokenizerChoice::Json(dir.path("out/tokenizer.json")));
    request.overwrite = true;
    run(request.clone()).unwrap();
    assert!(dir.read("out/train.bin") == tokens && dir.read("out/tokenizer.json") == own);
    request.tokenizer = Some(TokenizerChoice::Gpt2);
    run(request.clone()).unwrap();
    assert!(!dir.path("out/tokenizer.json").exists() && !dir.path("out/meta.pkl").exists());
    request.tokenizer = Some(TokenizerChoice::Json(path.clone().into()));

    file["model"]["vocab"]["too far"] = json!(65536);
    let mut unigram = gpt2_json();
    unigram["model"]["type"] = json!("Unigram");
    let mut lower = gpt2_json();
    lower["normalizer"] = json!({"type": "Lowercase"});
    let mut digits = gpt2_json();
    digits["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": []});
    for (file, words) in [
        (file, "token 'too far' has id 65536"),
        (unigram, "is a Unigram tokenizer"),
        (lower, "normalises text"),
        (digits, "splits words with 'Sequence'"),
        (json!([]), "is not a tokenizer.json"),
    ] {
        std::fs::write(&path, file.to_string()).unwrap();
        request.out = dir.path("refused");
        let _ = std::fs::remove_dir_all(&request.out);
        let words =
            if words == "is not a tokenizer.json" { "splits words with 'none'" } else { words };
        fails(request.clone(), &[words]);
    }
}
