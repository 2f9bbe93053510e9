//! The index of a model whose weights are in several files: which files there are.

use crate::{Pick, Scalar};
use serde_core::de::{Error, IgnoredAny, MapAccess};
use std::collections::BTreeSet;

/// Most bytes of an index: a hundred for each of 100,000 tensors.
pub const MOST_INDEX_BYTES: u64 = 16 << 20;
/// Most files of a model.
const MOST: usize = 1000;

/// The files that a `model.safetensors.index.json` names, each once, in order.
///
/// # Errors
///
/// When it is not such an index, or names something else than files beside it.
pub fn weight_files(index: &[u8]) -> Result<Vec<String>, String> {
    let Index(WeightMap(files)) =
        crate::read(index).map_err(|error| format!("is not an index ({error})"))?;
    if files.is_empty() {
        return Err("names no files".to_owned());
    }
    Ok(files.into_iter().collect())
}

/// Whether a name is a plain one, in the same folder.
fn is_plain(name: &str) -> bool {
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    name.len() <= 100
        && name.ends_with(".safetensors")
        && !name.starts_with('.')
        && name.bytes().all(is_usual)
}

/// The files of the weight map; everything else is skipped.
#[derive(Default)]
struct Index(WeightMap);

impl Pick for Index {
    fn field<'de, M: MapAccess<'de>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            "weight_map" => self.0 = crate::value(map)?,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

/// A file for each tensor.
#[derive(Default)]
struct WeightMap(BTreeSet<String>);

impl Pick for WeightMap {
    fn field<'de, M: MapAccess<'de>>(&mut self, _: &str, map: &mut M) -> Result<(), M::Error> {
        let file: Scalar = crate::value(map)?;
        let file = file.text().unwrap_or_default();
        if !is_plain(file) {
            return Err(M::Error::custom(format!("{file:?} is not a file beside it")));
        }
        self.0.insert(file.to_owned());
        if self.0.len() > MOST {
            return Err(M::Error::custom(format!("more than {MOST} files")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_names_each_file_once() {
        let index = br#"{"metadata": {"total_size": [1]}, "weight_map":
            {"a": "model-2-of-2.safetensors", "b": "model-1-of-2.safetensors",
             "c": "model-2-of-2.safetensors"}}"#;
        let want = ["model-1-of-2.safetensors", "model-2-of-2.safetensors"];
        assert_eq!(weight_files(index).unwrap(), want);
    }

    #[test]
    fn anything_but_files_beside_it_is_refused() {
        for (index, word) in [
            ("", "is not an index"),
            ("[]", "names no files"),
            ("{}", "names no files"),
            (r#"{"weight_map": {"a": "../x.safetensors"}}"#, "\"../x.safetensors\" is not a file"),
            (r#"{"weight_map": {"a": "/x.safetensors"}}"#, "is not a file beside it"),
            (r#"{"weight_map": {"a": "pytorch_model.bin"}}"#, "is not a file beside it"),
            (r#"{"weight_map": {"a": 1}}"#, "is not an index"),
            (r#"{"weight_map": {"a": "a\nb.safetensors"}}"#, "\"a\\nb.safetensors\" is not a file"),
            (r#"{"weight_map": {"a": ".safetensors"}}"#, "is not a file beside it"),
        ] {
            let said = weight_files(index.as_bytes()).unwrap_err();
            assert!(said.contains(word) && !said.contains('\n'), "{index}: {said}");
        }
        let many: Vec<String> =
            (0..2000).map(|shard| format!(r#""{shard}": "{shard}.safetensors""#)).collect();
        let many = format!(r#"{{"weight_map": {{{}}}}}"#, many.join(", "));
        assert!(weight_files(many.as_bytes()).unwrap_err().contains("more than 1000 files"));
    }
}
