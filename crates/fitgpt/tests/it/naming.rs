//! What the name of a model means: one rule for `sample`, `eval`, `export` and `init_from`.

use crate::fixture::{Ended, TempDir};

/// Runs in `out-book` and `out-poems`, a model of Hugging Face's in `my-model`.
fn folder(name: &str) -> TempDir {
    let dir = TempDir::new(name);
    dir.train(&["--max_iters=3", "--out_dir=out-book"]).succeeded();
    dir.train(&["--max_iters=3", "--out_dir=out-poems"]).succeeded();
    dir.run(&["export", "out-book", "--to=hf", "--out=my-model"]).succeeded();
    dir
}

/// The three commands that take a name.
fn read(dir: &TempDir, command: &str, more: &[&str]) -> Ended {
    let rest: &[&str] = match command {
        "sample" => &["--num_samples=1", "--max_new_tokens=5", "--device=cpu"],
        "eval" => &["--device=cpu"],
        _ => &["--to=hf", "--out=new", "--overwrite"],
    };
    dir.run(&[&[command], more, rest].concat())
}

#[test]
fn a_mistyped_name_is_answered_with_the_one_that_was_meant() {
    let dir = folder("names-wrong");
    for (name, want) in [
        ("out-bok", "out-bok does not exist; did you mean out-book?"),
        ("my-modle", "my-modle does not exist; did you mean my-model?"),
        ("out-book/lst.safetensors", "did you mean out-book/last.safetensors?"),
        ("out_bok/last.safetensors", "did you mean out-book/last.safetensors?"),
        ("gpt2-medum", "gpt2-medum does not exist; did you mean gpt2-medium?"),
        ("quite-another", "quite-another does not exist; runs in this folder: out-poems, out-book"),
        ("data", "data holds no checkpoint (last.safetensors, best.safetensors or nanoGPT's"),
        ("./", "holds no checkpoint"),
        ("./nothing", "./nothing does not exist; runs in .: ./out-poems, ./out-book"),
    ] {
        for command in ["sample", "eval", "export"] {
            read(&dir, command, &[name]).failed(4, &[want]);
        }
        let init = format!("--init_from={name}");
        dir.train(&[&init, "--out_dir=new"]).failed(4, &[name]);
    }
    dir.train(&["--init_from=my-modle", "--out_dir=new"])
        .failed(4, &["init_from='my-modle' does not exist; did you mean my-model?"]);
    dir.run(&["train", "--init_from=resume", "--out_dir=out-bok"])
        .failed(4, &["out-bok does not exist; did you mean out-book?"]);
    read(&dir, "sample", &["--out_dir=out-bok"]).failed(4, &["did you mean out-book?"]);
    let endless = "x".repeat(5000);
    read(&dir, "sample", &[&endless]).failed(4, &["cannot be read: File name too long"]);
    for command in ["sample", "eval", "export"] {
        read(&dir, command, &[""]).failed(2, &["the name of the model is empty"]);
    }
}

#[test]
fn two_names_at_once_are_both_named() {
    let dir = folder("names-two");
    for (command, other, want) in [
        ("sample", "--out_dir=out-poems", "'out-book' and --out_dir=out-poems name two models"),
        ("sample", "--init_from=my-model", "'out-book' and --init_from=my-model name two"),
        ("sample", "out-poems", "'out-book' and 'out-poems' name two models"),
        ("eval", "--out_dir=out-poems", "'out-book' and --out_dir=out-poems name two models"),
        ("eval", "--init_from=gpt2", "'out-book' and --init_from=gpt2 name two models"),
        ("eval", "my-model", "'out-book' and 'my-model' name two models"),
        ("export", "my-model", "'out-book' and 'my-model' name two models"),
    ] {
        read(&dir, command, &["out-book", other]).failed(2, &[want]);
    }
    let apart = ["out-book", "--temperature", "0.5"];
    read(&dir, "sample", &apart).failed(2, &["write --temperature=value"]);
    // nanoGPT's words beside a name are no second one, and a config file gives way.
    dir.write("mine.py", b"out_dir = 'out-poems'\ninit_from = 'gpt2'\n");
    for more in [&["--init_from=resume"][..], &["mine.py"]] {
        let ended = read(&dir, "sample", &[&["out-book"], more].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.error.contains("out-book/last.safetensors"), "{}", ended.error);
    }
}

/// A file of a Hugging Face folder means the folder, and nothing is said that is not so.
#[test]
fn models_of_other_programs_by_name() {
    let dir = folder("names-other");
    let text = |name: &str| {
        let ended = read(&dir, "sample", &[name]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended
    };
    let wanted = text("out-book").out;
    for name in ["my-model", "my-model/model.safetensors", "--init_from=my-model"] {
        let Ended { out, error, .. } = text(name);
        assert_eq!(out, wanted, "{name}");
        assert!(!error.contains("iterations") && !error.contains("newest"), "{name}: {error}");
    }
    let help = dir.run(&["sample", "--help"]).succeeded().out;
    assert!(help.contains("gpt2-xl") && !help.contains("scratch"), "{help}");
}

/// Any checkpoint can be fine-tuned: its weights, a new optimizer, from iteration 0.
#[test]
fn init_from_takes_a_file() {
    let dir = folder("names-files");
    dir.run(&["export", "out-book", "--to=ckpt", "--out=a.pt"]).succeeded();
    dir.run(&["export", "out-book", "--to=native", "--out=b.safetensors"]).succeeded();
    let first = |name: &str, moments: bool| {
        let (init, out) = (format!("--init_from={name}"), format!("--out_dir={name}-new"));
        let ended = dir.train(&[&init, &out.replace('/', "-"), "--max_iters=1"]).succeeded();
        assert!(ended.out.contains(&format!("Initializing from {name}\n")), "{}", ended.out);
        let said = "only its weights are used: a new optimizer, from iteration 0";
        assert_eq!(ended.out.contains(said), moments, "{}", ended.out);
        ended.lines("iter 0: ")[0].split(',').next().unwrap().to_owned()
    };
    let wanted = first("out-book/last.safetensors", true);
    assert_eq!(first("a.pt", true), wanted);
    assert_eq!(first("b.safetensors", true), wanted);
    assert_eq!(first("my-model/model.safetensors", false), wanted);
}
