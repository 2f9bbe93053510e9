//! `fitgpt train TEXT`: prepares the text, sizes a model, trains within the given time and samples.
//! The same command resumes an interrupted run; of a finished run it says how to train further.

use crate::fixture::{Ended, TempDir, document};
use std::time::Instant;

/// A text of some size with a pattern to learn.
fn story(sentences: usize) -> String {
    let names = ["Anna", "Ben", "Carla", "Dan"];
    let things = ["a cat", "two dogs", "the old house", "nothing"];
    let sentence = |at: usize| {
        let (name, thing) = (names[at * 7 % 4], things[at * 5 % 3 + at % 2]);
        format!("{name} saw {thing} on day {}.\n", at % 97)
    };
    (0..sentences).map(sentence).collect()
}

fn train(dir: &TempDir, arguments: &[&str]) -> Ended {
    dir.run(&[&["train"], arguments, &["--device=cpu"]].concat())
}

#[test]
fn a_text_becomes_a_model_and_a_sample_in_the_time_given() {
    let dir = TempDir::empty("own-text");
    dir.write("my book.txt", story(3000).as_bytes());
    let start = Instant::now();
    let ended = train(&dir, &["my book.txt", "--time", "8s"]).succeeded();
    let seconds = start.elapsed().as_secs_f64();
    assert!((4.0..16.0).contains(&seconds), "{seconds} s of 8 on a machine that others use too");
    for words in [
        "characters in data/my book (characters below 10.00 MB, GPT-2 tokens above)",
        "sized: ",
        "passes over the text",
        "validation loss ",
        "a sample of what it generates",
        "sample 'out-my book'",
    ] {
        assert!(ended.out.contains(words), "{words}: {}", ended.out);
    }
    let last = document(&dir.path("out-my book/last.safetensors"));
    assert_eq!(last["config"]["dataset"], "my book");

    // Again: it is done, and says what one may want next.
    let again = train(&dir, &["my book.txt"]).succeeded();
    for words in ["finished", "Generate text with:", "Train further with:", "Start over with:"] {
        assert!(again.out.contains(words), "{words}: {}", again.out);
    }
    // However the text is named.
    for name in ["./my book.txt", dir.path("my book.txt").to_str().unwrap()] {
        let again = train(&dir, &[name]).succeeded();
        assert!(again.out.contains("finished"), "{name}: {}", again.out);
    }
    let timed = train(&dir, &["data/my book", "--time=5s"]).succeeded();
    assert!(timed.out.contains("--time is ignored") && timed.out.contains("finished"));
    let further = again.out.lines().find(|line| line.contains("--max_iters=")).unwrap();
    assert!(further.contains("train 'my book.txt' --max_iters="), "{further}");
    let iterations = last["iteration"].as_u64().unwrap();
    let more = format!("--max_iters={}", iterations + 5);
    let longer = train(&dir, &["my book.txt", &more]).succeeded();
    assert!(longer.out.contains("Resuming training from out-my book"), "{}", longer.out);
    let last = document(&dir.path("out-my book/last.safetensors"));
    assert_eq!(last["iteration"].as_u64(), Some(iterations + 6));
    // Another text of the same name is not taken for this one.
    dir.write("other/my book.txt", b"something else entirely. ".repeat(500).as_slice());
    let moves = ["train 'data/my book'", "--overwrite"];
    train(&dir, &["other/my book.txt", "--out_dir=else"]).failed(4, &moves);
}

#[test]
fn a_folder_with_its_own_runs_in_it_is_trained_on_again() {
    let dir = TempDir::empty("own-dot");
    dir.write("a.txt", story(300).as_bytes());
    dir.write("b.txt", story(200).as_bytes());
    dir.write("figures.csv", b"day,price\n1,2\n");
    let short = [".", "--time=2s", "--max_iters=3", "--eval_iters=1", "--out_dir=out-here"];
    train(&dir, &short).succeeded();
    let again = train(&dir, &[".", "--max_iters=5", "--out_dir=out-here"]).succeeded();
    assert!(again.out.contains("Resuming training from out-here"), "{}", again.out);
}

