//! A Hugging Face folder as a source of tensors: names without `transformer.`, matrices of Conv1D
//! transposed to outputs × inputs, numbers widened to f32, one tensor at a time.

use super::config::Config;
use super::{shards, tokenizer};
use crate::error::{ForeignError, ForeignProblem};
use crate::{ForeignModel, number, shown};
use checkpoint::{Dtype, ReadError, ReadProblem, SafetensorsFile, TensorInfo, TensorSource};
use model::{Gpt2, ModuleKind, Param, ParamKind};
use plan::ops::GeluKind;
use serde_json::Map;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Bytes read from a file at a time, if a row is not longer.
const CHUNK: usize = 1 << 20;

/// The prefix of a language model's tensors; files of the bare model do not have it.
const PREFIX: &str = "transformer.";

/// The head, which is the token embedding.
const HEAD: &str = "lm_head.weight";

/// Whether a folder is one that Hugging Face's programs would load a model from.
#[must_use]
pub fn is_folder(path: &Path) -> bool {
    path.join(super::CONFIG).is_file()
}

/// Opens a folder with `config.json` and weights as safetensors.
///
/// # Errors
///
/// When a file cannot be read, is damaged, or holds a model that fitgpt does not compute.
pub fn open(folder: &Path) -> Result<ForeignModel, ForeignError> {
    let config = Config::read(&folder.join(super::CONFIG))?;
    let files = shards::open(folder)?;
    let found = find(&config, &files).and_then(|stored| {
        if !config.is_tied {
            check_head(&files, &stored)?;
        }
        Ok(stored)
    });
    let stored = found.map_err(|problem| {
        let path = match &files[..] {
            [file] => file.path().to_owned(),
            _ => folder.to_owned(),
        };
        ForeignError { path, problem }
    })?;
    let infos = stored.iter().map(Stored::info).collect();
    let tokenizer::Found { tokenizer, notice } = tokenizer::read(folder, &config.dims)?;
    let (tokenizer, no_tokenizer) = match tokenizer {
        Ok(tokenizer) => (Some(tokenizer), None),
        Err(why) => (None, Some(why)),
    };
    Ok(ForeignModel {
        path: folder.to_owned(),
        tensors: Box::new(Tensors { folder: folder.to_owned(), files, infos, stored }),
        dims: config.dims,
        iteration: 0,
        best_val_loss: None,
        tokens: None,
        seconds: None,
        config: Map::new(),
        optimizer: Map::new(),
        has_moments: false,
        gelu: Some(config.gelu),
        tokenizer,
        no_tokenizer,
        notices: notice.into_iter().collect(),
    })
}

/// A parameter and where it is.
struct Stored {
    param: Param,
    file: usize,
    entry: usize,
    dtype: Dtype,
}

impl Stored {
    fn info(&self) -> TensorInfo {
        TensorInfo::new(format!("weights/{}", self.param.name), Dtype::F32, self.param.shape.dims())
    }

    /// Rows and columns as they are in the file, if they must be transposed.
    fn transposed(&self) -> Option<(usize, usize)> {
        match (self.param.module.kind, self.param.kind, self.param.shape.dims()) {
            (ModuleKind::Linear, ParamKind::Weight, &[outputs, inputs]) => {
                Some((inputs as usize, outputs as usize))
            }
            _ => None,
        }
    }
}

fn refused(what: String) -> ForeignProblem {
    ForeignProblem::Refused { what }
}

/// Finds every parameter of the model in the files.
fn find(config: &Config, files: &[SafetensorsFile]) -> Result<Vec<Stored>, ForeignProblem> {
    let mut places = HashMap::new();
    for (file, opened) in files.iter().enumerate() {
        for (entry, tensor) in opened.entries().iter().enumerate() {
            let name = own_name(&tensor.name);
            if is_ignored(name) {
                continue;
            }
            if places.insert(name, (file, entry)).is_some() {
                let name = shown(&tensor.name);
                return Err(refused(format!("it has tensor {name} twice; download it again")));
            }
        }
    }
    places.remove(HEAD);
    let gelu = if config.gelu == "erf" { GeluKind::Erf } else { GeluKind::Tanh };
    let params = model::Architecture::from(Gpt2 { gelu }).parameters(&config.dims);
    let params = params.map_err(|error| refused(error.to_string()))?;
    let mut stored = Vec::with_capacity(params.len());
    for param in params {
        let place = places.remove(param.name.as_str());
        let (file, entry) = place.ok_or_else(|| {
            refused(format!("it has no tensor {}; its config.json asks for it", param.name))
        })?;
        stored.push(check(param, file, entry, files)?);
    }
    match places.keys().min() {
        None => Ok(stored),
        Some(name) => Err(refused(format!(
            "it has tensor {}, which is not a part of the GPT-2 in its config.json; save only the \
             language model",
            shown(name)
        ))),
    }
}

fn own_name(name: &str) -> &str {
    name.strip_prefix(PREFIX).unwrap_or(name)
}

/// Masks that old versions saved with each block.
fn is_ignored(name: &str) -> bool {
    let is_mask = name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
    name.starts_with("h.") && is_mask
}

/// Checks the type and shape of a tensor.
fn check(
    param: Param,
    file: usize,
    entry: usize,
    files: &[SafetensorsFile],
) -> Result<Stored, ForeignProblem> {
    let tensor = &files[file].entries()[entry];
    let name = shown(&tensor.name);
    let known = [Dtype::F32, Dtype::F16, Dtype::BF16];
    let dtype = known.into_iter().find(|dtype| dtype.name() == tensor.dtype);
    let dtype = dtype.ok_or_else(|| {
        let dtype = shown(&tensor.dtype);
        refused(format!("{name} has type {dtype}; save the weights as F32, F16 or BF16"))
    })?;
    let stored = Stored { param, file, entry, dtype };
    let wanted = match stored.transposed() {
        Some((rows, columns)) => vec![rows as u64, columns as u64],
        None => stored.param.shape.dims().to_vec(),
    };
    if tensor.shape != wanted {
        let found = &tensor.shape;
        let found: Vec<u64> = found.iter().copied().take(8).collect();
        return Err(refused(format!(
            "{name} has shape {found:?}, but the sizes in config.json need {wanted:?}"
        )));
    }
    tensor.info().map_err(|what| ForeignProblem::Damaged { what })?;
    Ok(stored)
}

