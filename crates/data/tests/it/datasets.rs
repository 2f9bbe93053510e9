//! Data sets in folders: both layouts, what is missing, and the command that makes it.

use crate::scratch::{Scratch, raw, shard};
use fitgpt_data::{DataError, Dataset, Meta, Split};
use std::path::Path;
use tokenizer::{CharTokenizer, Tokenizer};

fn message(dir: &Path) -> String {
    let message = Dataset::open(dir).unwrap_err().to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

#[test]
fn nanogpt_layout_with_characters() {
    let scratch = Scratch::new();
    let table = CharTokenizer::new(vec!['a', 'b', 'c']).unwrap();
    let meta = Meta::new(3, Some(table));
    scratch.write("tiny/train.bin", &raw(&[0, 1, 2, 0, 1, 2]));
    scratch.write("tiny/val.bin", &raw(&[2, 1, 3]));
    scratch.write("tiny/meta.pkl", &meta.to_pickle());
    let dataset = Dataset::open(&scratch.path().join("tiny")).unwrap();
    assert_eq!(dataset.name(), "tiny");
    assert_eq!(dataset.meta().unwrap().vocab_size, 3);
    assert_eq!(dataset.split(Split::Train).len(), 6);
    assert_eq!(dataset.tokenizer().unwrap().decode(&[2, 0, 1]), "cab");
    assert_eq!(dataset.floor(), None);
    // The vocabulary of meta.pkl is the limit.
    let error = dataset.split(Split::Val).read(0, &mut [0; 3]).unwrap_err();
    assert!(matches!(error, DataError::BeyondVocabulary { id: 3, token: 2, vocab_size: 3, .. }));
}

/// `meta.pkl` gives only a size: then the folder's tokenizer.json counts.
#[test]
fn a_tokenizer_json_beside_the_tokens() {
    let scratch = Scratch::new();
    let open = |vocab_size: u32, json: Option<&[u8]>| {
        scratch.write("own/train.bin", &raw(&[0, 1, 2]));
        scratch.write("own/val.bin", &raw(&[0, 1, 2]));
        scratch.write("own/meta.pkl", &Meta::new(vocab_size, None).to_pickle());
        if let Some(json) = json {
            scratch.write("own/tokenizer.json", json);
        }
        Dataset::open(&scratch.path().join("own")).unwrap().tokenizer()
    };
    assert!(open(50_257, None).unwrap_err().ends_with("there is no tokenizer.json"));
    let gpt2 = Tokenizer::Gpt2.to_json().unwrap().as_bytes();
    let found = open(50_257, Some(gpt2)).unwrap();
    assert_eq!(found.decode(&[15496, 995]), "Hello world");
    let why = open(50_256, Some(gpt2)).unwrap_err();
    assert_eq!(why, "tokenizer.json has 50257 ids, but meta.pkl says 50256");
    let why = open(50_257, Some(b"{}")).unwrap_err();
    assert!(why.starts_with("tokenizer.json splits words with 'none'"), "{why}");
    // Too large for a checkpoint: a long name that no text needs.
    let long = format!("\"vocab\":{{\"{}\":50257,", "中".repeat(2 << 20));
    let large = String::from_utf8_lossy(gpt2).replacen("\"vocab\":{", &long, 1);
    let why = open(50_258, Some(large.as_bytes())).unwrap_err();
    assert!(why.ends_with("bytes, but checkpoints keep at most 4194304"), "{why}");
}

#[test]
fn shards_by_name() {
    let scratch = Scratch::new();
    for (name, tokens) in [
        ("fineweb_train_000002.bin", vec![3, 4]),
        ("fineweb_train_000001.bin", vec![1, 2]),
        ("fineweb_val_000000.bin", vec![9; 10]),
        ("notes_train_1.txt", vec![7]),
    ] {
        scratch.write(&format!("fw/{name}"), &shard(&tokens));
    }
    let mut dataset = Dataset::open(&scratch.path().join("fw")).unwrap();
    let mut out = [0; 4];
    dataset.split(Split::Train).read(0, &mut out).unwrap();
    assert_eq!((out, dataset.split(Split::Val).len()), ([1, 2, 3, 4], 10));
    assert_eq!(dataset.tokenizer(), Ok(Tokenizer::Gpt2));
    dataset.set_vocab_size(4);
    assert!(dataset.split(Split::Train).read(3, &mut [0]).is_err());
}

#[test]
fn a_missing_data_set_names_what_makes_it() {
    let cases = [
        ("data/openwebtext_local", "openwebtext"),
        ("data/shakespeare_char", "shakespeare_char"),
        ("data/shakespeare", "shakespeare"),
        ("data/fineweb_edu10B", "fineweb-edu"),
        ("data/fineweb", "fineweb"),
        ("data/TinyStories", "tinystories"),
        ("data/mine", "TEXT"),
    ];
    for (dir, source) in cases {
        let message = message(Path::new(dir));
        let want = format!("{dir} does not exist: no train.bin or *_train_*.bin; ");
        let maker = format!("`fitgpt prepare {source} --out {dir}` makes it");
        assert_eq!(message, want + &maker + "; `fitgpt train TEXT` trains on a text of your own");
    }
}

#[test]
fn half_a_data_set_is_missing_the_other_half() {
    let scratch = Scratch::new();
    scratch.write("d/train.bin", &raw(&[1, 2]));
    let found = message(&scratch.path().join("d"));
    assert!(found.contains("d holds no val.bin or *_val_*.bin; `fitgpt prepare TEXT"), "{found}");
    scratch.write("d/val.bin", &[]);
    let found = message(&scratch.path().join("d"));
    assert!(found.contains("val.bin is empty"), "{found}");
}

#[test]
fn a_block_larger_than_the_file_names_both_numbers() {
    let scratch = Scratch::new();
    scratch.write("d/train.bin", &raw(&[1; 1000]));
    scratch.write("d/val.bin", &raw(&[1; 64]));
    let dataset = Dataset::open(&scratch.path().join("d")).unwrap();
    dataset.check_block_size(63).unwrap();
    let message = dataset.check_block_size(64).unwrap_err().to_string();
    let want = "val.bin has 64 tokens, but block_size=64 needs at least 65; lower block_size to 63";
    assert!(message.contains(want), "{message}");
    let message = dataset.check_block_size(u64::MAX).unwrap_err().to_string();
    assert!(message.contains("train.bin has 1000 tokens"), "{message}");
    scratch.write("d/val.bin", &raw(&[1]));
    let dataset = Dataset::open(&scratch.path().join("d")).unwrap();
    let message = dataset.check_block_size(64).unwrap_err().to_string();
    assert!(message.ends_with("needs at least 65; use more text"), "{message}");
}

#[test]
fn the_builtin_data_set_is_an_ordinary_one() {
    let dataset = Dataset::builtin();
    assert_eq!(dataset.name(), "builtin");
    let vocab_size = dataset.meta().unwrap().vocab_size;
    let tokenizer = dataset.tokenizer().unwrap();
    assert_eq!(tokenizer.vocab_size(), vocab_size);
    assert!(dataset.floor().unwrap() > 0.0);
    dataset.check_block_size(1024).unwrap();
    for split in [Split::Train, Split::Val] {
        let stream = dataset.split(split);
        let mut out = vec![0; 2000];
        stream.read(stream.len() - 2000, &mut out).unwrap();
        assert!(out.iter().all(|&id| (0..vocab_size as i32).contains(&id)));
        assert!(tokenizer.decode(&out).ends_with(".\n\n"));
    }
}
