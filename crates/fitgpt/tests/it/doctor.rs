//! `fitgpt doctor` as users call it: with a file, a pipe, a config, a language; and in a fraction
//! of a second.

use crate::fixture::{Ended, TempDir};
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

fn log(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../doctor/tests/logs");
    folder.join(name).to_str().unwrap().to_string()
}

fn config(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config");
    folder.join(name).to_str().unwrap().to_string()
}

fn document(dir: &TempDir, arguments: &[&str]) -> Value {
    let ended = dir.run(&[&["doctor"], arguments, &["--json"]].concat()).succeeded();
    serde_json::from_str(&ended.out).unwrap()
}

#[test]
fn the_document_has_every_field() {
    let dir = TempDir::empty("doctor-json");
    let found = document(&dir, &[&log("compiled_124m_batch_64.log")]);
    let keys: Vec<&str> = found.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys[0], "schema");
    for key in [
        "dialect",
        "phase",
        "requested_bytes",
        "budget_bytes",
        "tensor",
        "cause",
        "memory",
        "memory_total_bytes",
        "needed_bytes",
        "program",
        "advice",
        "facts",
        "nanogpt_patch",
        "fitgpt_run_seconds",
        "fixes",
        "recommended_config",
        "nanogpt_command",
        "fitgpt_command",
        "unknown",
    ] {
        assert!(keys.contains(&key) && !found[key].is_null(), "{key}");
    }
    assert_eq!(found["phase"], "first_eval");
    assert_eq!(found["cause"], "stale_logits");
    assert_eq!(found["tensor"]["shape"], serde_json::json!([65536, 50304]));
    assert_eq!(found["tensor"]["dtype"], "bfloat16");
    assert_eq!(found["schema"], "fitgpt.doctor/2");
    assert_eq!(found["advice"].as_array().unwrap().len(), 20);
    for fact in found["facts"].as_array().unwrap() {
        let source = fact["source"].as_str().unwrap();
        assert!(["read", "given", "derived", "assumed"].contains(&source), "{fact}");
    }
    let fact = |name: &str| {
        let all = found["facts"].as_array().unwrap();
        all.iter().find(|fact| fact["fact"] == name).unwrap()["source"].clone()
    };
    assert_eq!([fact("batch_size"), fact("n_embd"), fact("cause")], ["read", "assumed", "derived"]);
    for fix in found["fixes"].as_array().unwrap() {
        assert_eq!(fix["fits"], true);
        assert_eq!(fix["tokens_per_iteration"], 131_072);
        assert!(fix["device_bytes"].as_u64() <= found["budget_bytes"].as_u64());
    }
    // Our command, given to `plan`, fits.
    let command = found["fitgpt_command"].as_str().unwrap();
    let arguments: Vec<&str> = command.split(" train ").nth(1).unwrap().split(' ').collect();
    dir.run(&[&["plan"], &arguments[..], &["--json"]].concat()).succeeded();
}

#[test]
fn a_pipe_a_file_and_a_dash_are_the_same() {
    let dir = TempDir::empty("doctor-pipe");
    let path = log("eager_77m_float16_batch_16.log");
    let from_file = dir.run(&["doctor", &path]).succeeded();
    for arguments in [&["doctor"][..], &["doctor", "-"]] {
        let mut command = dir.command(arguments);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = command.spawn().unwrap();
        running.stdin.take().unwrap().write_all(&std::fs::read(&path).unwrap()).unwrap();
        let ended = Ended::from(running.wait_with_output().unwrap()).succeeded();
        assert_eq!(ended.out, from_file.out);
    }
    for words in
        ["3.07 GiB did not fit in the forward pass", "log-softmax", "what to change in nanoGPT"]
    {
        assert!(from_file.out.contains(words), "{words}: {}", from_file.out);
    }
}

#[test]
fn a_config_alone_is_judged() {
    let dir = TempDir::empty("doctor-config");
    let case = config("case_a_124m_b64.py");
    let ended = dir.run(&["doctor", &case, "--gpu", "RTX 4070", "--json"]);
    assert_eq!(ended.code, Some(3), "{}", ended.error);
    let found: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!((&found["phase"], &found["dialect"]), (&"first_eval".into(), &"none".into()));
    let fits = ["--dataset=x", "--batch_size=2", "--gpu=RTX 4090"];
    let ended = dir.run(&[&["doctor"], &fits[..]].concat()).succeeded();
    assert!(ended.out.contains("the run fits"), "{}", ended.out);
    assert!(ended.out.contains("to spare"), "{}", ended.out);
    assert!(!ended.out.contains("empty_cache"), "advice that nobody needs: {}", ended.out);
    // What others hold decides.
    let edge = ["--dataset=x", "--batch_size=8", "--gradient_accumulation_steps=5"];
    let edge = [&["doctor"], &edge[..], &["--gpu=RTX 4070"]].concat();
    dir.run(&[&edge[..], &["--used=0.5GiB"]].concat()).succeeded();
    let ended = dir.run(&[&edge[..], &["--used=6GiB"]].concat());
    assert_eq!(ended.code, Some(3), "{}", ended.out);
    assert!(ended.out.contains("6.00 GiB are in use"), "{}", ended.out);
}

