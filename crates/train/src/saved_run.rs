//! A checkpoint that was opened, ours or another program's: its document, and its tensors until
//! they are loaded.

use crate::engine::Engine;
use crate::error::TrainError;
use crate::foreign_document;
use crate::save::{self, Document};
use crate::settings_json::Whose;
use checkpoint::{ReadProblem, TensorSource};
use data::{BUILTIN, Dataset};
use interop::{Cropped, ForeignModel, hf, torch};
use plan::ops::GeluKind;
use spec::PretrainedModel;
use std::path::{Path, PathBuf};
use tokenizer::Tokenizer;

/// A checkpoint of a run, opened.
pub struct SavedRun {
    /// The file.
    pub path: PathBuf,
    /// The document about the run.
    pub document: Document,
    /// Lines about which file this is and what is taken from it.
    pub notices: Vec<String>,
    /// Whether it has the optimizer's moments; else it is a model alone.
    pub has_moments: bool,
    /// The document as the file has it.
    stamp: String,
    is_foreign: bool,
    /// Why another program's files have no tokenizer that can be used.
    no_tokenizer: Option<String>,
    /// The length to which the context is cut.
    cropped: Option<u64>,
    /// Reads the tensors; none once they are loaded.
    tensors: Option<Box<dyn TensorSource>>,
}

impl SavedRun {
    /// Opens a file.
    pub(crate) fn open(path: &Path) -> Result<SavedRun, TrainError> {
        let Parts { tensors, document, is_foreign, no_tokenizer, notices } = parts(path)?;
        Ok(SavedRun {
            path: path.to_path_buf(),
            stamp: document.to_json()?,
            document,
            notices,
            has_moments: save::has_moments(tensors.as_ref()),
            is_foreign,
            no_tokenizer,
            cropped: None,
            tensors: Some(tensors),
        })
    }

    /// Whether another program wrote it.
    pub fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    /// Whether it knows the position in the data. Another program's file does not, nor does a file
    /// that was exported from one, which no version of ours has trained.
    pub fn has_position(&self) -> bool {
        !self.is_foreign && !self.document.version.is_empty()
    }

    /// Whose settings its document has.
    pub(crate) fn whose(&self) -> Whose {
        match self.is_foreign {
            true => Whose::Foreign { has_moments: self.has_moments },
            false => Whose::Ours,
        }
    }

    /// Uses only the first positions of the model's context.
    pub fn crop(&mut self, block_size: u64) {
        if block_size < self.document.dims.block_size {
            self.document.dims.block_size = block_size;
            self.cropped = Some(block_size);
            let crop =
                |tensors| -> Box<dyn TensorSource> { Box::new(Cropped::new(tensors, block_size)) };
            self.tensors = self.tensors.take().map(crop);
        }
    }

    /// Its tensors. After [`SavedRun::load`] they are those of the file that has the name now.
    pub fn tensors(&mut self) -> Result<&dyn TensorSource, TrainError> {
        let tensors = self.take_tensors()?;
        Ok(&**self.tensors.insert(tensors))
    }

    fn take_tensors(&mut self) -> Result<Box<dyn TensorSource>, TrainError> {
        Ok(match (self.tensors.take(), self.cropped) {
            (Some(tensors), _) => tensors,
            (None, None) => parts(&self.path)?.tensors,
            (None, Some(rows)) => Box::new(Cropped::new(parts(&self.path)?.tensors, rows)),
        })
    }

    /// Whether the file is still the one that was opened.
    pub(crate) fn is_as_it_was(&self) -> Result<bool, TrainError> {
        Ok(parts(&self.path)?.document.to_json()? == self.stamp)
    }

    /// Loads the tensors into the engine and closes the file: an open file would still take disk
    /// space after a save has replaced it. `buffer` is from [`save::buffer`].
    pub fn load(&mut self, engine: &mut Engine, buffer: &mut [u8]) -> Result<(), TrainError> {
        let tensors = self.take_tensors()?;
        save::load(engine, tensors.as_ref(), &self.path, buffer)
    }

    /// Loads the weights alone; the engine's optimizer stays as it is.
    pub fn load_weights(
        &mut self,
        engine: &mut Engine,
        buffer: &mut [u8],
    ) -> Result<(), TrainError> {
        let tensors = self.take_tensors()?;
        save::load_weights(engine, tensors.as_ref(), &self.path, buffer)
    }

