//! The files of a folder's weights: one `model.safetensors`, or shards and their index.

use crate::error::{ForeignError, ForeignProblem};
use crate::{bounded_file, shown};
use checkpoint::SafetensorsFile;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The file of weights that are not sharded.
pub(crate) const SINGLE: &str = "model.safetensors";

/// Lists the shards.
const INDEX: &str = "model.safetensors.index.json";

/// PyTorch's file of weights, and the index of several.
const PYTORCH: [&str; 2] = ["pytorch_model.bin", "pytorch_model.bin.index.json"];

/// Most bytes of an index. It has a line for each tensor.
const INDEX_LIMIT: u64 = 16 << 20;

/// Most shards; all are open at once. GPT-2 XL has two at most.
const MOST_SHARDS: usize = 1000;

/// Longest name of a file on the usual file systems.
const LONGEST_NAME: usize = 255;

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
        return match named_in(&bounded_file::read_json(&index, INDEX_LIMIT)?) {
            Ok(names) => Ok(names.iter().map(|name| folder.join(name)).collect()),
            Err(what) => refused(index, what),
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

/// The files that an index names, each once.
fn named_in(index: &Value) -> Result<BTreeSet<&str>, String> {
    let map = index.get("weight_map").and_then(Value::as_object);
    let map = map.ok_or("it has no weight_map; download it again")?;
    let mut names = BTreeSet::new();
    for (tensor, file) in map {
        let name = file.as_str().unwrap_or_default();
        let is_plain = Path::new(name).file_name().is_some_and(|own| own == name);
        let is_usual = name.len() <= LONGEST_NAME && !name.contains(char::is_control);
        if !(is_plain && is_usual) {
            let (tensor, name) = (shown(tensor), shown(name));
            return Err(format!("'{name}', the file of {tensor}, is not a name in its folder"));
        }
        names.insert(name);
        if names.len() > MOST_SHARDS {
            return Err(format!("it names more than {MOST_SHARDS} files"));
        }
    }
    match names.is_empty() {
        true => Err("its weight_map is empty; download it again".to_owned()),
        false => Ok(names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_index_names_files_of_its_own_folder() {
        let index = json!({"weight_map": {"a": "one.safetensors", "b": "two.safetensors",
                                          "c": "one.safetensors"}});
        let names: Vec<&str> = named_in(&index).unwrap().into_iter().collect();
        assert_eq!(names, ["one.safetensors", "two.safetensors"]);
        for (file, want) in [
            (json!("../x"), "'../x', the file of a, is not a name in its folder"),
            (json!("/etc/passwd"), "is not a name in its folder"),
            (json!(".."), "is not a name"),
            (json!(""), "is not a name"),
            (json!(1), "is not a name"),
            (json!("a\nb"), "'a\\nb', the file of a, is not a name"),
            (json!("x".repeat(300)), "is not a name"),
        ] {
            let error = named_in(&json!({"weight_map": {"a": file}})).unwrap_err();
            assert!(error.contains(want), "{error}");
        }
        assert!(named_in(&json!({})).unwrap_err().contains("no weight_map"));
        assert!(named_in(&json!({"weight_map": {}})).unwrap_err().contains("empty"));
        let many: serde_json::Map<_, _> =
            (0..2000).map(|shard| (shard.to_string(), format!("{shard}.st").into())).collect();
        assert!(named_in(&json!({"weight_map": many})).unwrap_err().contains("more than 1000"));
    }
}
