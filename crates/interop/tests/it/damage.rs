//! Damaged folders: flipped bytes and truncations give a model or an error, never a panic, and
//! sizes that no file holds are refused before memory is taken for them.

use crate::fixture::{Scratch, characters, dims, export, weights};
use checkpoint::TensorInfo;
use fitgpt_interop::{Existing, Precision, hf};
use std::fs;
use std::path::Path;

/// Opens a folder and reads all of it.
fn read(path: &Path) -> Result<(), String> {
    let found = hf::open(path).map_err(|error| error.to_string())?;
    for (index, info) in found.tensors.tensors().iter().enumerate() {
        let bytes = info.bytes().unwrap() as usize;
        found.tensors.read(index, &mut vec![0; bytes]).map_err(|error| error.to_string())?;
    }
    Ok(())
}

#[test]
fn damaged_bytes_of_any_file_cause_no_panic() {
    let scratch = Scratch::new("hf-damage");
    let path = scratch.join("model");
    let (dims, tokenizer) = (dims(true), characters());
    let weights = weights(&dims);
    let model = export(&weights, dims, &tokenizer);
    hf::write(&path, &model, Precision::BFloat16, Existing::Keep, &mut |_, _| true).unwrap();
    read(&path).unwrap();
    let mut refused = 0;
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        let file = path.join(name);
        let good = fs::read(&file).unwrap();
        // Beyond the header of the weights there are only numbers.
        let header = good.len().min(4096);
        for at in (0..header).step_by(3) {
            let mut bad = good.clone();
            bad[at] ^= [0x01, 0x20, 0x80, 0xff][at % 4];
            fs::write(&file, &bad).unwrap();
            refused += usize::from(read(&path).is_err_and(|error| !error.contains('\n')));
        }
        for length in (0..header).step_by(31).chain([good.len() - 2]) {
            fs::write(&file, &good[..length]).unwrap();
            let error = read(&path).unwrap_err();
            assert!(error.contains(name), "{error}");
        }
        fs::write(&file, &good).unwrap();
    }
    assert!(refused > 1_000, "{refused}");
}

#[test]
fn sizes_that_no_file_holds_are_refused_before_anything_is_allocated() {
    let scratch = Scratch::new("hf-sizes");
    let path = scratch.join("model");
    fs::create_dir(&path).unwrap();
    let config = |text: &str| {
        let text = format!("{{\"model_type\": \"gpt2\", {text}}}");
        fs::write(path.join("config.json"), text).unwrap();
    };
    let start = checkpoint::safetensors::file_start(&[], &[] as &[TensorInfo]).unwrap();
    fs::write(path.join("model.safetensors"), start).unwrap();
    config("\"n_layer\": 10000, \"n_embd\": 2147483648, \"n_head\": 1");
    assert!(read(&path).is_err());
    config("\"n_layer\": 10000");
    assert!(read(&path).unwrap_err().contains("has no tensor wte.weight"));
    config("\"vocab_size\": 2147483648, \"n_embd\": 2147483648, \"n_head\": 1");
    assert!(read(&path).is_err());
    fs::write(path.join("config.json"), "[".repeat(100_000)).unwrap();
    assert!(read(&path).unwrap_err().contains("it is not JSON"));
    fs::write(path.join("config.json"), vec![b' '; 2 << 20]).unwrap();
    assert!(read(&path).unwrap_err().contains("more than 1048576 bytes"));
}
