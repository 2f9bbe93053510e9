//! `fitgpt prepare`: turns text, JSON, tables, parquet or a known data set into token files.

use super::{INTERRUPTED, line};
use crate::flags::{FlagSet, flags};
use crate::invocation::program;
use crate::preparation::{Preparation, few_val_tokens, introduction, size, summary};
use crate::screen::show;
use crate::{interrupt, screen};
use ::train::TrainError;
use data::known;
use prepare::{Client, Format, Job, MOST_WORKERS, Outcome, PrepareError, TokenizerChoice};
use prepare::{Request, SEED};
use spec::shell::quoted;
use spec::{SpecError, Values, words};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

words! {
    /// Tokenizers that are known by name.
    pub enum NamedTokenizer {
        /// GPT-2's BPE.
        Gpt2 = "gpt2",
        /// One id per character.
        Char = "char",
    }
}

const TOKENIZERS: Values =
    Values::WordsOrPath(NamedTokenizer::WORDS, " or the path of a tokenizer.json");

flags! {
    /// The flags of `prepare`.
    pub struct Flags {
        /// the data set's folder; default for a known data set: data/NAME
        out: Option<String> = "--out", "FOLDER" Values::Folder;
        /// what turns text into tokens; a tokenizer.json must be a byte-level BPE
        tokenizer: Option<String> = "--tokenizer", "NAME" TOKENIZERS;
        /// fraction for validation; default 0.1 of a single text, 0.0005 of several documents
        val: Option<String> = "--val", "FRACTION" Values::Any;
        /// the JSON field with the text; default text
        field: Option<String> = "--field", "NAME" Values::Any;
        /// the column with the text in parquet, .csv and .tsv; default text
        column: Option<String> = "--column", "NAME" Values::Any;
        /// format of standard input and of files with an unknown extension; `text` also reads
        /// .json, .csv and .tsv as plain text
        format: Option<String> = "--format", "FORMAT" Values::Words(&Format::WORDS);
        /// stop after this many training tokens, such as 50M or 1B
        max_tokens: Option<String> = "--max-tokens", "N" Values::Any;
        /// seed for splitting documents into train and val; default 2357, as in nanoGPT
        seed: Option<String> = "--seed", "N" Values::Any;
        /// threads that encode; default: one per core, at most 64
        workers: Option<String> = "--workers", "N" Values::Any;
        /// show what would be done, and write nothing
        dry_run: bool = "--dry-run";
        /// keep downloaded files in FOLDER/downloads
        keep_downloads: bool = "--keep-downloads";
        /// replace another data set in FOLDER; it stays until the new one has tokens
        overwrite: bool = "--overwrite";
        /// start even if the disk seems too small
        ignore_space: bool = "--ignore-space";
    }
}

/// The command's row.
pub static COMMAND: super::Command = super::Command {
    name: "prepare",
    about: "turn text, JSON, CSV, parquet or a known data set into train.bin and val.bin",
    text: &[
        "Turns text into nanoGPT's files: train.bin, val.bin and, for characters, meta.pkl. It \
         uses all cores, and less than 1 GiB of memory however large the text is. After Ctrl-C, \
         kill -9 or a full disk, the same command resumes and writes the same bytes.",
    ],
    usage: &[line("fitgpt prepare SOURCE ... --out FOLDER [flags]", "")],
    examples: &[
        line("fitgpt prepare shakespeare_char", "into data/shakespeare_char"),
        line("fitgpt prepare book.txt --out data/book --tokenizer char", ""),
        line("fitgpt prepare fineweb-edu --out data/fineweb-edu --max-tokens 1B", ""),
        line("fitgpt prepare 'corpus/*.jsonl.zst' --field content --out data/mine", ""),
        line("zcat notes.gz | fitgpt prepare - --out data/notes", ""),
    ],
    notes: &[
        "A SOURCE is a file, a folder, a pattern, an http(s) address, - for standard input, or the \
         name of a data set, with a config if you like (fineweb/sample-100BT). The extension gives \
         the format: .jsonl, .json (one object per line, or a list of objects), .csv, .tsv, \
         .parquet, .gz, .zst. Standard input that begins like JSON is read as JSON. Everything \
         else is text, one document per file. A single text is split by position, like nanoGPT's \
         shakespeare scripts. Of several documents, each goes whole to train or val, followed by \
         `<|endoftext|>`.",
    ],
    lists_data_sets: true,
    arguments: &[Values::DataSet, Values::File],
    flags: Flags::TABLE,
    closing: &["HF_ENDPOINT sets the address of a Hugging Face mirror, HF_TOKEN your token."],
    keys: None,
    run,
};