#[test]
fn an_interrupted_run_is_resumed_by_the_same_command() {
    let dir = TempDir::empty("own-text-resume");
    dir.write("book.txt", story(2000).as_bytes());
    let keys = ["book.txt", "--time=30s", "--max_iters=100000", "--eval_interval=50"];
    let mut child = dir
        .command(&[&["train"], &keys[..], &["--device=cpu"]].concat())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    use std::io::{BufRead, BufReader};
    let output = BufReader::new(child.stdout.take().unwrap());
    let saved = output.lines().map_while(Result::ok).find(|line| line.starts_with("saving"));
    assert!(saved.is_some(), "it was saved at least once");
    std::thread::sleep(std::time::Duration::from_millis(200));
    child.kill().unwrap();
    child.wait().unwrap();
    let at = document(&dir.path("out-book/last.safetensors"))["iteration"].as_u64().unwrap();
    let end = format!("--max_iters={}", at + 3);
    let ended = train(&dir, &["book.txt", &end]).succeeded();
    assert!(ended.out.contains(&format!("Resuming training from out-book at {at}")));
}

#[test]
fn folders_and_data_sets_are_taken_too() {
    let dir = TempDir::new("own-folder");
    for part in 0..4 {
        dir.write(&format!("texts/{part}.txt"), story(400 + part).as_bytes());
    }
    let short = ["--max_iters=3", "--eval_iters=1", "--time", "3s"];
    let ended = train(&dir, &[&["texts"], &short[..]].concat()).succeeded();
    assert!(ended.out.contains("data: texts, "), "{}", ended.out);
    assert!(dir.path("out-texts/last.safetensors").exists());
    let ended = train(&dir, &[&["tiny"], &short[..]].concat()).succeeded();
    assert!(ended.out.contains("data: tiny, 3,000 training"), "{}", ended.out);
    assert!(dir.path("out-tiny/last.safetensors").exists());
    std::fs::rename(dir.path("data/tiny"), dir.path("elsewhere")).unwrap();
    train(&dir, &[&["./elsewhere/", "--out_dir=far"], &short[..]].concat()).succeeded();
    assert!(dir.path("far/last.safetensors").exists());
}

#[test]
fn keys_override_what_was_sized() {
    let dir = TempDir::empty("own-keys");
    dir.write("book.txt", story(500).as_bytes());
    let keys = ["--n_layer=1", "--n_head=1", "--n_embd=16", "--max_iters=4", "--eval_iters=1"];
    train(&dir, &[&["book.txt", "--time=2s"], &keys[..]].concat()).succeeded();
    let config = document(&dir.path("out-book/last.safetensors"))["config"].clone();
    assert_eq!((&config["n_layer"], &config["n_embd"]), (&1.into(), &16.into()));
    assert_eq!((&config["lr_decay_iters"], &config["learning_rate"]), (&4.into(), &0.004.into()));
    // Wrong keys are reported before the text is prepared.
    dir.write("large.txt", story(500).as_bytes());
    train(&dir, &["large.txt", "--n_leyer=4"]).failed(2, &["n_layer"]);
    train(&dir, &["large.txt", "--n_embd=65", "--n_head=2"]).failed(2, &["n_embd=65"]);
}

#[test]
fn arguments_that_make_no_run_are_refused() {
    let dir = TempDir::new("own-wrong");
    dir.write("book.txt", story(50).as_bytes());
    dir.write("tiny.txt", b"abc");
    dir.write("x.py", b"n_layer = 2\n");
    for (arguments, code, words) in [
        (&["book.txt", "x.py"][..], 2, &["book.txt", "x.py", "--dataset=NAME"][..]),
        (&["book.txt", "--dataset=tiny"], 2, &["leave out --dataset=tiny"]),
        (&["book.txt", "--checkpoint_format=ckpt"], 2, &["export --to ckpt"]),
        (&["book.txt", "--time", "10"], 2, &["--time '10'", "10min"]),
        (&["--time", "1h"], 2, &["fitgpt train book.txt"]),
        (&["tiny.txt"], 4, &["tiny"]),
        (&["missing.txt"], 2, &["'missing.txt' does not exist"]),
        (&["shakespeare"], 2, &["`fitgpt prepare shakespeare --out data/NAME`"]),
        (&["book.txt", "--tme", "1min"], 2, &["--tme"]),
    ] {
        train(&dir, arguments).failed(code, words);
    }
    // A folder of another run is left alone.
    dir.train(&["--out_dir=out-book", "--max_iters=2"]).succeeded();
    train(&dir, &["book.txt"])
        .failed(2, &["out-book holds a run on the data set 'tiny'", "--out_dir"]);
}
