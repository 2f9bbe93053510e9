//! `fitgpt data`: shows what token files contain: counts, and the first documents as text.

use super::line;
use crate::flags::{FlagSet, flags};
use crate::numbers::grouped;
use crate::preparation::size;
use crate::screen;
use crate::screen::show;
use ::train::TrainError;
use data::{DataError, Dataset, Split};
use spec::{SpecError, Values, words};
use std::path::{Path, PathBuf};
use tokenizer::{GPT2_IDS, Tokenizer};

words! {
    /// What `data` shows.
    pub enum Action {
        /// Counts.
        Stats = "stats",
        /// The first documents.
        Head = "head",
    }
}

const HEAD: &str = Action::Head.word();

flags! {
    /// The flags of `data`.
    pub struct Flags {
        /// number of documents to show; default 3
        documents: Option<String> = "--documents", "N" Values::Any, only HEAD;
        /// the split to show; default train
        split: Option<String> = "--split", "SPLIT" Values::Words(&Split::NAMES), only HEAD;
    }
}

/// The command's row.
pub static COMMAND: super::Command = super::Command {
    name: "data",
    about: "show what a data set contains: its size, its first documents",
    text: &["Shows what a data set contains. It need not have been made by fitgpt."],
    usage: &[
        line("fitgpt data stats FOLDER", "tokens, documents, ids"),
        line("fitgpt data head FOLDER [flags]", "the first documents as text"),
    ],
    examples: &[
        line("fitgpt data stats shakespeare_char", ""),
        line("fitgpt data head data/book --documents 1 --split val", ""),
    ],
    notes: &["If FOLDER is not a data set, data/FOLDER is tried."],
    lists_data_sets: false,
    arguments: &[Values::Words(Action::WORDS), Values::DataSet],
    flags: Flags::TABLE,
    closing: &[],
    keys: None,
    run,
};

/// Number of documents shown by default.
const DOCUMENTS: usize = 3;
/// The most tokens shown of a document. Text without document ends is one document.
const SHOWN: usize = 400;
/// Tokens read at a time.
const CHUNK: usize = 1 << 16;

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<u8, TrainError> {
    let (flags, rest) = Flags::read(arguments)?;
    let wrong = |what: &str| -> TrainError { SpecError::Conflict { what: what.to_owned() }.into() };
    let [action, folder] = &rest[..] else {
        return Err(wrong(
            "data needs an action and a folder: `data stats DIR` or `data head DIR`",
        ));
    };
    let Some(action) = Action::of(action) else {
        let shown: String = action.chars().take(40).collect();
        let words = Action::WORDS.join(" and ");
        return Err(wrong(&format!("data has no action '{shown}'; it has {words}")));
    };
    let (folder, dataset) = found(folder)?;
    match action {
        Action::Stats => show(&stats(&dataset, &folder)?)?,
        Action::Head => {
            let documents = flags.documents.map_or(Some(DOCUMENTS), |n| n.parse().ok());
            let documents = documents.filter(|count| (1..=1000).contains(count));
            let documents =
                documents.ok_or_else(|| wrong("--documents needs a number, 1 to 1000"))?;
            let split = flags.split.as_deref().map_or(Some(Split::Train), Split::of);
            let wanted = || format!("--split needs {}", Split::NAMES.join(" or "));
            let split = split.ok_or_else(|| wrong(&wanted()))?;
            let place = screen::faint(&folder.display().to_string());
            show(&format!("{place}\n{}", head(&dataset, split, documents)?))?;
        }
    }
    Ok(0)
}

/// Opens the data set of this name: a folder, or else one in `data`, where `prepare` and nanoGPT
/// put them.
fn found(name: &str) -> Result<(PathBuf, Dataset), TrainError> {
    let here = PathBuf::from(name);
    let in_data = Path::new("data").join(name);
    match Dataset::open(&here) {
        Ok(dataset) => Ok((here, dataset)),
        // If neither exists, the error is about the one in `data`.
        Err(DataError::Missing { .. }) if in_data.is_dir() || !here.exists() => {
            let dataset = Dataset::open(&in_data).map_err(TrainError::Data)?;
            Ok((in_data, dataset))
        }
        Err(error) => Err(TrainError::Data(error)),
    }
}

/// The text of ids, or the ids themselves without a tokenizer.
fn text_of(tokenizer: Option<&Tokenizer>, ids: &[i32]) -> String {
    match tokenizer {
        Some(tokenizer) => tokenizer.decode(ids),
        None => ids.iter().map(i32::to_string).collect::<Vec<_>>().join(" "),
    }
}

