//! User errors: one line that says what to do, the right exit code, nothing overwritten.

use crate::fixture::{Ended, TINY, TempDir, walk};
use requires::{Need, absent};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

#[test]
fn settings() {
    let dir = TempDir::new("bad-settings");
    dir.write("loop.py", b"for i in range(3):\n    pass\n");
    dir.write("typo.py", b"\nbatchsize = 3\n");
    dir.write("binary.py", &[0xff, 0xfe, 0x00]);
    let cases: &[(&[&str], &[&str])] = &[
        (&["--batchsize=3"], &["batchsize", "batch_size"]),
        (&["--batch_size"], &["--batch_size=value"]),
        (&["batch_size=3"], &["--batch_size=3"]),
        (&["--batch_size=many"], &["batch_size"]),
        (&["typo.py"], &["typo.py:2", "batch_size"]),
        (&["loop.py"], &["loop.py:1"]),
        (&["binary.py"], &["binary.py:1", "UTF-8"]),
        (&["none.py"], &["none.py", "No such file"]),
        (&["nothing.txt"], &["'nothing.txt' does not exist", ".py or .toml"]),
        (&["--n_embd=520", "--n_head=12"], &["n_embd=520", "n_head"]),
        (&["--start=x"], &["start", "sample"]),
        (&["--eval_iters=100000"], &["eval_iters", "65536"]),
    ];
    for (arguments, words) in cases {
        dir.run(&[&["train"], *arguments].concat()).failed(2, words);
    }
    dir.train(&["--device=cuda"]).failed(5, &["--device=cpu"]);
    let mut ranks = dir.command(&["train"]);
    let ended = Ended::from(ranks.env("WORLD_SIZE", "2").output().unwrap());
    ended.failed(2, &["WORLD_SIZE"]);
    assert!(!dir.path("out").exists(), "nothing was written");
}

#[test]
fn data_sets() {
    let dir = TempDir::new("bad-data");
    dir.run(&["train", "--dataset=openwebtext_local"]).failed(
        4,
        &[
            "data/openwebtext_local",
            "`fitgpt prepare openwebtext --out data/openwebtext_local` makes it",
        ],
    );
    let meta = dir.read("data/tiny/meta.pkl");
    let good = walk(1, 100, 20);
    dir.data_set("beyond", &[&good[..], &[40]].concat(), &good);
    dir.write("data/beyond/meta.pkl", &meta);
    dir.data_set("short", &good, &good[..16]);
    dir.write("data/short/meta.pkl", &meta);
    dir.data_set("odd", &good, &good);
    dir.write("data/odd/val.bin", b"abc");
    dir.data_set("empty", &good, &[]);
    dir.data_set("pickled", &good, &good);
    dir.write("data/pickled/meta.pkl", b"\x80\x04cos\nsystem\n");
    dir.write("data/half/train.bin", &[1, 0, 1, 0]);
    let cases: &[(&str, &[&str])] = &[
        ("beyond", &["data/beyond/train.bin", "40", "29", "100"]),
        ("short", &["data/short/val.bin", "block_size=16", "16 tokens"]),
        ("odd", &["data/odd/val.bin", "3 bytes"]),
        ("empty", &["data/empty/val.bin", "empty"]),
        ("pickled", &["data/pickled/meta.pkl"]),
        ("half", &["data/half", "val.bin"]),
    ];
    for (name, words) in cases {
        let dataset = format!("--dataset={name}");
        dir.train(&[&dataset]).failed(4, words);
    }
    assert!(!dir.path("out").exists(), "nothing was written");
}

#[test]
fn folders_and_checkpoints() {
    let dir = TempDir::new("bad-folders");
    let missing = "out does not exist; this folder holds no run: train a model with";
    dir.run(&["train", "--init_from=resume"]).failed(4, &[missing]);
    dir.write("file", b"");
    dir.train(&["--out_dir=file"]).failed(4, &["file"]);
    dir.train(&["--max_iters=10"]).succeeded();
    let before = dir.read("out/last.safetensors");
    let log = dir.read("out/log.jsonl");
    dir.train(&[]).failed(4, &["out already holds a run", "--init_from=resume", "--out_dir"]);
    let resume = |more: &[&str]| dir.run(&[&["train", "--init_from=resume"], more].concat());
    dir.data_set("other", &walk(1, 100, 20), &walk(1, 100, 20));
    resume(&["--dataset=other"]).failed(4, &["vocabulary of 29", "'other'", "50257"]);
    assert_eq!(dir.read("out/last.safetensors"), before);
    assert_eq!(dir.read("out/log.jsonl"), log);

    let damaged = |change: &dyn Fn(&mut Vec<u8>), words: &[&str]| {
        let mut bytes = before.clone();
        change(&mut bytes);
        dir.write("out/last.safetensors", &bytes);
        resume(&["--max_iters=20"]).failed(4, words);
        assert_eq!(dir.read("out/last.safetensors"), bytes, "it is left as it is");
    };
    damaged(&|bytes| bytes.truncate(bytes.len() - 5), &["last.safetensors", "truncated"]);
    damaged(&|bytes| *bytes.last_mut().unwrap() ^= 1, &["last.safetensors", "checksum"]);
    damaged(&|bytes| bytes.clear(), &["last.safetensors"]);
    damaged(
        &|bytes| {
            let at = bytes.windows(12).position(|w| w == b"checkpoint/1").unwrap();
            bytes[at + 11] = b'9';
        },
        &["last.safetensors", "fitgpt.checkpoint/9", "update fitgpt"],
    );
}

