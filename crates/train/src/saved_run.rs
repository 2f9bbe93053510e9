//! A checkpoint that was opened: its document, and its tensors until they are loaded.

use crate::engine::Engine;
use crate::error::TrainError;
use crate::save::{self, Document};
use checkpoint::TensorSource;
use std::path::{Path, PathBuf};

/// A checkpoint of the run, opened.
pub struct SavedRun {
    /// The file.
    pub path: PathBuf,
    /// The document about the run.
    pub document: Document,
    /// Reads the tensors; none once they are loaded.
    tensors: Option<Box<dyn TensorSource>>,
}

impl SavedRun {
    /// Opens a file.
    pub(crate) fn open(path: &Path) -> Result<SavedRun, TrainError> {
        let (tensors, document) = parts(path)?;
        Ok(SavedRun { path: path.to_path_buf(), document, tensors: Some(tensors) })
    }

    /// Its tensors. After [`SavedRun::load`] they are those of the file that has the name now.
    pub fn tensors(&mut self) -> Result<&dyn TensorSource, TrainError> {
        let tensors = match self.tensors.take() {
            Some(tensors) => tensors,
            None => parts(&self.path)?.0,
        };
        Ok(&**self.tensors.insert(tensors))
    }

    /// Whether the file is still the one that was opened.
    pub(crate) fn is_as_it_was(&self) -> Result<bool, TrainError> {
        Ok(parts(&self.path)?.1.to_json()? == self.document.to_json()?)
    }

    /// Loads the tensors into the engine and closes the file: an open file would still take disk
    /// space after a save has replaced it. `buffer` is from [`save::buffer`].
    pub fn load(&mut self, engine: &mut Engine, buffer: &mut [u8]) -> Result<(), TrainError> {
        let tensors = match self.tensors.take() {
            Some(tensors) => tensors,
            None => parts(&self.path)?.0,
        };
        save::load(engine, tensors.as_ref(), &self.path, buffer)
    }

    /// Why the resumed run may not be bit-identical to the saved one; none if it is.
    pub fn other_bits(&self, now: &Document) -> Option<String> {
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

/// A file's tensors and its document.
fn parts(path: &Path) -> Result<(Box<dyn TensorSource>, Document), TrainError> {
    let (reader, document) = save::open(path)?;
    Ok((Box::new(reader), document))
}
