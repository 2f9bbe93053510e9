//! Lines in the inbox that trackio has not imported yet. Of lines with the same `log_id`, it keeps
//! the first that it imports; a resumed run therefore removes those that it will write again. A
//! file only gets fewer lines: if trackio imports it at the same moment, nothing is lost.

use super::{TEMPORARY, put};
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Result};
use std::path::Path;

/// Largest file that is looked at; ours are little more than half of it.
const LARGEST: u64 = 2 << 20;

/// Removes the lines from an iteration on, in all folders of the run. An evaluation at this
/// iteration stays: it is the same if it is repeated. What cannot be read or written stays as it
/// is.
pub fn cut(inbox: &Path, prefix: &str, iter: u64) {
    for folder in std::fs::read_dir(inbox).into_iter().flatten().flatten() {
        if !folder.file_name().to_string_lossy().starts_with(prefix) {
            continue;
        }
        for file in std::fs::read_dir(folder.path()).into_iter().flatten().flatten() {
            let path = file.path();
            let ending = path.extension().unwrap_or_default();
            if !path.is_file() {
                continue;
            }
            if ending == "jsonl" {
                // The next one may be readable.
                let _ = cut_file(&path, iter);
            } else if ending == TEMPORARY {
                // Left by a kill. What it has came after the last checkpoint.
                let _ = std::fs::remove_file(&path);
            }
        }
    }
}

fn cut_file(path: &Path, iter: u64) -> Result<()> {
    let mut text = String::new();
    let bytes = File::open(path)?.take(LARGEST).read_to_string(&mut text)?;
    if bytes as u64 == LARGEST {
        return Ok(());
    }
    let kept: String = text.split_inclusive('\n').filter(|line| stays(line, iter)).collect();
    match kept.len() {
        length if length == text.len() => Ok(()),
        0 => std::fs::remove_file(path),
        _ => put(path, kept.as_bytes()),
    }
}

fn stays(line: &str, iter: u64) -> bool {
    let Ok(line) = serde_json::from_str::<Value>(line) else { return true };
    let is_evaluation = line["metrics"].get("val/loss").is_some();
    let limit = iter.saturating_add(u64::from(is_evaluation));
    line["step"].as_u64().is_none_or(|step| step < limit)
}
