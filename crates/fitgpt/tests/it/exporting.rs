//! A trained model for other programs.

use crate::fixture::{CHARACTERS, Ended, TempDir};
use checkpoint::SafetensorsFile;
use std::process::Stdio;
use std::time::Duration;

fn trained(name: &str) -> TempDir {
    let dir = TempDir::new(name);
    dir.train(&["--max_iters=10"]).succeeded();
    dir
}

fn export(dir: &TempDir, more: &[&str]) -> Ended {
    dir.run(&[&["export", "out"], more].concat())
}

#[test]
fn every_format_is_written_and_says_what_it_is() {
    let dir = trained("export");
    let ended = export(&dir, &["--to", "hf", "--out", "model"]).succeeded();
    assert!(ended.out.starts_with("out/best.safetensors: 0.03M parameters, iteration 10, "));
    assert!(ended.out.contains("1280 tokens seen, best val loss 3."), "{}", ended.out);
    assert!(ended.out.contains("\nwrote model: 1"), "{}", ended.out);
    assert!(ended.out.contains("\ntry it: python -c 'from transformers import"), "{}", ended.out);
    let file = SafetensorsFile::open(&dir.path("model/model.safetensors")).unwrap();
    assert_eq!(file.entries().len(), 2 + 2 * 12 + 2);
    let config: serde_json::Value = serde_json::from_slice(&dir.read("model/config.json")).unwrap();
    assert_eq!(config["vocab_size"], CHARACTERS.chars().count());
    assert_eq!(config["activation_function"], "gelu");
    let ended = export(&dir, &["--to=gguf", "--out=model.gguf", "--dtype=float16"]).succeeded();
    assert!(ended.out.contains("note: llama.cpp computes the tanh form of GELU"), "{}", ended.out);
    assert!(ended.out.contains(" kB, float16\ntry it: llama-"), "{}", ended.out);
    assert!(dir.read("model.gguf").starts_with(b"GGUF\x03\0\0\0"));
    let ended = export(&dir, &["--to=ckpt", "--out=ckpt.pt"]).succeeded();
    let trial = "try it: python sample.py --out_dir=. (it reads data/tiny/meta.pkl)\n";
    assert!(ended.out.ends_with(trial), "{}", ended.out);
    assert!(dir.read("ckpt.pt").starts_with(b"PK"));
    let ended = export(&dir, &["--to=native", "--out=copy.safetensors"]).succeeded();
    assert!(ended.out.ends_with(" sample copy.safetensors\n"), "{}", ended.out);
    assert_eq!(dir.read("copy.safetensors"), dir.read("out/best.safetensors"));
    // Every format leads back to the same text.
    let text = |name: &str| {
        let ended = dir.run(&["sample", name, "--num_samples=1", "--max_new_tokens=20"]);
        assert_eq!(ended.code, Some(0), "{}", ended.error);
        ended.out
    };
    let wanted = text("out");
    assert_eq!(
        [text("model"), text("copy.safetensors"), text("ckpt.pt")],
        [(); 3].map(|()| wanted.clone())
    );
    let names: Vec<_> =
        std::fs::read_dir(&dir.0).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().contains("tmp")), "{names:?}");
}

#[test]
fn what_exists_is_kept_unless_asked() {
    let dir = trained("export-existing");
    dir.write("model.gguf", b"mine");
    let advice = "give another --out, or add --overwrite to replace it";
    export(&dir, &["--to=gguf", "--out=model.gguf"]).failed(2, &["model.gguf exists", advice]);
    assert_eq!(dir.read("model.gguf"), b"mine");
    export(&dir, &["--to=gguf", "--out=model.gguf", "--overwrite"]).succeeded();
    assert!(dir.read("model.gguf").starts_with(b"GGUF"));
    dir.write("folder/thesis.txt", b"mine");
    let hf = ["--to=hf", "--out=folder/"];
    export(&dir, &hf).failed(2, &["folder exists already", advice]);
    export(&dir, &[&hf[..], &["--overwrite"]].concat()).failed(2, &["it holds \"thesis.txt\""]);
    export(&dir, &["--to=native", "--out=folder"]).failed(2, &["it is a folder"]);
    let standard_output = ["--to=gguf", "--out=-"];
    export(&dir, &standard_output).failed(2, &["not to standard output"]);
    let null = ["--to=gguf", "--out=/dev/null", "--overwrite"];
    export(&dir, &null).failed(2, &["it is a device or a pipe"]);
    std::fs::create_dir(dir.path("empty")).unwrap();
    export(&dir, &["--to=hf", "--out=empty"]).succeeded();
}

