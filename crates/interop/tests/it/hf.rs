//! Hugging Face folders: what is written is read back, and what is not GPT-2 is refused.

use crate::fixture::{Scratch, characters, content, dims, export, weights};
use checkpoint::{Dtype, Reader, SafetensorsFile, TensorInfo, TensorSource};
use fitgpt_interop::{Existing, ExportError, ForeignError, Precision, hf};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use tokenizer::Tokenizer;

fn write(path: &Path, bias: bool, precision: Precision) {
    let (dims, tokenizer) = (dims(bias), characters());
    let weights = weights(&dims);
    let model = export(&weights, dims, &tokenizer);
    hf::write(path, &model, precision, Existing::Keep, &mut |_, _| true).unwrap();
}

fn refusal(path: &Path) -> String {
    hf::open(path).map(drop).unwrap_err().to_string()
}

#[test]
fn what_is_written_is_read_back_bit_for_bit() {
    let scratch = Scratch::new("hf-round-trip");
    for bias in [true, false] {
        let path = scratch.join(format!("model-{bias}"));
        write(&path, bias, Precision::Float32);
        let found = hf::open(&path).unwrap();
        let (dims, weights) = (dims(bias), weights(&dims(bias)));
        assert_eq!(found.dims, model::Dims { bias: true, ..dims });
        assert_eq!((found.gelu, found.tokenizer), (Some("tanh"), Some(characters())));
        for info in found.tensors.tensors() {
            let read = content(found.tensors.as_ref(), &info.name);
            match weights.find(&info.name) {
                Some(_) => assert_eq!(read, content(&weights, &info.name), "{}", info.name),
                None => assert!(read.iter().all(|byte| *byte == 0), "{}", info.name),
            }
        }
    }
}

#[test]
fn a_native_file_in_between_changes_no_bit() {
    let scratch = Scratch::new("hf-native");
    let (first, native, second) =
        (scratch.join("first"), scratch.join("native.safetensors"), scratch.join("second"));
    write(&first, true, Precision::Float32);
    let found = hf::open(&first).unwrap();
    let infos = found.tensors.tensors().to_vec();
    let mut buffer = vec![0; checkpoint::largest_bytes(&infos).unwrap() as usize];
    let fill = |index: usize, content: &mut [u8]| found.tensors.read(index, content);
    checkpoint::save(&native, "{}", &infos, &mut buffer, fill).unwrap();
    let reader = Reader::open(&native).unwrap();
    let tokenizer = characters();
    let model = fitgpt_interop::ExportModel {
        tensors: &reader,
        dims: found.dims,
        gelu: plan::ops::GeluKind::Tanh,
        tokenizer: Some(&tokenizer),
        name: "tiny",
    };
    hf::write(&second, &model, Precision::Float32, Existing::Keep, &mut |_, _| true).unwrap();
    for entry in fs::read_dir(&first).unwrap() {
        let name = entry.unwrap().file_name();
        let [one, two] = [&first, &second].map(|folder| fs::read(folder.join(&name)).unwrap());
        assert!(one == two, "{name:?}");
    }
}

#[test]
fn matrices_are_transposed_and_named_as_transformers_expects() {
    let scratch = Scratch::new("hf-layout");
    let path = scratch.join("model");
    write(&path, true, Precision::Float32);
    let file = SafetensorsFile::open(&path.join("model.safetensors")).unwrap();
    let entry = |name: &str| file.entries().iter().position(|entry| entry.name == name).unwrap();
    let index = entry("transformer.h.1.attn.c_attn.weight");
    assert_eq!(file.entries()[index].shape, [12, 36]);
    let ours = content(&weights(&dims(true)), "weights/h.1.attn.c_attn.weight");
    let mut theirs = [0; 4];
    // Their row 2, column 30 is our row 30, column 2.
    file.read(index, 4 * (2 * 36 + 30), &mut theirs).unwrap();
    assert_eq!(theirs[..], ours[4 * (30 * 12 + 2)..][..4]);
    assert_eq!(file.entries()[entry("transformer.wte.weight")].shape, [21, 12]);
    assert_eq!(file.entries().len(), 2 + 2 * 12 + 2);
    let config: Value =
        serde_json::from_slice(&fs::read(path.join("config.json")).unwrap()).unwrap();
    assert_eq!(config["n_ctx"], config["n_positions"]);
    assert_eq!(config["activation_function"], "gelu_new");
    assert_eq!((&config["eos_token_id"], &config["vocab_size"]), (&Value::Null, &json!(21)));
}