/// The most files listed by `--dry-run`.
const LISTED: usize = 20;

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<u8, TrainError> {
    let (flags, sources) = Flags::read(arguments)?;
    let request = request(&flags, sources)?;
    let stop = interrupt::catch("stopping; finished work is kept");
    let client = Client::from_environment(stop.clone());
    match prepared(request, &client, flags.dry_run) {
        Ok(code) => Ok(code?),
        Err(_) if stop.load(Ordering::Relaxed) => Ok(INTERRUPTED),
        Err(error) => {
            screen::error(&error.to_string());
            Ok(if matches!(error, PrepareError::Usage(_)) { 2 } else { 4 })
        }
    }
}

type Shown = Result<u8, TrainError>;

fn prepared(request: Request, client: &Client, dry_run: bool) -> Result<Shown, PrepareError> {
    let job = Job::new(request, client)?;
    if let Err(error) = show(&introduction(&job)) {
        return Ok(Err(error));
    }
    if dry_run {
        return Ok(show(&listing(&job)).map(|()| 0));
    }
    let start = Instant::now();
    let mut watching = Preparation::new(&job);
    let outcome = prepare::run(job.clone(), client, &mut watching);
    watching.finish();
    let (totals, seconds) = match outcome? {
        Outcome::Done(totals) => (totals, Some(start.elapsed().as_secs_f64())),
        Outcome::Already(totals) => {
            let out = job.request.out.display();
            screen::notice(&format!("{out} already holds this data set; nothing was done"));
            (totals, None)
        }
        Outcome::Interrupted(totals) => {
            let tokens = totals.train_tokens + totals.val_tokens;
            screen::note(&format!("{tokens} tokens are saved; run the same command to resume"));
            return Ok(Ok(INTERRUPTED));
        }
    };
    Ok(show(&summary(&totals, seconds)).and_then(|()| {
        if let Some(warning) = few_val_tokens(&job, &totals) {
            screen::notice(&warning);
        }
        show(&next_step(&job.request.out)).map(|()| 0)
    }))
}

/// What `--dry-run` prints in addition.
fn listing(job: &Job) -> String {
    let mut text = String::new();
    for source in job.sources.iter().take(LISTED) {
        let bytes = source.bytes.map_or_else(|| "?".to_owned(), size);
        text += &format!("  {bytes:>12}  {}\n", source.name);
    }
    if let Some(more) = job.sources.len().checked_sub(LISTED).filter(|more| *more > 0) {
        text += &format!("  and {more} more\n");
    }
    let (needed, free) = (size(job.needed), size(job.free));
    let out = job.request.out.display();
    text += &format!("{out}: about {needed} of disk needed, {free} free; nothing was written\n");
    text
}

/// The command that trains on the data set, from the same folder.
fn next_step(out: &Path) -> String {
    let typed = out.to_string_lossy();
    let folder = match typed.trim_end_matches('/') {
        "" => typed.to_string(),
        // A folder that begins with a dash would be taken for a flag.
        folder if folder.starts_with('-') => format!("./{folder}"),
        folder => folder.to_owned(),
    };
    format!("\n{} train {}\n", program(), quoted(&folder))
}

fn request(flags: &Flags, sources: Vec<String>) -> Result<Request, SpecError> {
    let conflict = |what: String| SpecError::Conflict { what };
    if sources.is_empty() {
        let names = known::names();
        let what = format!(
            "prepare needs a source: files, folders, patterns, addresses, '-', or one of {names}"
        );
        return Err(conflict(what));
    }
    let out = match (flags.out.as_deref(), &sources[..]) {
        (Some(""), _) => return Err(refused("--out", "a folder, such as data/mine", "")),
        (Some(out), _) => PathBuf::from(out),
        // A known data set's name is also its folder's name.
        (None, [name]) if known::DATA_SETS.iter().any(|known| known.name == name) => {
            Path::new("data").join(name)
        }
        (None, _) => {
            return Err(conflict("prepare needs --out FOLDER, such as data/mine".to_owned()));
        }
    };
    Ok(Request {
        sources,
        out,
        tokenizer: flags.tokenizer.as_deref().map(tokenizer).transpose()?,
        val: flags.val.as_deref().map(share).transpose()?,
        field: flags.field.as_deref().unwrap_or("text").to_owned(),
        column: flags.column.clone(),
        format: flags.format.as_deref().map(format).transpose()?,
        seed: flags.seed.as_deref().map_or(Ok(SEED), |text| whole("--seed", text))?,
        workers: flags.workers.as_deref().map_or_else(|| Ok(cores()), workers)?,
        max_tokens: flags.max_tokens.as_deref().map(count).transpose()?,
        keep_downloads: flags.keep_downloads,
        overwrite: flags.overwrite,
        ignore_space: flags.ignore_space,
    })
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(MOST_WORKERS)
}