/// The example of `--help` writes into a folder that is not there yet. An export that fails leaves
/// no empty folders behind.
#[test]
fn folders_above_are_made() {
    let dir = trained("export-parents");
    for (to, out) in [("ckpt", "out-nanogpt/ckpt.pt"), ("hf", "a/b/model"), ("gguf", "a/c/x")] {
        export(&dir, &["--to", to, "--out", out]).succeeded();
        assert!(dir.path(out).exists(), "{out}");
    }
    dir.write("a/file", b"mine");
    export(&dir, &["--to=hf", "--out=a/file/b/model"]).failed(4, &["cannot create its folder"]);
    let arguments = ["export", "out", "--to=hf", "--out=d/e/model"];
    let output = dir.shell("ulimit -f 64; exec \"$0\" \"$@\"", &arguments).output().unwrap();
    Ended::from(output).failed(4, &["raise the limit"]);
    assert!(!dir.path("d").exists());
}

/// A run's own checkpoints are not replaced by what is exported; a file that an export wrote is.
#[test]
fn a_run_keeps_its_checkpoints() {
    let dir = trained("export-own");
    let before = dir.read("out/last.safetensors");
    for file in ["last", "best"] {
        let out = format!("--out=out/{file}.safetensors");
        let overwrite = ["--to=native", out.as_str(), "--overwrite"];
        export(&dir, &overwrite).failed(2, &[file, "a checkpoint of the run in that folder"]);
    }
    assert_eq!(dir.read("out/last.safetensors"), before);
    let ckpt = ["--to=ckpt", "--out=theirs/ckpt.pt"];
    export(&dir, &ckpt).succeeded();
    export(&dir, &ckpt).failed(2, &["theirs/ckpt.pt exists already", "--overwrite"]);
    export(&dir, &[&ckpt[..], &["--overwrite"]].concat()).succeeded();
    std::fs::copy(dir.path("theirs/ckpt.pt"), dir.path("out/ckpt.pt")).unwrap();
    let own = ["--to=ckpt", "--out=out/ckpt.pt", "--overwrite"];
    export(&dir, &own).failed(2, &["out/ckpt.pt", "a checkpoint of the run"]);
}

/// nanoGPT's file has no characters: every format takes them from the data set, as `sample` does.
#[test]
fn characters_of_a_ckpt_come_from_its_data_set() {
    let dir = trained("export-meta");
    export(&dir, &["--to=ckpt", "--out=a.pt"]).succeeded();
    let formats = ["hf", "gguf", "ckpt", "native"];
    let write = |to: &str, out: &str| dir.run(&["export", "a.pt", "--to", to, "--out", out]);
    for to in formats {
        let ended = write(to, &format!("with-{to}")).succeeded();
        assert!(ended.out.contains("\ntry it: "), "{to}: {}", ended.out);
    }
    assert!(String::from_utf8(dir.read("with-hf/tokenizer.json")).unwrap().contains("WordLevel"));
    let text = |name: &str| {
        dir.run(&["sample", name, "--num_samples=1", "--max_new_tokens=9", "--device=cpu"])
    };
    let (wanted, native) = (text("a.pt"), text("with-native"));
    assert_eq!((wanted.code, &wanted.out), (Some(0), &native.out), "{wanted:?}");
    // Without the data set, what cannot be known is said once, in the words of `sample`.
    std::fs::rename(dir.path("data"), dir.path("elsewhere")).unwrap();
    let why = "without the meta.pkl of its data set (data/tiny); run this in the folder in which";
    text("a.pt").failed(4, &[why]);
    for to in formats {
        let ended = write(to, &format!("without-{to}"));
        match to {
            "gguf" => drop(ended.failed(2, &[why, "a GGUF file needs a tokenizer"])),
            _ => {
                let out = ended.succeeded().out;
                assert!(out.contains(why) && !out.contains("try it"), "{to}: {out}");
            }
        }
    }
    assert_eq!(text("with-native").out, wanted.out);
    text("without-native").failed(4, &["exported without a tokenizer"]);
    text("without-hf").failed(4, &["it has no tokenizer.json, so its ids"]);
    // The native file has the characters, a ckpt.pt cannot.
    let ended = export(&dir, &["--to=ckpt", "--out=b.pt"]).succeeded();
    assert!(
        ended.out.contains("reads them from data/tiny/meta.pkl, which is not here"),
        "{ended:?}"
    );
    assert!(!ended.out.contains("try it"), "{ended:?}");
}