fn stats(dataset: &Dataset, folder: &Path) -> Result<String, TrainError> {
    let tokenizer = dataset.tokenizer();
    let kind = match &tokenizer {
        Ok(Tokenizer::Gpt2) => "GPT-2's BPE (there is no meta.pkl)".to_owned(),
        Ok(Tokenizer::Char(table)) => format!("{} characters", table.vocab_size()),
        Ok(Tokenizer::Json(_)) => "tokenizer.json".to_owned(),
        Err(why) => format!("unknown ({why})"),
    };
    let end_of_text = tokenizer.ok().and_then(|found| found.end_of_text()).map(i32::from);
    let vocab = dataset.meta().map_or(GPT2_IDS, |meta| meta.vocab_size);
    let mut out = format!("{}\n", screen::strong(&folder.display().to_string()));
    out += &format!("{:<12}{kind}, vocab_size {}\n", "tokens", grouped(vocab.into()));
    for split in [Split::Train, Split::Val] {
        let counts = count(dataset, split, end_of_text)?;
        let tokens = dataset.split(split).len();
        let documents = match end_of_text {
            Some(_) if counts.ends > 0 => {
                let mean = tokens as f64 / counts.ends as f64;
                format!(", {} documents of {mean:.0} tokens", grouped(counts.ends))
            }
            _ => String::new(),
        };
        out += &format!(
            "{:<12}{} tokens ({}){documents}, {} different ids, the highest {}\n",
            split.name(),
            grouped(tokens),
            size(2 * tokens),
            grouped(counts.different),
            counts.highest
        );
    }
    Ok(out)
}

struct Counts {
    ends: u64,
    different: u64,
    highest: i32,
}

/// Reads a whole split once.
fn count(dataset: &Dataset, split: Split, end: Option<i32>) -> Result<Counts, TrainError> {
    let stream = dataset.split(split);
    let mut seen = vec![0_u64; 1 << 16];
    let mut buffer = vec![0; CHUNK];
    let mut start = 0;
    while start < stream.len() {
        let some = (stream.len() - start).min(CHUNK as u64) as usize;
        stream.read(start, &mut buffer[..some]).map_err(TrainError::Data)?;
        for &id in &buffer[..some] {
            seen[id as usize & 0xffff] += 1;
        }
        start += some as u64;
    }
    let of_id = |id: i32| seen[id as usize & 0xffff];
    let highest = seen.iter().rposition(|count| *count > 0).unwrap_or(0) as i32;
    let different = seen.iter().filter(|count| **count > 0).count() as u64;
    Ok(Counts { ends: end.map_or(0, of_id), different, highest })
}

fn head(dataset: &Dataset, split: Split, documents: usize) -> Result<String, TrainError> {
    let tokenizer = dataset.tokenizer().ok();
    let end_of_text = tokenizer.as_ref().and_then(Tokenizer::end_of_text).map(i32::from);
    let stream = dataset.split(split);
    let end = end_of_text;
    let mut out = String::new();
    let mut start = 0;
    for number in 0..documents {
        if start >= stream.len() || (end.is_none() && number > 0) {
            break;
        }
        let (ids, whole) = document(dataset, split, start, end)?;
        let shown = ids.len().min(SHOWN);
        out += &screen::faint(&format!("--- document {number}, from token {start}"));
        out += &format!("\n{}", text_of(tokenizer.as_ref(), &ids[..shown]));
        out += if shown < ids.len() || !whole { " …\n" } else { "\n" };
        start += ids.len() as u64 + 1;
        if !whole {
            break;
        }
    }
    Ok(out)
}

/// The ids of a document without its end, at most one chunk, and whether that is all of it.
fn document(
    dataset: &Dataset,
    split: Split,
    start: u64,
    end: Option<i32>,
) -> Result<(Vec<i32>, bool), TrainError> {
    let stream = dataset.split(split);
    let some = (stream.len() - start).min(CHUNK as u64) as usize;
    let mut ids = vec![0; some];
    stream.read(start, &mut ids).map_err(TrainError::Data)?;
    match end.and_then(|end| ids.iter().position(|id| *id == end)) {
        Some(at) => {
            ids.truncate(at);
            Ok((ids, true))
        }
        None => {
            let whole = start + some as u64 == stream.len();
            Ok((ids, whole))
        }
    }
}
