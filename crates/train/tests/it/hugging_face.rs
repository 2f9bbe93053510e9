//! A folder that `transformers` saved computes what `transformers` computes.

use crate::on_cpu::sampling_engine;
use fitgpt_train::generate::next_logits;
use serde_json::Value;

/// Made by `make.py` there.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hf-tiny");

#[test]
fn logits_are_those_of_transformers() {
    let golden = std::fs::read(format!("{FOLDER}/logits.json")).unwrap();
    let golden: Value = serde_json::from_slice(&golden).unwrap();
    let ids: Vec<i32> = serde_json::from_value(golden["ids"].clone()).unwrap();
    for name in [FOLDER.to_owned(), format!("{FOLDER}/model.safetensors")] {
        let mut engine = sampling_engine(&name).unwrap();
        for end in 1..=ids.len() {
            let ours = next_logits(&mut engine, &ids[..end]).unwrap();
            let theirs: Vec<f32> =
                serde_json::from_value(golden["logits"][end - 1].clone()).unwrap();
            assert_eq!(ours.len(), theirs.len());
            for (ours, theirs) in ours.iter().zip(&theirs) {
                assert!((ours - theirs).abs() < 1e-4, "{ours} {theirs}");
            }
        }
    }
}