#[test]
fn half_precision_is_rounded_once_and_widened_exactly() {
    let scratch = Scratch::new("hf-half");
    for precision in [Precision::Float16, Precision::BFloat16] {
        let [first, second] = ["first", "second"].map(|n| scratch.join(n).join(precision.name()));
        fs::create_dir_all(first.parent().unwrap()).unwrap();
        fs::create_dir_all(second.parent().unwrap()).unwrap();
        write(&first, true, precision);
        let found = hf::open(&first).unwrap();
        assert!(found.tensors.tensors().iter().all(|info| info.dtype == Dtype::F32));
        let tokenizer = characters();
        let model = fitgpt_interop::ExportModel {
            tensors: found.tensors.as_ref(),
            dims: found.dims,
            gelu: plan::ops::GeluKind::Tanh,
            tokenizer: Some(&tokenizer),
            name: "tiny",
        };
        hf::write(&second, &model, precision, Existing::Keep, &mut |_, _| true).unwrap();
        let [one, two] = [first, second].map(|f| fs::read(f.join("model.safetensors")).unwrap());
        assert!(one == two);
    }
}

#[test]
fn stopping_leaves_nothing() {
    let scratch = Scratch::new("hf-stop");
    let (dims, tokenizer) = (dims(true), characters());
    let weights = weights(&dims);
    let model = export(&weights, dims, &tokenizer);
    let path = scratch.join("model");
    let mut last = 0;
    let mut stop = |done: u64, total: u64| {
        last = done;
        2 * done < total
    };
    let stopped = hf::write(&path, &model, Precision::Float32, Existing::Keep, &mut stop);
    assert!(matches!(stopped, Err(ExportError::Stopped)));
    assert!(last > 0);
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0);
    let mut ends = (0, 1);
    let mut all = |done: u64, total: u64| {
        ends = (done, total);
        true
    };
    let bytes = hf::write(&path, &model, Precision::Float32, Existing::Keep, &mut all).unwrap();
    assert_eq!(ends, (bytes, bytes));
    let files = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
    assert_eq!(files.sum::<u64>(), bytes);
}

/// Writes a file of weights whose tensors all have zeros.
fn weights_file(path: &Path, tensors: &[TensorInfo]) {
    let mut bytes = checkpoint::safetensors::file_start(&[], tensors).unwrap();
    let data: u64 = tensors.iter().map(|tensor| tensor.bytes().unwrap()).sum();
    bytes.resize(bytes.len() + data as usize, 0);
    fs::write(path, bytes).unwrap();
}

/// The tensors of a file that was written.
fn listed(path: &Path) -> Vec<TensorInfo> {
    let file = SafetensorsFile::open(path).unwrap();
    file.entries().iter().map(|entry| entry.info().unwrap()).collect()
}

