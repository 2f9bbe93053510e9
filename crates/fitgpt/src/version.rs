//! What `fitgpt --version` prints: version, commit and target; with `--json` also what was found on
//! this machine.

use crate::survey::Survey;
use ::train::TrainError;
use serde_json::{Map, Value, json};

/// The first field of the document.
const SCHEMA: &str = "fitgpt.version/1";

const VERSION: &str = env!("CARGO_PKG_VERSION");
const TARGET: &str = env!("FITGPT_TARGET");

/// The commit that was built, if it is known.
fn commit() -> Option<&'static str> {
    Some(env!("FITGPT_COMMIT")).filter(|commit| !commit.is_empty())
}

/// One line: `fitgpt 0.1.0 (d6b06a2f1c3e, x86_64-unknown-linux-gnu)`.
pub fn line() -> String {
    let commit = commit().map(|commit| format!("{commit}, ")).unwrap_or_default();
    format!("fitgpt {VERSION} ({commit}{TARGET})\n")
}

/// The same as a document, with the instruction set and the libraries of this machine.
pub fn document() -> Result<Value, TrainError> {
    let reading = Survey::new().read()?;
    let libraries = reading.libraries.iter().map(|library| {
        let found = library.problem.is_none();
        (library.key.to_string(), json!(found.then_some(&library.version)))
    });
    Ok(json!({
        "schema": SCHEMA,
        "version": VERSION,
        "commit": commit(),
        "target": TARGET,
        "found": {
            "instruction_set": reading.cpu.instruction_set,
            "gpus": reading.gpus.len(),
            "libraries": Map::from_iter(libraries),
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_names_its_target() {
        let line = line();
        assert!(line.starts_with(&format!("fitgpt {VERSION} (")), "{line}");
        assert!(line.trim_end().ends_with(&format!("{TARGET})")), "{line}");
        assert!(!TARGET.is_empty());
    }
}
