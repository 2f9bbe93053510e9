//! Readers of other programs' models: PyTorch's checkpoints, Hugging Face's folders. One file of
//! a model is the input, the others are whole.

use super::readers::{refused, scratch_failed};
use super::seeds::{self, CKPT};
use super::zip;
use crate::scratch::put;
use interop::{ForeignError, ForeignModel};
use std::path::Path;

/// Tensors that are read of an accepted model, and the most bytes of each: a few bytes of a file
/// may mean a tensor of any size, for which the program has memory or does not.
const TENSORS: usize = 64;
const TENSOR: u64 = 1 << 20;

/// An accepted model must have tensors that can be read or refused.
fn read(opened: Result<ForeignModel, ForeignError>) -> Result<(), String> {
    let model = match opened {
        Ok(model) => model,
        Err(error) => return refused(error),
    };
    for (index, tensor) in model.tensors.tensors().iter().enumerate().take(TENSORS) {
        let Some(bytes) = tensor.bytes().filter(|bytes| *bytes <= TENSOR) else { continue };
        let mut content = vec![0; bytes as usize];
        if let Err(error) = model.tensors.read(index, &mut content) {
            refused(error)?;
        }
    }
    Ok(())
}

/// `ckpt.pt` itself: the archive.
pub fn ckpt(bytes: &[u8], folder: &Path) -> Result<(), String> {
    let path = folder.join("ckpt.pt");
    put(&path, bytes).map_err(scratch_failed)?;
    read(interop::torch::open(&path))
}

/// The pickle in a `ckpt.pt` whose checksums are right.
pub fn ckpt_pickle(bytes: &[u8], folder: &Path) -> Result<(), String> {
    let mut entries = zip::entries(CKPT).ok_or("the seed is no archive")?;
    for (name, content) in &mut entries {
        if name.ends_with("/data.pkl") {
            *content = bytes.to_vec();
        }
    }
    ckpt(&zip::packed(&entries), folder)
}

/// A folder whose file of this name is the input.
fn folder_with(bytes: &[u8], above: &Path, name: &str) -> Result<(), String> {
    let folder = above.join(format!("hf-{name}"));
    if !folder.is_dir() {
        std::fs::create_dir(&folder).map_err(scratch_failed)?;
        // With an index, the weights are in the file that it names.
        let is_sharded = name == seeds::INDEX;
        let weights = if is_sharded { seeds::SHARD } else { seeds::WEIGHTS };
        put(&folder.join(seeds::CONFIG), seeds::CONFIG_TEXT.as_bytes()).map_err(scratch_failed)?;
        put(&folder.join(weights), &seeds::weights()).map_err(scratch_failed)?;
    }
    put(&folder.join(name), bytes).map_err(scratch_failed)?;
    read(interop::hf::open(&folder))
}

pub fn hf_config(bytes: &[u8], folder: &Path) -> Result<(), String> {
    folder_with(bytes, folder, seeds::CONFIG)
}

pub fn hf_weights(bytes: &[u8], folder: &Path) -> Result<(), String> {
    folder_with(bytes, folder, seeds::WEIGHTS)
}

pub fn hf_index(bytes: &[u8], folder: &Path) -> Result<(), String> {
    folder_with(bytes, folder, seeds::INDEX)
}

pub fn hf_tokenizer(bytes: &[u8], folder: &Path) -> Result<(), String> {
    folder_with(bytes, folder, "tokenizer.json")
}