#[test]
fn files_of_other_versions_are_read() {
    let scratch = Scratch::new("hf-versions");
    let path = scratch.join("model");
    write(&path, true, Precision::Float32);
    let file = path.join("model.safetensors");
    let mut tensors = listed(&file);
    // The bare model's names, a head, and masks in a type that is not read.
    for tensor in &mut tensors {
        tensor.name = tensor.name.replace("transformer.", "");
    }
    tensors.push(TensorInfo::new("lm_head.weight", Dtype::F32, &[21, 12]));
    tensors.push(TensorInfo::new("h.0.attn.bias", Dtype::U8, &[1, 1, 10, 10]));
    tensors.push(TensorInfo::new("h.0.attn.masked_bias", Dtype::F32, &[]));
    weights_file(&file, &tensors);
    assert_eq!(hf::open(&path).unwrap().tensors.tensors().len(), 2 + 24 + 2);
    // Two shards.
    fs::remove_file(&file).unwrap();
    let (one, two) = tensors.split_at(9);
    weights_file(&path.join("a.safetensors"), one);
    weights_file(&path.join("b.safetensors"), two);
    let map: serde_json::Map<String, Value> = one
        .iter()
        .map(|tensor| (tensor.name.clone(), "a.safetensors".into()))
        .chain(two.iter().map(|tensor| (tensor.name.clone(), "b.safetensors".into())))
        .collect();
    let index = path.join("model.safetensors.index.json");
    fs::write(&index, json!({"metadata": {}, "weight_map": map}).to_string()).unwrap();
    let sharded = hf::open(&path).unwrap();
    assert_eq!(content(sharded.tensors.as_ref(), "weights/h.1.mlp.c_fc.weight").len(), 4 * 12 * 48);
    fs::remove_file(path.join("b.safetensors")).unwrap();
    assert!(refusal(&path).contains("b.safetensors: cannot open it"), "{}", refusal(&path));
    fs::remove_file(&index).unwrap();
    assert!(refusal(&path).contains("no model.safetensors: is the download complete?"));
    fs::write(path.join("pytorch_model.bin"), "").unwrap();
    assert!(refusal(&path).contains("write them as safetensors first: python -c"));
}

