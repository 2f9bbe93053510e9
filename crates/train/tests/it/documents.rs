//! Checkpoint documents with arbitrary content: an error that names the file, never a panic, and
//! never a model that is not in the file.

use crate::fixture::TempDir;
use checkpoint::{Dtype, TensorInfo};
use fitgpt_train::save;
use fitgpt_train::setup::{SampleSetup, Setup};
use proptest::prelude::*;
use serde_json::{Value, json};
use spec::{Command, Environment, Settings, World};
use std::path::Path;
use std::sync::OnceLock;

/// The characters of the built-in corpus: a document that a run could have left.
fn tokenizer() -> Value {
    static JSON: OnceLock<Value> = OnceLock::new();
    let read = || match data::Dataset::builtin().tokenizer() {
        Ok(tokenizer::Tokenizer::Char(table)) => {
            json!({ "characters": String::from_iter(table.characters()) })
        }
        other => panic!("{other:?}"),
    };
    JSON.get_or_init(read).clone()
}

fn good() -> Value {
    json!({
        "iteration": 5,
        "best_val_loss_bits": 1.5f64.to_bits().to_string(),
        "config": { "dataset": "builtin", "n_layer": 1, "n_head": 1, "n_embd": 8, "bias": false,
                    "block_size": 8, "dropout": 0.0 },
        "model": { "n_layer": 1, "n_head": 1, "n_embd": 8, "block_size": 8, "vocab_size": 66,
                   "bias": false },
        "tokenizer": tokenizer(),
        "feed": null,
        "plan": { "slices": [[12, 1]], "head_chunk_tokens": 256, "recompute": ["R0"],
                  "optimizer_state": "float32", "offload": false },
        "steps_hash": "0",
        "version": "0",
        "device": "cpu",
    })
}

fn settings(command: Command, out_dir: &Path) -> Settings {
    let mut arguments = vec![format!("--out_dir={}", out_dir.display())];
    arguments.push("--init_from=resume".to_string());
    let nothing = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    let world = World { read: &nothing, unix_time: 0.0 };
    Settings::read(command, &arguments, &world).unwrap()
}

/// Writes a checkpoint with this document, then does with it what `train` and `sample` do.
fn read(folder: &TempDir, document: &Value) -> Result<(), String> {
    let path = save::last_path(&folder.0);
    let tensors = [TensorInfo::new("state", Dtype::U32, &[1])];
    let text = document.to_string();
    let fill = |_: usize, _: &mut [u8]| Ok::<(), String>(());
    checkpoint::save(&path, &text, &tensors, &mut [0; 4], fill).unwrap();
    let environment = Environment::default();
    let one_line = |error: fitgpt_train::TrainError| {
        let message = error.to_string();
        assert!(!message.contains('\n') && message.len() < 1000, "{message}");
        assert!([2, 4].contains(&error.exit_code()), "{message}");
        message
    };
    let (_, opened) = save::open(&path).map_err(one_line)?;
    assert!(opened.dims.n_layer > 0);
    SampleSetup::new(settings(Command::Sample, &folder.0), &environment, None).map_err(one_line)?;
    let document = opened.config["dataset"].as_str();
    if document == Some("builtin") {
        Setup::new(settings(Command::Train, &folder.0), &environment, None).map_err(one_line)?;
    }
    Ok(())
}

#[test]
fn a_good_document_is_read_and_each_part_is_needed() {
    let folder = TempDir::new("document");
    assert_eq!(read(&folder, &good()), Ok(()));
    for part in [
        "iteration",
        "config",
        "model",
        "tokenizer",
        "feed",
        "plan",
        "steps_hash",
        "device",
        "version",
    ] {
        let mut document = good();
        document.as_object_mut().unwrap().remove(part);
        let message = read(&folder, &document).unwrap_err();
        assert!(message.contains("last.safetensors"), "{part}: {message}");
    }
    for (part, value) in [
        ("iteration", json!(-1)),
        ("iteration", json!(1.5)),
        ("best_val_loss_bits", json!("x")),
        ("model", json!({ "n_layer": 1 })),
        ("tokenizer", json!({ "characters": "aa" })),
        ("tokenizer", json!(3)),
        ("plan", json!({ "slices": [[0, 1]] })),
    ] {
        let mut document = good();
        document[part] = value;
        assert!(read(&folder, &document).is_err(), "{document}");
    }
}

/// Any JSON value.
fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (0..100u64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        prop::collection::vec(any::<u8>(), 0..4).prop_map(Value::from),
    ]
}

/// Each case makes the built-in corpus; `PROPTEST_CASES` asks for more of them.
fn few_cases() -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    let cases = asked.unwrap_or(40);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn changed_documents_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), value()), 1..4),
    ) {
        let folder = TempDir::new("documents");
        let mut document = good();
        let top = ["iteration", "best_val_loss_bits", "tokenizer", "feed", "config", "model"];
        let model = ["n_layer", "n_head", "n_embd", "block_size", "vocab_size", "bias"];
        for (index, value) in changes {
            match index.index(top.len() + 2 * model.len()) {
                at if at < top.len() => document[top[at]] = value,
                at => {
                    let part = if at % 2 == 0 { "model" } else { "config" };
                    if document[part].is_object() {
                        document[part][model[at % model.len()]] = value;
                    }
                }
            }
        }
        let _ = read(&folder, &document);
    }
}
