//! The data set of a text: its name, its folder, and its preparation if it does not exist yet.

use crate::invocation::program;
use crate::numbers::grouped;
use crate::preparation::{Preparation, few_val_tokens, size};
use crate::screen;
use prepare::{
    Client, Job, MOST_WORKERS, Outcome, PrepareError, Request, SEED, TokenizerChoice, Totals,
};
use spec::shell::quoted;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use train::TrainError;

/// Smaller texts are trained on character by character: for them, a vocabulary of 50,257 tokens is
/// too large.
const CHARACTERS_BELOW: u64 = 10_000_000;

/// This many bytes are enough for validation, however large the text is.
const ENOUGH_FOR_VALIDATION: f64 = 1e6;

/// Limits of the share of a folder's documents that is used for validation.
const SMALLEST_SHARE: f64 = 0.0005;
const LARGEST_SHARE: f64 = 0.1;

/// Whether a folder holds a data set.
pub fn is_data_set(path: &Path) -> bool {
    path.join("train.bin").exists()
}

/// The name of a text without folders and extension: `books/emma.txt.gz` is `emma`.
pub fn stem_of(path: &str) -> String {
    let whole = Path::new(path).canonicalize().unwrap_or_else(|_| PathBuf::from(path));
    let name = whole.file_name().map_or("text".into(), |name| name.to_string_lossy().into_owned());
    if whole.is_dir() {
        return name;
    }
    let unpacked = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst")).unwrap_or(&name);
    let stem = unpacked.rsplit_once('.').map_or(unpacked, |(stem, _)| stem);
    if stem.is_empty() { name.trim_start_matches('.').to_string() } else { stem.to_string() }
}

/// How `--dataset` names a folder: without `data/`, or by its absolute path if it is elsewhere.
pub fn dataset_name(folder: &Path) -> String {
    let parent = folder.canonicalize().ok().and_then(|whole| whole.parent().map(PathBuf::from));
    let in_data = match (parent, Path::new("data").canonicalize()) {
        (Some(parent), Ok(data)) => parent == data,
        _ => folder.parent() == Some(Path::new("data")), // not there yet
    };
    let name = folder.file_name().filter(|_| in_data);
    let whole = || folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
    name.map_or_else(
        || whole().to_string_lossy().into_owned(),
        |n| n.to_string_lossy().into_owned(),
    )
}

/// Whether two paths lead to one folder.
pub fn same_folder(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

/// Prepares the data set of a text in `out`, unless it exists. False if it was interrupted.
pub fn prepared(path: &str, out: &Path, stop: &Arc<AtomicBool>) -> Result<bool, TrainError> {
    let client = Client::from_environment(Arc::clone(stop));
    let failed = |error: PrepareError| failed(&error, path, out);
    let looked = Job::new(request(path, out), &client).map_err(failed)?;
    let (tokenizer, words) = match looked.bytes < CHARACTERS_BELOW {
        true => (TokenizerChoice::Char, "characters"),
        false => (TokenizerChoice::Gpt2, "GPT-2 tokens"),
    };
    let val = (!looked.by_position).then(|| share_for_validation(looked.bytes));
    let request = Request { tokenizer: Some(tokenizer), val, ..request(path, out) };
    let job = Job::new(request, &client).map_err(failed)?;
    let mut watching = Preparation::new(&job);
    let outcome = prepare::run(job.clone(), &client, &mut watching);
    watching.finish();
    match outcome.map_err(failed)? {
        Outcome::Interrupted(_) => {
            screen::line("the text is not fully prepared yet; run the same command to resume");
            return Ok(false);
        }
        Outcome::Done(totals) => tell(path, out, words, &job, &totals),
        Outcome::Already(_) => {
            screen::line(&format!("{path}: already prepared in {}", out.display()));
        }
    }
    Ok(true)
}

/// Uses the absolute path, so that a text has one name however it is typed.
fn request(path: &str, out: &Path) -> Request {
    let whole = Path::new(path).canonicalize().ok();
    let source = whole.and_then(|whole| whole.to_str().map(str::to_string));
    Request {
        sources: vec![source.unwrap_or_else(|| path.to_string())],
        out: out.to_path_buf(),
        tokenizer: None,
        val: None,
        field: "text".to_string(),
        column: None,
        format: None,
        seed: SEED,
        workers: std::thread::available_parallelism().map_or(1, usize::from).min(MOST_WORKERS),
        max_tokens: None,
        keep_downloads: false,
        overwrite: false,
        ignore_space: false,
    }
}

/// Prints what was prepared, and warnings about the text.
fn tell(path: &str, out: &Path, words: &str, job: &Job, totals: &Totals) {
    let tokens = grouped(totals.train_tokens + totals.val_tokens);
    let (bytes, limit) = (size(totals.text_bytes), size(CHARACTERS_BELOW));
    let text = format!(
        "{path}: {bytes} of text as {tokens} {words} in {} (characters below {limit}, GPT-2 tokens \
         above)",
        out.display()
    );
    screen::line(&screen::wrapped(&text, 2, screen::wrap_width()));
    if totals.replaced > 0 {
        let places = grouped(totals.replaced);
        screen::notice(&format!(
            "{places} invalid UTF-8 sequences became U+FFFD; if the text is Latin-1, convert it \
             with iconv -f latin1 -t utf-8 and prepare it again"
        ));
    }
    if let Some(warning) = few_val_tokens(job, totals) {
        screen::notice(&warning);
    }
}

/// The share of a folder's documents that is enough for validation.
fn share_for_validation(bytes: u64) -> f64 {
    let enough = ENOUGH_FOR_VALIDATION / bytes.max(1) as f64;
    (enough.clamp(SMALLEST_SHARE, LARGEST_SHARE) * 1e4).round() / 1e4
}

/// The error of a failed preparation, with what to do next.
fn failed(error: &PrepareError, path: &str, out: &Path) -> TrainError {
    let (program, folder) = (program(), quoted(&out.to_string_lossy()));
    let prepare = format!("{program} prepare {} --out {folder}", quoted(path));
    let what = match error {
        PrepareError::OtherDataSet { .. } => format!(
            "{} was prepared from another text, another version of {path}, or with other flags; \
             to train on it as it is: `{program} train {folder}`; to prepare it again: `{prepare} \
             --tokenizer char --overwrite`",
            out.display()
        ),
        PrepareError::Source { .. } => {
            format!("{error}; for other formats, see the flags of `{prepare}`")
        }
        other => other.to_string(),
    };
    TrainError::Text { what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stems_are_names_without_extensions() {
        for (path, want) in [
            ("book.txt", "book"),
            ("a/b/corpus.jsonl.zst", "corpus"),
            ("note.v1.txt", "note.v1"),
            ("README", "README"),
            (".hidden", "hidden"),
        ] {
            assert_eq!(stem_of(path), want);
        }
    }

    #[test]
    fn a_data_set_in_data_goes_by_its_name() {
        for path in ["data/no-such-book", "data/no-such-book/"] {
            assert_eq!(dataset_name(Path::new(path)), "no-such-book");
        }
        assert!(Path::new(&dataset_name(Path::new("/tmp"))).is_absolute());
    }

    #[test]
    fn small_folders_keep_enough_for_validation() {
        assert_eq!(share_for_validation(1000), 0.1);
        assert_eq!(share_for_validation(100_000_000), 0.01);
        assert_eq!(share_for_validation(1 << 50), 0.0005);
    }
}
