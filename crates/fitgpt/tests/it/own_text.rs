//! `fitgpt train TEXT`: prepares, sizes, trains in the time it was given, samples; goes on when it
//! is repeated, and says how to go further when it is done.

use crate::fixture::{Ended, Place, document};
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

fn train(place: &Place, arguments: &[&str]) -> Ended {
    place.run(&[&["train"], arguments, &["--device=cpu"]].concat())
}

#[test]
fn a_text_becomes_a_model_and_a_sample_in_the_time_given() {
    let place = Place::empty("own-text");
    place.write("my book.txt", story(3000).as_bytes());
    let start = Instant::now();
    let ended = train(&place, &["my book.txt", "--time", "8s"]).succeeded();
    let seconds = start.elapsed().as_secs_f64();
    assert!((4.0..16.0).contains(&seconds), "{seconds} s of 8 on a machine that others use too");
    for words in [
        "characters in data/my book (characters below 10.00 MB, GPT-2 tokens above)",
        "sized: ",
        "passes over the text",
        "validation loss ",
        "what it writes",
        "sample '--out_dir=out-my book'",
    ] {
        assert!(ended.out.contains(words), "{words}: {}", ended.out);
    }
    let last = document(&place.path("out-my book/last.safetensors"));
    assert_eq!(last["config"]["dataset"], "my book");

    // Again: it is done, and says what one may want next.
    let again = train(&place, &["my book.txt"]).succeeded();
    for words in ["finished", "Generate text with:", "Go further with:", "Start over with:"] {
        assert!(again.out.contains(words), "{words}: {}", again.out);
    }
    // However the text is named.
    for name in ["./my book.txt", place.path("my book.txt").to_str().unwrap()] {
        let again = train(&place, &[name]).succeeded();
        assert!(again.out.contains("finished"), "{name}: {}", again.out);
    }
    let timed = train(&place, &["data/my book", "--time=5s"]).succeeded();
    assert!(timed.out.contains("--time is not used") && timed.out.contains("finished"));
    let further = again.out.lines().find(|line| line.contains("--max_iters=")).unwrap();
    assert!(further.contains("train 'my book.txt' --max_iters="), "{further}");
    let iterations = last["iteration"].as_u64().unwrap();
    let more = format!("--max_iters={}", iterations + 5);
    let longer = train(&place, &["my book.txt", &more]).succeeded();
    assert!(longer.out.contains("Resuming training from out-my book"), "{}", longer.out);
    let last = document(&place.path("out-my book/last.safetensors"));
    assert_eq!(last["iteration"].as_u64(), Some(iterations + 6));
    // Another text of the same name is not taken for this one.
    place.write("other/my book.txt", b"something else entirely. ".repeat(500).as_slice());
    let moves = ["train 'data/my book'", "--overwrite"];
    train(&place, &["other/my book.txt", "--out_dir=else"]).failed(4, &moves);
}

#[test]
fn a_folder_with_its_own_runs_in_it_is_trained_on_again() {
    let place = Place::empty("own-dot");
    place.write("a.txt", story(300).as_bytes());
    place.write("b.txt", story(200).as_bytes());
    place.write("figures.csv", b"day,price\n1,2\n");
    let short = [".", "--time=2s", "--max_iters=3", "--eval_iters=1", "--out_dir=out-here"];
    train(&place, &short).succeeded();
    let again = train(&place, &[".", "--max_iters=5", "--out_dir=out-here"]).succeeded();
    assert!(again.out.contains("Resuming training from out-here"), "{}", again.out);
}

#[test]
fn an_interrupted_run_is_resumed_by_the_same_command() {
    let place = Place::empty("own-text-resume");
    place.write("book.txt", story(2000).as_bytes());
    let keys = ["book.txt", "--time=30s", "--max_iters=100000", "--eval_interval=50"];
    let mut child = place
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
    let at = document(&place.path("out-book/last.safetensors"))["iteration"].as_u64().unwrap();
    let end = format!("--max_iters={}", at + 3);
    let ended = train(&place, &["book.txt", &end]).succeeded();
    assert!(ended.out.contains(&format!("Resuming training from out-book at {at}")));
}

#[test]
fn folders_and_data_sets_are_taken_too() {
    let place = Place::new("own-folder");
    for part in 0..4 {
        place.write(&format!("texts/{part}.txt"), story(400 + part).as_bytes());
    }
    let short = ["--max_iters=3", "--eval_iters=1", "--time", "3s"];
    let ended = train(&place, &[&["texts"], &short[..]].concat()).succeeded();
    assert!(ended.out.contains("data: texts, "), "{}", ended.out);
    assert!(place.path("out-texts/last.safetensors").exists());
    let ended = train(&place, &[&["tiny"], &short[..]].concat()).succeeded();
    assert!(ended.out.contains("data: tiny, 3,000 training"), "{}", ended.out);
    assert!(place.path("out-tiny/last.safetensors").exists());
    std::fs::rename(place.path("data/tiny"), place.path("elsewhere")).unwrap();
    train(&place, &[&["./elsewhere/", "--out_dir=far"], &short[..]].concat()).succeeded();
    assert!(place.path("far/last.safetensors").exists());
}

#[test]
fn keys_override_what_was_sized() {
    let place = Place::empty("own-keys");
    place.write("book.txt", story(500).as_bytes());
    let keys = ["--n_layer=1", "--n_head=1", "--n_embd=16", "--max_iters=4", "--eval_iters=1"];
    train(&place, &[&["book.txt", "--time=2s"], &keys[..]].concat()).succeeded();
    let config = document(&place.path("out-book/last.safetensors"))["config"].clone();
    assert_eq!((&config["n_layer"], &config["n_embd"]), (&1.into(), &16.into()));
    assert_eq!((&config["lr_decay_iters"], &config["learning_rate"]), (&4.into(), &0.004.into()));
    // Keys that are wrong are told before the text is prepared.
    place.write("large.txt", story(500).as_bytes());
    train(&place, &["large.txt", "--n_leyer=4"]).failed(2, &["n_layer"]);
    train(&place, &["large.txt", "--n_embd=65", "--n_head=2"]).failed(2, &["n_embd=65"]);
}

#[test]
fn what_makes_no_run_is_told() {
    let place = Place::new("own-wrong");
    place.write("book.txt", story(50).as_bytes());
    place.write("tiny.txt", b"abc");
    place.write("x.py", b"n_layer = 2\n");
    for (arguments, code, words) in [
        (&["book.txt", "x.py"][..], 2, &["book.txt", "x.py", "--dataset=NAME"][..]),
        (&["book.txt", "--dataset=tiny"], 2, &["leave out --dataset=tiny"]),
        (&["book.txt", "--time", "10"], 2, &["--time '10'", "10min"]),
        (&["--time", "1h"], 2, &["fitgpt train book.txt"]),
        (&["tiny.txt"], 4, &["tiny"]),
        (&["missing.txt"], 2, &["'missing.txt' does not exist"]),
        (&["shakespeare"], 2, &["`fitgpt prepare shakespeare --out data/NAME`"]),
        (&["book.txt", "--tme", "1min"], 2, &["--tme"]),
    ] {
        train(&place, arguments).failed(code, words);
    }
    // A folder of another run is left alone.
    place.train(&["--out_dir=out-book", "--max_iters=2"]).succeeded();
    train(&place, &["book.txt"])
        .failed(2, &["out-book holds a run on the data set 'tiny'", "--out_dir"]);
}