fn tokenizer(given: &str) -> Result<TokenizerChoice, SpecError> {
    match NamedTokenizer::of(given) {
        Some(NamedTokenizer::Gpt2) => Ok(TokenizerChoice::Gpt2),
        Some(NamedTokenizer::Char) => Ok(TokenizerChoice::Char),
        None if given.ends_with(".json") => Ok(TokenizerChoice::Json(given.into())),
        None => Err(refused("--tokenizer", &TOKENIZERS.listed(), given)),
    }
}

fn format(given: &str) -> Result<Format, SpecError> {
    let wanted = || Values::Words(&Format::WORDS).listed();
    Format::of(given).ok_or_else(|| refused("--format", &wanted(), given))
}

fn share(given: &str) -> Result<f64, SpecError> {
    let number = given.parse().ok().filter(|share| *share > 0.0 && *share < 1.0);
    number.ok_or_else(|| refused("--val", "a fraction between 0 and 1, such as 0.1", given))
}

fn workers(given: &str) -> Result<usize, SpecError> {
    let number = given.parse().ok().filter(|number| (1..=MOST_WORKERS).contains(number));
    number.ok_or_else(|| refused("--workers", &format!("1 to {MOST_WORKERS}"), given))
}

fn whole(flag: &str, given: &str) -> Result<u64, SpecError> {
    given.parse().map_err(|_| refused(flag, "a whole number", given))
}

/// `1000`, `50M`, `1B`, `2.5B`.
fn count(given: &str) -> Result<u64, SpecError> {
    let (digits, scale) = match given.to_uppercase().strip_suffix(['K', 'M', 'B', 'G']) {
        Some(digits) => (digits.to_owned(), given.to_uppercase().pop()),
        None => (given.to_owned(), None),
    };
    let scale = match scale {
        Some('K') => 1e3,
        Some('M') => 1e6,
        Some(_) => 1e9,
        None => 1.0,
    };
    let number = digits.parse::<f64>().ok().map(|number| number * scale);
    let number = number.filter(|number| (1.0..1e15).contains(number));
    let wanted = "tokens, such as 500000, 50M or 1B";
    number.map(|number| number as u64).ok_or_else(|| refused("--max-tokens", wanted, given))
}

fn refused(flag: &str, wanted: &str, given: &str) -> SpecError {
    let shown: String = given.chars().take(60).collect();
    SpecError::Conflict { what: format!("{flag} needs {wanted}, not '{shown}'") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_may_be_short() {
        for (given, want) in [("12", 12), ("1B", 1_000_000_000), ("2.5m", 2_500_000), ("3k", 3000)]
        {
            assert_eq!(count(given).unwrap(), want, "{given}");
        }
        for given in ["", "0", "-1", "B", "1T", "nan"] {
            assert!(count(given).is_err(), "{given}");
        }
    }

    #[test]
    fn the_next_command_names_the_folder_as_it_was_typed() {
        for (out, want) in [
            ("data/book", "train data/book\n"),
            ("./data/book/", "train ./data/book\n"),
            ("/tmp/my books", "train '/tmp/my books'\n"),
            ("../it's", "train '../it'\\''s'\n"),
            ("-x", "train ./-x\n"),
            ("/", "train /\n"),
        ] {
            let shown = next_step(Path::new(out));
            assert!(shown.ends_with(&format!(" {want}")), "{shown}");
        }
    }

    #[test]
    fn a_share_is_between_nothing_and_all() {
        assert_eq!(share("0.1").unwrap(), 0.1);
        assert!(["0", "1", "x", "-0.5"].iter().all(|given| share(given).is_err()));
    }
}