#[test]
fn what_does_not_fit_the_config_is_refused_by_name() {
    let scratch = Scratch::new("hf-refused");
    let path = scratch.join("model");
    write(&path, true, Precision::Float32);
    let file = path.join("model.safetensors");
    let good = listed(&file);
    let check = |change: &dyn Fn(&mut Vec<TensorInfo>), want: &str| {
        let mut tensors = good.clone();
        change(&mut tensors);
        weights_file(&file, &tensors);
        assert!(refusal(&path).contains(want), "{}", refusal(&path));
    };
    check(&|all| drop(all.remove(3)), "has no tensor h.0.ln_1.bias; its config.json asks for it");
    check(
        &|all| all.push(TensorInfo::new("score.weight", Dtype::F32, &[2])),
        "has tensor score.weight, which is not a part of",
    );
    check(
        &|all| all[0].shape = vec![12, 21],
        "transformer.wte.weight has shape [12, 21], but the sizes in config.json need [21, 12]",
    );
    check(&|all| all[0].dtype = Dtype::I64, "has type I64; save the weights as F32, F16 or BF16");
    check(
        &|all| all.push(TensorInfo::new("wte.weight", Dtype::F32, &[1])),
        "it has tensor wte.weight twice",
    );
    // An untied head of other values; the same values are read.
    let config = fs::read_to_string(path.join("config.json")).unwrap();
    let config = config.replace("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
    fs::write(path.join("config.json"), config).unwrap();
    let mut tensors = good.clone();
    tensors.push(TensorInfo::new("lm_head.weight", Dtype::F32, &[21, 12]));
    weights_file(&file, &tensors);
    assert!(hf::open(&path).is_ok());
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() = 1;
    fs::write(&file, bytes).unwrap();
    assert!(refusal(&path).contains("lm_head.weight differs from wte.weight"));
}

/// A model with this tokenizer in a folder.
fn with_tokenizer(path: &Path, vocab_size: u64, tokenizer: &Tokenizer) {
    let dims = model::Dims { n_embd: 3, n_head: 1, n_layer: 1, vocab_size, ..dims(true) };
    let weights = weights(&dims);
    let model = export(&weights, dims, tokenizer);
    hf::write(path, &model, Precision::Float32, Existing::Keep, &mut |_, _| true).unwrap();
}

/// The tokenizer, why there is none, and what was assumed.
fn tokenizer(path: &Path) -> (Option<Tokenizer>, String, Vec<String>) {
    let found = hf::open(path).unwrap();
    (found.tokenizer, found.no_tokenizer.unwrap_or_default(), found.notices)
}

#[test]
fn gpt2s_tokenizer_is_assumed_for_a_vocabulary_of_its_size_alone() {
    let scratch = Scratch::new("hf-gpt2");
    for rows in [50_257, 50_304] {
        let path = scratch.join(format!("model-{rows}"));
        with_tokenizer(&path, rows, &Tokenizer::Gpt2);
        assert_eq!(tokenizer(&path), (Some(Tokenizer::Gpt2), String::new(), vec![]));
        fs::remove_file(path.join("tokenizer.json")).unwrap();
        assert_eq!(tokenizer(&path), (Some(Tokenizer::Gpt2), String::new(), vec![]));
        fs::remove_file(path.join("vocab.json")).unwrap();
        assert_eq!(tokenizer(&path).1, "it has merges.txt, but no vocab.json");
        fs::remove_file(path.join("merges.txt")).unwrap();
        let (found, why, notices) = tokenizer(&path);
        match rows {
            50_257 => {
                assert_eq!((found, notices.len()), (Some(Tokenizer::Gpt2), 1));
                assert!(notices[0].contains("has no tokenizer: GPT-2's is used"), "{notices:?}");
            }
            _ => assert_eq!((found, why.as_str()), (None, "it has no tokenizer.json")),
        }
    }
    let no_folder: Result<_, ForeignError> = hf::open(&scratch.join("absent"));
    assert!(no_folder.is_err() && !hf::is_folder(&scratch.join("absent")));
}

/// The form from before tokenizer.json: other vocabularies are read, never replaced by GPT-2's.
#[test]
fn a_vocabulary_and_its_merges_are_read() {
    let scratch = Scratch::new("hf-pair");
    let path = scratch.join("model");
    let bytes = (0..=255u8).map(|byte| tokenizer::byte_letters(&[byte]));
    let mut vocab: serde_json::Map<String, Value> =
        bytes.zip(0..).map(|(name, id): (String, u32)| (name, id.into())).collect();
    for (name, id) in [("th", 256), ("the", 257), ("<|endoftext|>", 258)] {
        vocab.insert(name.to_owned(), id.into());
    }
    let vocab = Value::Object(vocab).to_string();
    let merges = "#version: 0.2\nt h\nth e\n";
    let own = Tokenizer::from_vocab_and_merges(vocab.as_bytes(), merges).unwrap();
    assert_eq!(own.encode("the th<|endoftext|>").unwrap(), [257, 32, 256, 258]);
    with_tokenizer(&path, 259, &own);
    assert_eq!(tokenizer(&path).0.as_ref(), Some(&own));
    fs::remove_file(path.join("tokenizer.json")).unwrap();
    assert_eq!(tokenizer(&path).0.as_ref(), Some(&own));
    // GPT-2's size, other merges.
    let gpt2 = scratch.join("gpt2");
    with_tokenizer(&gpt2, 50_257, &Tokenizer::Gpt2);
    fs::remove_file(gpt2.join("tokenizer.json")).unwrap();
    let text = fs::read_to_string(gpt2.join("merges.txt")).unwrap();
    let fewer: Vec<&str> = text.lines().take(40_000).collect();
    fs::write(gpt2.join("merges.txt"), fewer.join("\n")).unwrap();
    let (found, why, _) = tokenizer(&gpt2);
    assert!(found.is_some_and(|found| found != Tokenizer::Gpt2), "{why}");
    for (file, content, want) in [
        ("merges.txt", "t h\nth", "its vocab.json and merges.txt: has 'th' among its merges"),
        ("merges.txt", "t hh\n", "merges 'hh', which has no id"),
        ("vocab.json", "[1", "vocab.json is not JSON"),
        ("vocab.json", "7", "has no id"),
        ("vocab.json", "{}", "merges 't', which has no id"),
        ("tokenizer_config.json", r#"{"add_prefix_space": true}"#, "adds a space before each"),
        ("added_tokens.json", "{}", "it has an added_tokens.json, which is not supported"),
    ] {
        let before = fs::read(path.join(file)).ok();
        fs::write(path.join(file), content).unwrap();
        let (found, why, _) = tokenizer(&path);
        assert!(found.is_none() && why.contains(want), "{file}: {why}");
        match before {
            Some(before) => fs::write(path.join(file), before).unwrap(),
            None => fs::remove_file(path.join(file)).unwrap(),
        }
    }
}
