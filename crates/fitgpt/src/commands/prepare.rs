//! `fitgpt prepare`: text, JSON, tables, parquet or a known data set into token files.

use super::{INTERRUPTED, program, show};
use crate::flags::{Flag, Given};
use crate::preparation::{Preparation, few_val_tokens, introduction, size, summary};
use crate::{interrupt, screen};
use ::train::TrainError;
use data::known;
use prepare::{Client, Format, Hub, Job, MOST_WORKERS, Outcome, PrepareError, TokenizerChoice};
use prepare::{Request, SEED};
use spec::SpecError;
use spec::shell::quoted;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

const fn flag(name: &'static str, value: Option<&'static str>) -> Flag {
    Flag { name, value }
}

const FLAGS: [Flag; 13] = [
    flag("--out", Some("folder")),
    flag("--tokenizer", Some("gpt2, char or tokenizer.json")),
    flag("--val", Some("share")),
    flag("--field", Some("name")),
    flag("--column", Some("name")),
    flag("--format", Some(FORMATS)),
    flag("--seed", Some("number")),
    flag("--workers", Some("number")),
    flag("--max-tokens", Some("number")),
    flag("--dry-run", None),
    flag("--keep-downloads", None),
    flag("--overwrite", None),
    flag("--ignore-space", None),
];

/// What `--format` takes.
const FORMATS: &str = "text, jsonl, json, csv, tsv or parquet";

/// Files listed by `--dry-run`.
const LISTED: usize = 20;

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<u8, TrainError> {
    let given = Given::new(&FLAGS, arguments)?;
    let request = request(&given)?;
    let stop = interrupt::catch("stopping; what is done is kept");
    let client = Client::new(Hub::from_environment(), stop.clone());
    match prepared(request, &client, given.has("--dry-run")) {
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
            screen::notice(&format!("{out} holds this data set already; nothing was done"));
            (totals, None)
        }
        Outcome::Interrupted(totals) => {
            let tokens = totals.train_tokens + totals.val_tokens;
            screen::note(&format!("{tokens} tokens are safe; the same command goes on from there"));
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

/// What `--dry-run` adds.
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

/// The command that trains on it, typed where this one was.
fn next_step(out: &Path) -> String {
    let typed = out.to_string_lossy();
    let folder = match typed.trim_end_matches('/') {
        "" => typed.to_string(),
        // What begins with a dash would be a flag.
        folder if folder.starts_with('-') => format!("./{folder}"),
        folder => folder.to_owned(),
    };
    format!("\n{} train {}\n", program(), quoted(&folder))
}

fn request(given: &Given) -> Result<Request, SpecError> {
    let conflict = |what: String| SpecError::Conflict { what };
    if let Some(unknown) = given.rest.iter().find(|word| word.starts_with("--")) {
        let shown: String = unknown.chars().take(40).collect();
        let flags: Vec<&str> = FLAGS.iter().map(|flag| flag.name).collect();
        return Err(conflict(format!("prepare takes no '{shown}'; it has {}", flags.join(", "))));
    }
    if given.rest.is_empty() {
        let names = known::names();
        let what = format!(
            "prepare needs a text: files, folders, patterns, addresses, '-', or one of {names}"
        );
        return Err(conflict(what));
    }
    let out = match (given.get("--out"), &given.rest[..]) {
        (Some(""), _) => return Err(refused("--out", "a folder, such as data/mine", "")),
        (Some(out), _) => PathBuf::from(out),
        // A known name is a good folder's name.
        (None, [name]) if known::DATA_SETS.iter().any(|known| known.name == name) => {
            Path::new("data").join(name)
        }
        (None, _) => {
            return Err(conflict("prepare needs --out FOLDER, such as data/mine".to_owned()));
        }
    };
    Ok(Request {
        sources: given.rest.clone(),
        out,
        tokenizer: given.get("--tokenizer").map(tokenizer).transpose()?,
        val: given.get("--val").map(share).transpose()?,
        field: given.get("--field").unwrap_or("text").to_owned(),
        column: given.get("--column").map(str::to_owned),
        format: given.get("--format").map(format).transpose()?,
        seed: given.get("--seed").map_or(Ok(SEED), |text| whole("--seed", text))?,
        workers: given.get("--workers").map_or_else(|| Ok(cores()), workers)?,
        max_tokens: given.get("--max-tokens").map(count).transpose()?,
        keep_downloads: given.has("--keep-downloads"),
        overwrite: given.has("--overwrite"),
        ignore_space: given.has("--ignore-space"),
    })
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(MOST_WORKERS)
}

fn tokenizer(given: &str) -> Result<TokenizerChoice, SpecError> {
    match given {
        "gpt2" => Ok(TokenizerChoice::Gpt2),
        "char" => Ok(TokenizerChoice::Char),
        path if path.ends_with(".json") => Ok(TokenizerChoice::Json(path.into())),
        _ => Err(refused("--tokenizer", "gpt2, char or a tokenizer.json", given)),
    }
}

fn format(given: &str) -> Result<Format, SpecError> {
    match given {
        "text" => Ok(Format::Text),
        "jsonl" => Ok(Format::Jsonl),
        "json" => Ok(Format::Json),
        "csv" => Ok(Format::Csv),
        "tsv" => Ok(Format::Tsv),
        "parquet" => Ok(Format::Parquet),
        _ => Err(refused("--format", FORMATS, given)),
    }
}

fn share(given: &str) -> Result<f64, SpecError> {
    let number = given.parse().ok().filter(|share| *share > 0.0 && *share < 1.0);
    number.ok_or_else(|| refused("--val", "a share between 0 and 1, such as 0.1", given))
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