#[test]
fn other_gelus_are_named() {
    let dir = TempDir::new("export-gelu");
    dir.train(&["--max_iters=2", "--gelu=tanh"]).succeeded();
    let ended = export(&dir, &["--to=ckpt", "--out=a.pt"]).succeeded();
    assert!(ended.out.contains("note: nanoGPT computes the exact GELU"), "{}", ended.out);
    let ended = export(&dir, &["--to=gguf", "--out=a.gguf"]).succeeded();
    assert!(!ended.out.contains("GELU"), "{}", ended.out);
}

#[test]
fn wrong_flags_are_named() {
    let dir = TempDir::empty("export-flags");
    export(&dir, &["--out=x"]).failed(2, &["needs a format: --to hf, gguf, ckpt, native"]);
    export(&dir, &["--to=onnx", "--out=x"]).failed(2, &["--to has no value 'onnx'; it has hf"]);
    export(&dir, &["--to=hf"]).failed(2, &["needs a place to write to"]);
    let half = ["--to=native", "--out=x", "--dtype=float16"];
    export(&dir, &half).failed(2, &["a checkpoint of fitgpt keeps float32"]);
    let int = ["--to=hf", "--out=x", "--dtype=int8"];
    export(&dir, &int).failed(2, &["--dtype has no value 'int8'; it has float32, float16"]);
    dir.run(&["export", "--out_dir=out", "--to=hf", "--out=x"])
        .failed(2, &["give the folder alone: fitgpt export OUT_DIR"]);
    dir.run(&["export", "--to=hf", "--out=x"]).failed(2, &["export needs a checkpoint or a run"]);
}

#[test]
fn a_limit_on_file_sizes_is_named_before_anything_is_written() {
    let dir = trained("export-limit");
    for to in ["hf", "gguf", "native", "ckpt"] {
        let to = format!("--to={to}");
        let arguments = ["export", "out", &to, "--out=model"];
        let output = dir.shell("ulimit -f 64; exec \"$0\" \"$@\"", &arguments).output().unwrap();
        Ended::from(output).failed(4, &["model needs ", "`ulimit -f`", "raise the limit"]);
        assert!(!dir.path("model").exists(), "{to}");
    }
}

/// Whenever the signal arrives, the folder is there and complete, or nothing is.
#[test]
fn a_signal_leaves_nothing() {
    let dir = trained("export-signal");
    let mut child = dir
        .command(&["export", "out", "--to=hf", "--out=model"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(5));
    let pid = child.id().to_string();
    let _ = std::process::Command::new("kill").args(["-INT", &pid]).status();
    let code = child.wait().unwrap().code();
    let is_there = dir.path("model").exists();
    let left = std::fs::read_dir(&dir.0)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains(".tmp-"));
    assert_eq!(left.count(), 0, "{code:?}");
    assert_eq!(is_there, code == Some(0), "{code:?}");
}
