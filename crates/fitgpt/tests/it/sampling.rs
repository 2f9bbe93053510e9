//! Text from a trained model.

use crate::fixture::{CHARACTERS, TINY, TempDir};
use tokenizer::Tokenizer;

fn trained(name: &str) -> TempDir {
    let dir = TempDir::new(name);
    dir.train(&["--max_iters=10"]).succeeded();
    dir
}

/// Text on standard output, everything else on standard error.
fn text(dir: &TempDir, more: &[&str]) -> String {
    let arguments = [&["sample", "--num_samples=2", "--max_new_tokens=40"], more].concat();
    let ended = dir.run(&arguments);
    assert_eq!(ended.code, Some(0), "{}", ended.error);
    assert!(ended.error.contains("safetensors"), "{}", ended.error);
    ended.out
}

#[test]
fn samples_have_the_prompt_and_nanogpts_line() {
    let dir = trained("sample");
    let out = text(&dir, &["--start=once upon"]);
    let samples: Vec<&str> = out.split("\n---------------\n").collect();
    assert_eq!((samples.len(), samples[2]), (3, ""));
    for sample in &samples[..2] {
        assert!(sample.starts_with("once upon"), "{sample}");
        assert_eq!(sample.chars().count(), "once upon".len() + 40);
        assert!(sample.chars().all(|character| CHARACTERS.contains(character)));
    }
    assert_ne!(samples[0], samples[1]);
    assert_eq!(out, text(&dir, &["--start=once upon"]), "the same seed, the same text");
    assert_ne!(out, text(&dir, &["--start=once upon", "--seed=7"]));
}

#[test]
fn a_prompt_may_be_a_file_and_out_dir_a_checkpoint() {
    let dir = trained("sample-file");
    dir.write("prompt.txt", b"a long prompt which is longer than the context of the model.\n");
    let out = text(&dir, &["--start=FILE:prompt.txt", "--out_dir=out/last.safetensors"]);
    assert!(out.starts_with("a long prompt which is longer than"), "{out}");
    std::fs::remove_dir_all(dir.path("data")).unwrap();
    text(&dir, &["--start=no data set is needed"]);
}

#[test]
fn wrong_prompts_are_named() {
    let dir = trained("sample-wrong");
    dir.run(&["sample", "--out_dir=out", "--start=one Two"]).failed(2, &["'T'", "position 4"]);
    dir.run(&["sample", "--out_dir=out", "--start="]).failed(2, &["prompt is empty"]);
    dir.run(&["sample", "--out_dir=out", "--start=FILE:none.txt"]).failed(4, &["none.txt"]);
    dir.run(&["sample", "--out_dir=out", "--temperature=-1"]).failed(2, &["temperature"]);
    dir.run(&["sample", "out", "--stop="]).failed(2, &["--stop needs a text"]);
}

/// Who stops reading has read enough; a full disk is another matter.
#[test]
fn output_that_cannot_be_written() {
    let dir = trained("sample-output");
    let arguments = ["sample", "--num_samples=1", "--max_new_tokens=40"];
    if let Ok(full) = std::fs::File::options().write(true).open("/dev/full") {
        let output = dir.command(&arguments).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(
            String::from_utf8_lossy(&output.stderr)
                .contains("error: cannot write to standard output")
        );
    }
    let mut child = dir
        .command(&["sample", "--num_samples=1000000", "--max_new_tokens=40"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Towards 0 the likeliest token is taken every time.
#[test]
fn a_tiny_temperature_is_greedy() {
    let dir = trained("sample-cold");
    let cold = |temperature: &str| text(&dir, &["--start=abc", temperature]);
    assert_eq!(cold("--temperature=1e-50"), cold("--temperature=1e-6"));
    assert_eq!(cold("--temperature=0"), cold("--temperature=1e-6"));
}

/// The checkpoint may be the argument; top-p narrows the choice; a stop text is not written.
#[test]
fn checkpoints_by_name_and_new_settings() {
    let dir = trained("sample-stop");
    let by_key = text(&dir, &["--start=abc", "--out_dir=out/best.safetensors"]);
    assert_eq!(by_key, text(&dir, &["out/best.safetensors", "--start=abc"]));
    assert_eq!(by_key, text(&dir, &["out", "--start=abc", "--top_p=1.0"]));
    let greedy = text(&dir, &["out", "--start=abc", "--temperature=0"]);
    assert_eq!(greedy, text(&dir, &["out", "--start=abc", "--top_p=1e-9"]));
    let sample = by_key.split("\n---------------\n").next().unwrap();
    // Two characters are two tokens here.
    let (at, stop) = (20, &sample[20..22]);
    let first = sample[3..].find(stop).unwrap() + 3;
    assert!(first <= at);
    let stopped = text(&dir, &["out", "--start=abc", "--stop", stop, "--stop=unseen"]);
    assert!(stopped.starts_with(&format!("{}\n---------------\n", &sample[..first])), "{stopped}");
}

/// `prepare` keeps the tokenizer.json, the checkpoint has its vocabulary, `sample` needs neither.
#[test]
fn a_tokenizer_json_is_encoded_and_decoded() {
    let dir = TempDir::empty("sample-json");
    let json = Tokenizer::Gpt2.to_json().unwrap().replace("<|endoftext|>", "<eos>");
    dir.write("tokenizer.json", json.as_bytes());
    dir.write("book.txt", "The quick brown fox, naïve and 中文. ".repeat(60).as_bytes());
    let prepare = ["prepare", "book.txt", "--out", "data/own", "--tokenizer", "tokenizer.json"];
    assert_eq!(dir.run(&prepare).code, Some(0));
    let more = ["--dataset=own", "--n_embd=8", "--n_layer=1", "--max_iters=2", "--eval_iters=1"];
    dir.run(&[&["train"], TINY, &more].concat()).succeeded();
    std::fs::remove_dir_all(dir.path("data")).unwrap();
    let out = text(&dir, &["--start=fox<eos> 中文"]);
    let samples: Vec<&str> = out.split("\n---------------\n").collect();
    assert!(samples[..2].iter().all(|text| text.starts_with("fox<eos> 中文")), "{out}");
}
