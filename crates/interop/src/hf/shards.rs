//! The files of a folder's weights: one `model.safetensors`, or shards and their index.

use crate::bounded_file;
use crate::error::{ForeignError, ForeignProblem};
use checkpoint::SafetensorsFile;
use std::path::{Path, PathBuf};

/// The file of weights that are not sharded.
pub(crate) const SINGLE: &str = "model.safetensors";

/// Lists the shards.
const INDEX: &str = "model.safetensors.index.json";

/// PyTorch's file of weights, and the index of several.
const PYTORCH: [&str; 2] = ["pytorch_model.bin", "pytorch_model.bin.index.json"];

/// Opens the files of a folder's weights.
pub(crate) fn open(folder: &Path) -> Result<Vec<SafetensorsFile>, ForeignError> {
    let mut files = Vec::new();
    for path in paths(folder)? {
        let opened = SafetensorsFile::open(&path);
        files.push(opened.map_err(|error| ForeignError {
            path: error.path,
            problem: ForeignProblem::Refused { what: error.problem.to_string() },
        })?);
    }
    Ok(files)
}

fn paths(folder: &Path) -> Result<Vec<PathBuf>, ForeignError> {
    let refused = |path: PathBuf, what: String| {
        Err(ForeignError { path, problem: ForeignProblem::Refused { what } })
    };
    let single = folder.join(SINGLE);
    if single.exists() {
        return Ok(vec![single]);
    }
    let index = folder.join(INDEX);
    if index.exists() {
        let content = bounded_file::read(&index, pick::MOST_INDEX_BYTES)?;
        return match pick::weight_files(&content) {
            Ok(names) => Ok(names.iter().map(|name| folder.join(name)).collect()),
            Err(what) => refused(index, format!("{what}; download it again")),
        };
    }
    if PYTORCH.iter().any(|name| folder.join(name).exists()) {
        let what = format!(
            "its weights are a PyTorch file; write them as safetensors first: python -c \"from \
             transformers import GPT2LMHeadModel as M; \
             M.from_pretrained('{0}').save_pretrained('{0}')\"",
            folder.display()
        );
        return refused(folder.to_owned(), what);
    }
    let what = format!("it has a config.json, but no {SINGLE}: is the download complete?");
    refused(folder.to_owned(), what)
}
