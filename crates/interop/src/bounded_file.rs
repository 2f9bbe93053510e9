//! Small files of other programs, read whole but never beyond a limit.

use crate::error::{ForeignError, ForeignProblem};
use checkpoint::bounded_json;
use serde_json::Value;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// Memory for parsed values in addition to the file's size. GPT-2's tokenizer.json needs 30 MiB.
const VALUES_LIMIT: usize = 96 << 20;

/// The content of a file of at most `most` bytes.
pub(crate) fn read(path: &Path, most: u64) -> Result<Vec<u8>, ForeignError> {
    let failed = |problem| ForeignError { path: path.to_owned(), problem };
    let io = |source| failed(ForeignProblem::Io { doing: "read it", source });
    // Checked before opening, because opening a pipe waits for a writer.
    if !fs::metadata(path).map_err(io)?.is_file() {
        let what = "this is not a regular file".to_owned();
        return Err(failed(ForeignProblem::Refused { what }));
    }
    let mut content = Vec::new();
    File::open(path).map_err(io)?.take(most + 1).read_to_end(&mut content).map_err(io)?;
    if content.len() as u64 > most {
        let what = format!("it has more than {most} bytes; is it the right file?");
        return Err(failed(ForeignProblem::Refused { what }));
    }
    Ok(content)
}

/// The JSON in a file of at most `most` bytes.
pub(crate) fn read_json(path: &Path, most: u64) -> Result<Value, ForeignError> {
    let content = read(path, most)?;
    bounded_json::parse(&content, VALUES_LIMIT + content.len()).map_err(|error| ForeignError {
        path: path.to_owned(),
        problem: ForeignProblem::Damaged { what: format!("it is not JSON: {error}") },
    })
}