#[test]
fn a_post_is_answered_in_its_own_language() {
    let dir = TempDir::empty("doctor-post");
    let text = "Das Training mit nanoGPT bricht ab, obwohl die Karte fast leer ist.\n\
        ```\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.07 GiB. GPU 0 has a \
        total capacity of 11.69 GiB of which 2.00 GiB is free.\n```\nWas kann ich tun, und \
        warum ist der Speicher nicht frei? Ich habe schon alles versucht.\n";
    dir.write("post.txt", text.as_bytes());
    let ended = dir.run(&["doctor", "post.txt"]).succeeded();
    assert!(ended.out.contains("3,07 GiB"), "{}", ended.out);
    let ended = dir.run(&["doctor", "post.txt", "--lang=en"]).succeeded();
    assert!(ended.out.contains("3.07 GiB did not fit"), "{}", ended.out);
}

#[test]
fn every_language_is_spoken() {
    let dir = TempDir::empty("doctor-words");
    let path = log("eager_774m_batch_1.log");
    for (language, words) in [
        ("en", "in the optimizer's step"),
        ("de", "im Schritt des Optimierers"),
        ("fr", "pendant la mise à jour de l'optimiseur"),
        ("ja", "オプティマイザのステップで"),
        ("zh", "在优化器更新时"),
    ] {
        let ended = dir.run(&["doctor", &path, "--lang", language]).succeeded();
        assert!(ended.out.contains(words), "{language}: {}", ended.out);
        let mut command = dir.command(&["doctor", &path, "--markdown"]);
        let command = command.env("LC_ALL", format!("{language}_XX.UTF-8"));
        let ended = Ended::from(command.output().unwrap()).succeeded();
        assert!(ended.out.starts_with("# ") && ended.out.contains(words), "{}", ended.out);
    }
    dir.run(&["doctor", &path, "--lang=tlh"]).failed(2, &["en, ja, zh, de, fr"]);
}

#[test]
fn questions_without_an_answer_are_refused() {
    let dir = TempDir::empty("doctor-bad");
    dir.run(&["doctor", "no-such.log"]).failed(4, &["no-such.log"]);
    dir.run(&["doctor", "--batch_size=4", "--vram=lots"]).failed(2, &["11.69GiB"]);
    dir.run(&["doctor", "--batch_size=4", "--gpu=Voodoo"]).failed(2, &["nearest"]);
    let both = ["doctor", "--batch_size=4", "--json", "--markdown"];
    dir.run(&both).failed(2, &["--json and --markdown"]);
    dir.run(&["doctor", "a.log", "b.log"]).failed(2, &["one log at a time", "b.log"]);
    dir.write("empty.log", b"");
    let ended = dir.run(&["doctor", "empty.log", "--json"]);
    assert_eq!(ended.code, Some(4), "nothing to diagnose");
    let found: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!((&found["dialect"], &found["cause"]), (&"none".into(), &"unknown".into()));
    assert_eq!(found["requested_bytes"], Value::Null);
    assert!(!found["unknown"].as_array().unwrap().is_empty());
    dir.write("bare.log", b"RuntimeError: CUDA error: out of memory\n");
    let found = document(&dir, &["bare.log"]);
    assert!(found["budget_bytes"].is_null() && found["fitgpt_command"].is_null());
}

#[test]
fn it_is_quick() {
    let dir = TempDir::empty("doctor-quick");
    let path = log("eager_774m_batch_1.log");
    let time = |_: i32| {
        let start = std::time::Instant::now();
        document(&dir, &[&path]);
        start.elapsed().as_secs_f64()
    };
    let best = (0..3).map(time).fold(f64::INFINITY, f64::min);
    let limit = if cfg!(debug_assertions) { 4.0 } else { 0.2 };
    assert!(best < limit, "{best} s");
}