#[test]
fn a_folder_that_cannot_be_written() {
    let dir = TempDir::new("bad-unwritable");
    std::fs::create_dir(dir.path("locked")).unwrap();
    std::fs::set_permissions(dir.path("locked"), PermissionsExt::from_mode(0o555)).unwrap();
    if std::fs::write(dir.path("locked/probe"), b"").is_ok() {
        // Root may write everywhere; a folder below a file is refused to everybody.
        dir.write("file", b"");
        dir.train(&["--out_dir=file/below"]).failed(4, &["file/below"]);
        return absent(Need::User, "root may write everywhere");
    }
    dir.train(&["--out_dir=locked"]).failed(4, &["locked", "ermission"]);
    dir.train(&["--out_dir=locked/below"]).failed(4, &["locked/below", "ermission"]);
}

/// Two processes in one folder would overwrite each other's checkpoints.
#[test]
fn a_folder_in_which_another_process_trains() {
    let dir = TempDir::new("bad-busy");
    std::fs::create_dir(dir.path("out")).unwrap();
    let log = std::fs::File::create(dir.path("out/log.jsonl")).unwrap();
    log.lock().unwrap();
    dir.run(&[&["train"], TINY].concat()).failed(4, &["another process", "--out_dir"]);
}

/// Reading a pipe could wait forever, and a device never ends: both are refused at once.
#[test]
fn pipes_and_devices() {
    let dir = TempDir::new("bad-pipes");
    let pipe = |path: &str| {
        let path = dir.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = std::fs::remove_file(&path);
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    pipe("x.py");
    dir.run(&["train", "x.py"]).failed(2, &["x.py", "not a regular file"]);
    pipe("prompt");
    pipe("log/log.jsonl");
    dir.train(&["--out_dir=log"]).failed(4, &["log/log.jsonl", "not a regular file"]);
    dir.train(&["--max_iters=10"]).succeeded();
    let prompt = ["sample", "--out_dir=out", "--start=FILE:prompt"];
    dir.run(&prompt).failed(4, &["prompt", "not a regular file"]);
    for (file, name) in [("train.bin", "piped-train"), ("meta.pkl", "piped-meta")] {
        dir.data_set(name, &walk(1, 100, 20), &walk(1, 100, 20));
        pipe(&format!("data/{name}/{file}"));
        dir.train(&[&format!("--dataset={name}")]).failed(4, &[file, "a pipe or device"]);
    }
    dir.data_set("linked", &walk(1, 100, 20), &walk(1, 100, 20));
    std::os::unix::fs::symlink("/dev/zero", dir.path("data/linked/meta.pkl")).unwrap();
    dir.train(&["--dataset=linked"]).failed(4, &["meta.pkl", "a pipe or device"]);
    std::fs::remove_file(dir.path("data/linked/meta.pkl")).unwrap();
    std::os::unix::fs::symlink("nowhere", dir.path("data/linked/meta.pkl")).unwrap();
    dir.train(&["--dataset=linked"]).failed(4, &["meta.pkl", "No such file"]);
}

/// A run that does not fit is refused with exit code 3 and leaves no folder behind.
#[test]
fn batches_that_no_memory_holds() {
    let dir = TempDir::new("bad-memory");
    let huge = ["--gradient_accumulation_steps=65536", "--batch_size=20000000"];
    dir.train(&huge).failed(3, &["cannot allocate", "lower batch_size"]);
    assert!(!dir.path("out").exists());
}

/// Names with line feeds, names that are not UTF-8, a file where a folder belongs.
#[test]
fn odd_names() {
    let dir = TempDir::new("bad-names");
    dir.run(&["train", "--dataset=a\nb"]).failed(4, &["data/a b"]);
    dir.run(&["train", "--dataset=tiny/train.bin"]).failed(4, &["is a file: name its folder"]);
    let mut command = dir.command(&["train"]);
    command.arg(std::ffi::OsStr::from_bytes(b"--out_dir=n\xffx"));
    Ended::from(command.output().unwrap()).failed(2, &["not UTF-8"]);
}

/// The same size is not the same vocabulary.
#[test]
fn other_characters_under_the_same_ids() {
    let dir = TempDir::new("bad-characters");
    dir.train(&["--max_iters=10"]).succeeded();
    let ids = walk(1, 3000, 29);
    dir.data_set("shifted", &ids, &ids);
    let shifted: Vec<char> = ('A'..).take(29).collect();
    let meta = data::Meta::new(29, tokenizer::CharTokenizer::new(shifted));
    dir.write("data/shifted/meta.pkl", &meta.to_pickle());
    let resume = ["train", "--init_from=resume", "--max_iters=20", "--dataset=shifted"];
    dir.run(&resume).failed(4, &["'shifted'", "other text"]);
}