    /// What it says about its model, for a run that starts from its weights.
    pub fn pretrained(&self) -> PretrainedModel {
        let gelu = self.document.config.get("gelu").and_then(|gelu| gelu.as_str());
        let gelu = gelu_kind(gelu.unwrap_or_default());
        PretrainedModel { dims: self.document.dims, gelu }
    }

    /// What converts its ids to text. nanoGPT's file does not have it: as in nanoGPT, it is that of
    /// the data set that the file names, or GPT-2's.
    pub fn tokenizer(&self) -> Result<Tokenizer, TrainError> {
        if let Some(tokenizer) = &self.document.tokenizer {
            return Ok(tokenizer.clone());
        }
        let unknown = |what: String| TrainError::Mismatch { path: self.path.clone(), what };
        let unusable = "so its ids cannot be turned into text";
        if let Some(why) = &self.no_tokenizer {
            return Err(unknown(format!("{why}, {unusable}")));
        }
        if !self.is_foreign && self.document.version.is_empty() {
            return Err(unknown(format!(
                "it was exported without a tokenizer, {unusable}; export it again in the folder in \
                 which it was trained"
            )));
        }
        if !self.is_foreign {
            return Err(unknown(format!(
                "its data set had neither characters in meta.pkl nor a tokenizer.json, {unusable}"
            )));
        }
        let rows = self.document.dims.vocab_size;
        let dataset = self.document.config.get("dataset").and_then(|name| name.as_str());
        let folder = dataset.map(|name| Path::new("data").join(name));
        let found = match &folder {
            Some(_) if dataset == Some(BUILTIN) => Dataset::builtin().tokenizer(),
            Some(folder) => data::folder_tokenizer(folder),
            None => Ok(Tokenizer::Gpt2),
        };
        found.ok().filter(|found| u64::from(found.vocab_size()) <= rows).ok_or_else(|| {
            let folder = folder.map_or("unknown".to_string(), |path| path.display().to_string());
            unknown(format!(
                "its {rows} ids cannot be turned into text without the meta.pkl of its data set \
                 ({folder}); run this in the folder in which it was trained"
            ))
        })
    }

    /// Why the resumed run may not be bit-identical to the saved one; none if it is.
    pub fn other_bits(&self, now: &Document) -> Option<String> {
        if !self.has_position() {
            return None; // it says where it comes from already
        }
        let saved = &self.document;
        let pairs = [
            ("version", &saved.version, &now.version),
            ("device", &saved.device, &now.device),
            ("plan", &saved.steps_hash, &now.steps_hash),
        ];
        if let Some((what, old, new)) = pairs.into_iter().find(|(_, old, new)| old != new) {
            return Some(format!(
                "the {what} is {new}, but the run was saved with {old}: it resumes, but may not be \
                 bit-identical"
            ));
        }
        (saved.choices != now.choices).then(|| {
            "matmuls use other algorithms than when the run was saved: it resumes, but may not be \
             bit-identical"
                .to_string()
        })
    }
}

/// The GELU of a word in a document; nanoGPT's if it does not say.
pub fn gelu_kind(word: &str) -> GeluKind {
    match word {
        "tanh" => GeluKind::Tanh,
        _ => GeluKind::Erf,
    }
}

/// What a file has.
struct Parts {
    tensors: Box<dyn TensorSource>,
    document: Document,
    is_foreign: bool,
    no_tokenizer: Option<String>,
    notices: Vec<String>,
}

/// Opens a file, ours or another program's, or a folder of Hugging Face's.
fn parts(path: &Path) -> Result<Parts, TrainError> {
    if hf::is_folder(path) {
        return Ok(Parts::of(hf::open(path)?));
    }
    if torch::is_torch(path) {
        return Ok(Parts::of(torch::open(path)?));
    }
    match (save::open(path), path.parent()) {
        (Err(TrainError::Read(error)), Some(folder))
            if matches!(error.problem, ReadProblem::Foreign) && hf::is_folder(folder) =>
        {
            Ok(Parts::of(hf::open(folder)?))
        }
        (opened, _) => {
            let (reader, document) = opened?;
            let (tensors, notices) = (Box::new(reader), Vec::new());
            Ok(Parts { tensors, document, is_foreign: false, no_tokenizer: None, notices })
        }
    }
}

impl Parts {
    fn of(model: ForeignModel) -> Parts {
        let document = foreign_document::of(&model);
        let ForeignModel { tensors, no_tokenizer, notices, .. } = model;
        Parts { tensors, document, is_foreign: true, no_tokenizer, notices }
    }
}
