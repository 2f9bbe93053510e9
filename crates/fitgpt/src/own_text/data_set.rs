//! The data set of a text: its name, its folder, and its preparation where it is not there yet.

use crate::invocation::program;
use crate::numbers::grouped;
use crate::preparation::{Preparation, few_val_tokens, size};
use crate::screen;
use prepare::{
    Client, Hub, Job, MOST_WORKERS, Outcome, PrepareError, Request, SEED, TokenizerChoice, Totals,
};
use spec::shell::quoted;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use train::TrainError;

/// Texts of fewer bytes are learnt character by character: a vocabulary of 50,257 would be larger
/// than what they teach.
const CHARACTERS_BELOW: u64 = 10_000_000;

/// Bytes for validation that are enough, however large the text.
const ENOUGH_FOR_VALIDATION: f64 = 1e6;

/// The share of a folder's documents for validation is between these.
const SMALLEST_SHARE: f64 = 0.0005;
const LARGEST_SHARE: f64 = 0.1;

/// Whether a folder is a data set.
pub fn is_data_set(path: &Path) -> bool {
    path.join("train.bin").exists()
}

/// The name of a text without folders and ending: `books/emma.txt.gz` is `emma`.
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

/// How `--dataset` names a folder: without `data/`, or by its whole path where it lies elsewhere.
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

/// Makes the data set of a text in `out`, or finds it there. False when it was asked to stop.
pub fn prepared(path: &str, out: &Path, stop: &Arc<AtomicBool>) -> Result<bool, TrainError> {
    let client = Client::new(Hub::from_environment(), Arc::clone(stop));
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
            screen::line("the text is not prepared yet; the same command resumes from here");
            return Ok(false);
        }
        Outcome::Done(totals) => tell(path, out, words, &job, &totals),
        Outcome::Already(_) => {
            screen::line(&format!("{path}: prepared before, in {}", out.display()));
        }
    }
    Ok(true)
}

/// The whole path, so that one text has one name however it is typed.
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

/// What was made of the text, and what is odd about it.
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
            "{places} places were not UTF-8 and became U+FFFD; if it is Latin-1, convert it with \
             iconv -f latin1 -t utf-8 and prepare it again"
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

/// What went wrong, with what to do next.
fn failed(error: &PrepareError, path: &str, out: &Path) -> TrainError {
    let (program, folder) = (program(), quoted(&out.to_string_lossy()));
    let prepare = format!("{program} prepare {} --out {folder}", quoted(path));
    let what = match error {
        PrepareError::OtherDataSet { .. } => format!(
            "{} was made from another text, from another version of {path}, or in another way; \
             to train on what is there: `{program} train {folder}`; to make it again: `{prepare} \
             --tokenizer char --overwrite`",
            out.display()
        ),
        PrepareError::Source { .. } => {
            format!("{error}; `{prepare}` has flags for other formats")
        }
        other => other.to_string(),
    };
    TrainError::Text { what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stems_are_names_without_endings() {
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
