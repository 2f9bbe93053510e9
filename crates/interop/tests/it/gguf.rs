//! GGUF files, read back by a few lines that know only the format.

use crate::fixture::{Scratch, characters, content, dims, export, weights};
use fitgpt_interop::{Existing, ExportError, Precision, gguf};
use std::collections::BTreeMap;
use std::fs;

/// A tensor of a file: dimensions from the innermost, type, content.
type Tensor = (Vec<u64>, u32, Vec<u8>);

struct Cursor<'a>(&'a [u8], usize);

impl Cursor<'_> {
    fn bytes(&mut self, count: usize) -> &[u8] {
        self.1 += count;
        &self.0[self.1 - count..self.1]
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes(4).try_into().unwrap())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes(8).try_into().unwrap())
    }

    fn text(&mut self) -> String {
        let length = self.u64() as usize;
        String::from_utf8(self.bytes(length).to_vec()).unwrap()
    }

    /// A value as text.
    fn value(&mut self, kind: u32) -> String {
        match kind {
            4 | 5 => self.u32().to_string(),
            6 => f32::from_bits(self.u32()).to_string(),
            7 => self.bytes(1)[0].to_string(),
            8 => self.text(),
            9 => {
                let (kind, count) = (self.u32(), self.u64());
                let all: Vec<String> = (0..count).map(|_| self.value(kind)).collect();
                all.join("|")
            }
            other => panic!("type {other}"),
        }
    }
}

fn parse(file: &[u8]) -> (BTreeMap<String, String>, BTreeMap<String, Tensor>) {
    let mut cursor = Cursor(file, 0);
    assert_eq!(cursor.bytes(4), b"GGUF");
    assert_eq!(cursor.u32(), 3);
    let (tensors, pairs) = (cursor.u64(), cursor.u64());
    let pairs = (0..pairs).map(|_| {
        let (key, kind) = (cursor.text(), cursor.u32());
        (key, cursor.value(kind))
    });
    let pairs = pairs.collect();
    let infos: Vec<(String, Vec<u64>, u32, u64)> = (0..tensors)
        .map(|_| {
            let (name, dims) = (cursor.text(), cursor.u32());
            let shape = (0..dims).map(|_| cursor.u64()).collect();
            (name, shape, cursor.u32(), cursor.u64())
        })
        .collect();
    let start = cursor.1.next_multiple_of(32);
    let mut end = start;
    let mut all = BTreeMap::new();
    for (name, shape, kind, offset) in infos {
        assert_eq!(start + offset as usize, end.next_multiple_of(32), "{name}");
        let size = if kind == 0 { 4 } else { 2 };
        let bytes = shape.iter().product::<u64>() as usize * size;
        let from = start + offset as usize;
        all.insert(name, (shape, kind, file[from..from + bytes].to_vec()));
        end = from + bytes;
    }
    assert_eq!(file.len(), end.next_multiple_of(32));
    (pairs, all)
}

#[test]
fn a_file_has_what_llama_cpp_reads() {
    let scratch = Scratch::new("gguf");
    let path = scratch.join("model.gguf");
    let (dims, tokenizer) = (dims(true), characters());
    let weights = weights(&dims);
    let model = export(&weights, dims, &tokenizer);
    let bytes =
        gguf::write(&path, &model, Precision::Float16, Existing::Keep, &mut |_, _| true).unwrap();
    let file = fs::read(&path).unwrap();
    assert_eq!(file.len() as u64, bytes);
    let (pairs, tensors) = parse(&file);
    for (key, want) in [
        ("general.architecture", "gpt2"),
        ("gpt2.context_length", "10"),
        ("gpt2.feed_forward_length", "48"),
        ("gpt2.attention.head_count", "3"),
        ("gpt2.attention.layer_norm_epsilon", "0.00001"),
        ("tokenizer.ggml.pre", "gpt-2"),
        ("tokenizer.ggml.eos_token_id", "21"),
        ("tokenizer.ggml.add_bos_token", "0"),
        ("general.file_type", "1"),
    ] {
        assert_eq!(pairs[key], want, "{key}");
    }
    assert_eq!(tensors.len(), 2 + 2 * 12 + 2);
    let (shape, kind, _) = &tensors["blk.1.attn_qkv.weight"];
    assert_eq!((&shape[..], *kind), (&[12, 36][..], 1));
    for name in ["position_embd.weight", "blk.0.attn_norm.weight", "blk.0.ffn_up.bias"] {
        assert_eq!(tensors[name].1, 0, "{name}");
    }
    let ours = content(&weights, "weights/wpe.weight");
    assert_eq!(tensors["position_embd.weight"].2, ours);
    assert_eq!(tensors["token_embd.weight"].0, [12, 22]);
}

#[test]
fn the_extra_row_is_the_mean_of_the_others() {
    let scratch = Scratch::new("gguf-mean");
    let path = scratch.join("model.gguf");
    let (dims, tokenizer) = (dims(false), characters());
    let weights = weights(&dims);
    let model = export(&weights, dims, &tokenizer);
    gguf::write(&path, &model, Precision::Float32, Existing::Replace, &mut |_, _| true).unwrap();
    let (_, tensors) = parse(&fs::read(&path).unwrap());
    let table = &tensors["token_embd.weight"].2;
    let at = |row: usize, column: usize| {
        let from = 4 * (12 * row + column);
        f32::from_le_bytes(table[from..from + 4].try_into().unwrap())
    };
    for column in 0..12 {
        let mean = (0..21).map(|row| f64::from(at(row, column))).sum::<f64>() / 21.0;
        assert!((f64::from(at(21, column)) - mean).abs() < 1e-7);
    }
    // Biases that the model does not have are zeros.
    assert!(tensors["blk.0.ffn_up.bias"].2.iter().all(|byte| *byte == 0));
    assert_eq!(tensors["blk.0.ffn_up.weight"].2, content(&weights, "weights/h.0.mlp.c_fc.weight"));
}

#[test]
fn stopping_leaves_the_old_file() {
    let scratch = Scratch::new("gguf-stop");
    let path = scratch.join("model.gguf");
    fs::write(&path, "old").unwrap();
    let (dims, tokenizer) = (dims(true), characters());
    let weights = weights(&dims);
    let model = export(&weights, dims, &tokenizer);
    let stopped =
        gguf::write(&path, &model, Precision::Float32, Existing::Keep, &mut |d, t| 2 * d < t);
    assert!(matches!(stopped, Err(ExportError::Stopped)));
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1);
    let nameless = fitgpt_interop::ExportModel { tokenizer: None, ..model };
    let error =
        gguf::write(&path, &nameless, Precision::Float32, Existing::Replace, &mut |_, _| true)
            .unwrap_err();
    assert!(error.to_string().contains("a GGUF file needs the model's tokenizer"), "{error}");
}
