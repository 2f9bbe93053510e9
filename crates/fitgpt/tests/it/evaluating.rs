//! `eval`: the loss of a checkpoint on data sets, files and texts.

use crate::fixture::{CHARACTERS, Ended, TempDir};
use serde_json::Value;

fn trained(name: &str) -> TempDir {
    let dir = TempDir::new(name);
    dir.train(&["--max_iters=10"]).succeeded();
    dir
}

fn document(ended: Ended) -> Value {
    assert_eq!(ended.code, Some(0), "{}", ended.error);
    serde_json::from_str(&ended.out).unwrap()
}

fn eval(dir: &TempDir, more: &[&str]) -> Value {
    document(dir.run(&[&["eval", "out", "--json", "--device=cpu"], more].concat()))
}

#[test]
fn a_split_a_token_file_and_a_text_have_one_loss() {
    let dir = trained("eval-forms");
    let split = eval(&dir, &[]);
    assert_eq!(
        (&split["split"], &split["mode"], &split["data"]),
        (&"val".into(), &"whole".into(), &"tiny".into())
    );
    assert_eq!((&split["tokens"], &split["partial"]), (&2999.into(), &false.into()));
    assert!(split["checkpoint"].as_str().unwrap().ends_with("best.safetensors"));
    let loss = split["loss"].as_f64().unwrap();
    assert!((split["perplexity"].as_f64().unwrap().ln() - loss).abs() < 1e-9);
    // One byte per character.
    let bits = split["bits_per_byte"].as_f64().unwrap();
    assert!((bits - loss / std::f64::consts::LN_2).abs() < 1e-9);
    let tokens = eval(&dir, &["--data", "data/tiny/val.bin"]);
    assert_eq!(tokens["loss"], split["loss"]);
    let characters: Vec<char> = CHARACTERS.chars().collect();
    let ids = dir.read("data/tiny/val.bin");
    let text: String = ids
        .chunks(2)
        .map(|id| characters[usize::from(u16::from_le_bytes([id[0], id[1]]))])
        .collect();
    dir.write("book.txt", text.as_bytes());
    let book = eval(&dir, &["--data=book.txt"]);
    assert_eq!((&book["loss"], &book["split"]), (&split["loss"], &Value::Null));
    // More context, a lower or equal number of windows' first tokens: another loss, all tokens.
    let strided = eval(&dir, &["--stride", "4"]);
    assert_eq!(strided["tokens"], 2999);
    assert_ne!(strided["loss"], split["loss"]);
    assert_ne!(eval(&dir, &["--split", "train"])["loss"], split["loss"]);
}

/// The run's own evaluation of the same iteration has the same batches.
#[test]
fn random_batches_are_those_of_the_run() {
    let dir = trained("eval-batches");
    let found = eval(&dir, &["--eval_iters=2"]);
    assert_eq!((&found["mode"], &found["tokens"]), (&"batches".into(), &(2 * 4 * 16).into()));
    let best = found["best_val_loss"].as_f64().unwrap();
    assert!((found["loss"].as_f64().unwrap() - best).abs() < 1e-6, "{found}");
    assert!(found["standard_error"].as_f64().unwrap() > 0.0);
    let replayed = eval(&dir, &["--eval_iters=2", "--sampler=nanogpt"]);
    assert_ne!(replayed["loss"], found["loss"]);
    // Text for people: the checkpoint first, then the numbers.
    let ended = dir.run(&["eval", "out", "--eval_iters=2"]);
    assert_eq!(ended.code, Some(0), "{}", ended.error);
    assert!(ended.out.starts_with("out/best.safetensors: "), "{}", ended.out);
    assert!(ended.out.contains("\nperplexity     "), "{}", ended.out);
}

/// What a run's settings mean for its training is said by `train`, not by `eval`.
#[test]
fn notes_are_about_the_evaluation() {
    let dir = TempDir::new("eval-notes");
    let ended = dir.train(&["--max_iters=10", "--lr_decay_iters=5", "--wandb_log=True"]);
    let said = ended.out.clone() + &ended.error;
    assert!(said.contains("sends nothing to wandb") && said.contains("lr_decay_iters=5"), "{said}");
    ended.succeeded();
    let one = ["eval", "out", "--eval_iters=1", "--batch_size=1"];
    let ended = dir.run(&one);
    assert_eq!((ended.code, ended.error.as_str()), (Some(0), ""), "{}", ended.out);
    assert!(ended.out.contains(": 1 random batch of 1 x 16 tokens\n"), "{}", ended.out);
    // One sequence has no spread.
    assert!(!ended.out.contains('±'), "{}", ended.out);
    assert_eq!(eval(&dir, &one[2..])["standard_error"], Value::Null);
}

#[test]
fn questions_and_refusals() {
    let dir = trained("eval-wrong");
    let line = r#"{"ctx": "once upon", "endings": ["a time", "zzz q"], "label": 0}"#;
    dir.write("questions.jsonl", format!("{line}\n{line}\n").as_bytes());
    let found = eval(&dir, &["--hellaswag", "questions.jsonl"]);
    assert_eq!((&found["questions"], &found["mode"]), (&2.into(), &"hellaswag".into()));
    let acc = found["acc"].as_f64().unwrap();
    assert!(acc == 0.0 || acc == 1.0);
    dir.write("Capital.txt", b"Capital");
    for (arguments, code, words) in [
        (&["--data", "nowhere"][..], 4, "nowhere"),
        (&["--data", "Capital.txt"], 4, "'C', which is not one of"),
        (&["--stride", "0"], 2, "--stride needs a whole number"),
        (&["--stride", "17"], 2, "longer than the context, 16"),
        (&["--stride", "4", "--eval_iters=2"], 2, "give one of them"),
        (&["--split", "test"], 2, "--split needs train or val"),
        (&["--hellaswag", "book.json"], 4, "book.json"),
    ] {
        dir.run(&[&["eval", "out", "--device=cpu"], arguments].concat()).failed(code, &[words]);
    }
    let small = dir.run(&["eval", "out", "--device=cpu", "--ram=1MiB"]);
    assert!(small.code == Some(3) && small.error.contains("does not fit"), "{small:?}");
}