/// Refuses a head that is not the token embedding: with `tie_word_embeddings` false, Hugging Face
/// would use it.
fn check_head(files: &[SafetensorsFile], stored: &[Stored]) -> Result<(), ForeignProblem> {
    let heads = files.iter().enumerate().flat_map(|(file, opened)| {
        let entries = opened.entries().iter().enumerate();
        entries.filter(|(_, tensor)| tensor.name == HEAD).map(move |(entry, _)| (file, entry))
    });
    let embedding = stored.iter().find(|stored| stored.param.name == "wte.weight");
    let (Some(head), Some(embedding)) = (heads.last(), embedding) else {
        return Ok(());
    };
    let [(head, at), (wte, wte_at)] = [head, (embedding.file, embedding.entry)]
        .map(|(file, entry)| (&files[file].entries()[entry], (file, entry)));
    let same = head.shape == wte.shape
        && head.dtype == wte.dtype
        && head.end - head.start == wte.end - wte.start
        && is_equal(files, at, wte_at, head.end - head.start)?;
    match same {
        true => Ok(()),
        false => Err(refused(
            "tie_word_embeddings is false and lm_head.weight differs from wte.weight, but only a \
             tied head is supported: fitgpt cannot compute this model"
                .to_owned(),
        )),
    }
}

/// Whether two tensors have the same bytes.
fn is_equal(
    files: &[SafetensorsFile],
    one: (usize, usize),
    other: (usize, usize),
    bytes: u64,
) -> Result<bool, ForeignProblem> {
    let mut buffers = [vec![0; CHUNK], vec![0; CHUNK]];
    let mut from = 0;
    while from < bytes {
        let length = (bytes - from).min(CHUNK as u64) as usize;
        for ((file, entry), buffer) in [one, other].into_iter().zip(&mut buffers) {
            let read = files[file].read(entry, from, &mut buffer[..length]);
            read.map_err(|error| refused(error.problem.to_string()))?;
        }
        if buffers[0][..length] != buffers[1][..length] {
            return Ok(false);
        }
        from += length as u64;
    }
    Ok(true)
}

/// The folder's tensors.
struct Tensors {
    folder: PathBuf,
    files: Vec<SafetensorsFile>,
    infos: Vec<TensorInfo>,
    /// One for each of `infos`.
    stored: Vec<Stored>,
}

impl TensorSource for Tensors {
    fn tensors(&self) -> &[TensorInfo] {
        &self.infos
    }

    fn read(&self, index: usize, content: &mut [u8]) -> Result<(), ReadError> {
        let bad = |problem| ReadError { path: self.folder.clone(), problem };
        let count = self.infos.len();
        let (Some(stored), Some(info)) = (self.stored.get(index), self.infos.get(index)) else {
            return Err(bad(ReadProblem::NoSuchTensor { index, count }));
        };
        let (needed, given) = (info.bytes().unwrap_or(u64::MAX), content.len() as u64);
        if needed != given {
            let tensor = info.name.clone();
            return Err(bad(ReadProblem::BufferSize { tensor, needed, given }));
        }
        let elements = content.len() / 4;
        let (rows, columns) = stored.transposed().unwrap_or((1, elements));
        let file =
            Part { file: &self.files[stored.file], entry: stored.entry, dtype: stored.dtype };
        match stored.transposed() {
            Some(_) => file.transposed(rows, columns, content),
            None => file.straight(elements, content),
        }
    }
}

/// A tensor in a file.
struct Part<'a> {
    file: &'a SafetensorsFile,
    entry: usize,
    dtype: Dtype,
}

impl Part<'_> {
    /// Reads elements in the order of the file.
    fn straight(&self, elements: usize, content: &mut [u8]) -> Result<(), ReadError> {
        let size = self.dtype.bytes() as usize;
        if self.dtype == Dtype::F32 {
            return self.file.read(self.entry, 0, content);
        }
        let step = CHUNK / size;
        let mut chunk = vec![0; step.min(elements) * size];
        for first in (0..elements).step_by(step) {
            let count = step.min(elements - first);
            let bytes = &mut chunk[..count * size];
            self.file.read(self.entry, (first * size) as u64, bytes)?;
            for index in 0..count {
                number::put(
                    Dtype::F32,
                    content,
                    first + index,
                    number::at(self.dtype, bytes, index),
                );
            }
        }
        Ok(())
    }

    /// Reads some rows of the file at a time and writes them as columns.
    fn transposed(&self, rows: usize, columns: usize, content: &mut [u8]) -> Result<(), ReadError> {
        let size = self.dtype.bytes() as usize;
        let step = (CHUNK / (columns * size).max(1)).clamp(1, 64);
        let mut chunk = vec![0; step.min(rows) * columns * size];
        for first in (0..rows).step_by(step) {
            let count = step.min(rows - first);
            let bytes = &mut chunk[..count * columns * size];
            self.file.read(self.entry, (first * columns * size) as u64, bytes)?;
            for column in 0..columns {
                for row in 0..count {
                    let element = number::at(self.dtype, bytes, row * columns + column);
                    number::put(Dtype::F32, content, column * rows + first + row, element);
                }
            }
        }
        Ok(())
    }
}
