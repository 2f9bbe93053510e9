//! A small model in memory, and folders that remove themselves.

use checkpoint::{Dtype, ReadError, TensorInfo, TensorSource};
use fitgpt_interop::ExportModel;
use model::{Dims, Gpt2};
use plan::ops::GeluKind;
use std::path::{Path, PathBuf};
use tokenizer::{CharTokenizer, Tokenizer};

/// Tensors in memory.
pub struct Memory {
    infos: Vec<TensorInfo>,
    contents: Vec<Vec<u8>>,
}

impl TensorSource for Memory {
    fn tensors(&self) -> &[TensorInfo] {
        &self.infos
    }

    fn read(&self, index: usize, content: &mut [u8]) -> Result<(), ReadError> {
        content.copy_from_slice(&self.contents[index]);
        Ok(())
    }
}

/// Sizes that differ from each other.
pub fn dims(bias: bool) -> Dims {
    Dims { n_layer: 2, n_head: 3, n_embd: 12, block_size: 10, vocab_size: 21, bias }
}

/// A model of these sizes whose every weight is different.
pub fn weights(dims: &Dims) -> Memory {
    let params = model::Architecture::from(Gpt2 { gelu: GeluKind::Erf }).parameters(dims);
    let (mut infos, mut contents) = (Vec::new(), Vec::new());
    let mut number = 0u32;
    for param in params.unwrap() {
        infos.push(TensorInfo::new(
            format!("weights/{}", param.name),
            Dtype::F32,
            param.shape.dims(),
        ));
        let next = || {
            number += 1;
            (f32::from_bits(number.wrapping_mul(2_654_435_761) >> 9 | 0x3f80_0000) - 1.5)
                .to_le_bytes()
        };
        let elements = param.shape.elements() as usize;
        contents.push(std::iter::repeat_with(next).take(elements).flatten().collect());
    }
    Memory { infos, contents }
}

/// 21 characters, some of several bytes.
pub fn characters() -> Tokenizer {
    let table = CharTokenizer::new("\n !abcdefghijklmné—🦀o".chars().collect());
    Tokenizer::Char(table.unwrap())
}

/// The model to write.
pub fn export<'a>(weights: &'a Memory, dims: Dims, tokenizer: &'a Tokenizer) -> ExportModel<'a> {
    ExportModel {
        tensors: weights,
        dims,
        gelu: GeluKind::Tanh,
        tokenizer: Some(tokenizer),
        name: "tiny",
    }
}

/// The content of a tensor.
pub fn content(source: &dyn TensorSource, name: &str) -> Vec<u8> {
    let index = source.find(name).unwrap();
    let mut content = vec![0; source.tensors()[index].bytes().unwrap() as usize];
    source.read(index, &mut content).unwrap();
    content
}

/// A folder that is removed when it is dropped.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("interop-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
