//! Lists the sources in reading order: files, folders, patterns and addresses that the user names.
//!
//! The order is the same on every machine: the order of the arguments, and by name within a folder
//! or pattern, where numbers compare by value (`part2` before `part10`).

use crate::error::{PrepareError, Result};
use crate::pattern::Pattern;
use crate::readers::Packing;
use crate::regular;
use crate::sniff::{Shape, has_column, shape_of_file};
use data::Split;
use hub::Client;
use std::cmp::Ordering;
use std::io::Read;
use std::path::{Path, PathBuf};

/// What is in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text; the file is one document.
    Text,
    /// A JSON object for each document.
    Jsonl,
    /// JSON objects, one after the other or in a list, recognised by extension or first bytes.
    Json,
    /// A table in text, with a column of documents.
    Csv,
    /// The same, separated by tabs.
    Tsv,
    /// A table with a column of documents.
    Parquet,
}

impl Format {
    const ALL: [Format; 6] =
        [Format::Text, Format::Jsonl, Format::Json, Format::Csv, Format::Tsv, Format::Parquet];

    /// The words of `--format`.
    pub const WORDS: [&'static str; 6] = {
        let mut words = [""; Format::ALL.len()];
        let mut index = 0;
        while index < words.len() {
            words[index] = Format::ALL[index].word();
            index += 1;
        }
        words
    };

    /// What a word stands for.
    #[must_use]
    pub fn of(word: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.word() == word)
    }

    const fn word(self) -> &'static str {
        match self {
            Format::Text => "text",
            Format::Jsonl => "jsonl",
            Format::Json => "json",
            Format::Csv => "csv",
            Format::Tsv => "tsv",
            Format::Parquet => "parquet",
        }
    }
}

/// Where a source is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Locator {
    /// On disk.
    File(PathBuf),
    /// Standard input, kept on disk while it is used: it can be read only once.
    Stdin,
    /// On a server.
    Url {
        /// The address.
        url: String,
        /// The expected SHA-256, if known.
        sha256: Option<String>,
    },
}

/// One file to read, local or remote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The name that messages use.
    pub name: String,
    /// Where to find it.
    pub locator: Locator,
    /// What is in it.
    pub format: Format,
    /// How it is compressed.
    pub packing: Packing,
    /// Its size, if known.
    pub bytes: Option<u64>,
    /// The half that all of it belongs to, if its publisher says so.
    pub split: Option<Split>,
}

/// Extensions of files that are not text.
const NO_TEXT: [&str; 20] = [
    "bin",
    "pkl",
    "pt",
    "safetensors",
    "gguf",
    "png",
    "jpg",
    "jpeg",
    "gif",
    "pdf",
    "zip",
    "tar",
    "xz",
    "bz2",
    "so",
    "o",
    "exe",
    "npy",
    "ckpt",
    "part",
];

/// A zero byte among the first this many bytes means that a file is not text.
const SNIFFED: u64 = 8 << 10;

/// The sources found for the arguments.
#[derive(Debug, Default)]
pub struct Listing {
    /// Columns that hold text. A table in a folder without such a column is skipped.
    pub columns: Vec<String>,
    /// In reading order.
    pub sources: Vec<Source>,
    /// Files of folders and patterns that are skipped because they hold no text.
    pub left_out: Vec<PathBuf>,
}

/// Whether an argument is a web address.
#[must_use]
pub fn is_url(argument: &str) -> bool {
    argument.starts_with("http://") || argument.starts_with("https://")
}

impl Listing {
    /// Adds the files that one argument names: a file, a folder or a pattern.
    ///
    /// # Errors
    ///
    /// When nothing has that name, or it is not text.
    pub fn add(&mut self, argument: &str, client: &Client) -> Result<()> {
        let path = Path::new(argument);
        if path.is_dir() {
            let mut found = Vec::new();
            walk(path, client, &mut found)?;
            return self.add_found(argument, found, client);
        }
        if path.exists() && !path.is_file() {
            let what = "is a pipe or a device, which can be read only once; give it as `-`";
            return Err(PrepareError::source(argument, what));
        }
        if path.exists() {
            let source = Source::of_file(path)?;
            if source.is_plain() && is_binary(path)? {
                let what = "contains zero bytes, so it is not text; \
                            .jsonl, .parquet, .gz and .zst are recognised by their extension";
                return Err(PrepareError::source(&source.name, what));
            }
            self.sources.push(source);
            return Ok(());
        }
        if argument.contains(['*', '?']) {
            let found = fitting(argument, client)?;
            return self.add_found(argument, found, client);
        }
        Err(PrepareError::Usage(format!(
            "'{argument}' is not a file, folder, pattern or known data set; known are {}",
            data::known::names()
        )))
    }

    fn add_found(
        &mut self,
        argument: &str,
        mut found: Vec<PathBuf>,
        client: &Client,
    ) -> Result<()> {
        found.sort_by(|a, b| natural(&a.to_string_lossy(), &b.to_string_lossy()));
        let before = self.sources.len();
        for path in found {
            client.check_stopped()?;
            let mut source = Source::of_file(&path)?;
            if source.is_plain() && is_binary(&path)? {
                self.left_out.push(path);
                continue;
            }
            let is_table = matches!(source.format, Format::Csv | Format::Tsv);
            if is_table && !has_column(&path, source.packing, &self.columns)? {
                // A table without a text column among the texts.
                self.left_out.push(path);
                continue;
            }
            if source.format == Format::Json
                && shape_of_file(&path, source.packing)? != Shape::Records
            {
                // A JSON file of settings among other files counts as text.
                source.format = Format::Text;
            }
            self.sources.push(source);
        }
        if self.sources.len() == before {
            let left_out = self.left_out.len();
            let what = match left_out {
                0 => format!("'{argument}' contains no files"),
                _ => format!("'{argument}' contains no text ({left_out} files of other kinds)"),
            };
            return Err(PrepareError::Usage(what));
        }
        Ok(())
    }
}

impl Source {
    /// A local file; its extension determines the format.
    pub(crate) fn of_file(path: &Path) -> Result<Source> {
        let metadata = path.metadata().map_err(PrepareError::io(path, "read its size"))?;
        let name = path.display().to_string();
        let (format, packing) = by_ending(&name);
        let locator = Locator::File(path.to_owned());
        Ok(Source { name, locator, format, packing, bytes: Some(metadata.len()), split: None })
    }

    /// A remote file; its extension determines the format.
    #[must_use]
    pub fn of_url(url: &str) -> Source {
        let path = url.split(['?', '#']).next().unwrap_or(url);
        let (format, packing) = by_ending(path);
        let locator = Locator::Url { url: url.to_owned(), sha256: None };
        Source { name: url.to_owned(), locator, format, packing, bytes: None, split: None }
    }

    /// Whether its bytes are uncompressed plain text.
    fn is_plain(&self) -> bool {
        let is_text = !matches!(self.format, Format::Jsonl | Format::Parquet);
        is_text && self.packing == Packing::None
    }

    /// The file name of its local copy.
    #[must_use]
    pub fn file_name(&self) -> String {
        let path = self.name.split(['?', '#']).next().unwrap_or_default();
        let last = path.rsplit('/').next().unwrap_or_default();
        let clean = |c: char| if c.is_alphanumeric() || "._-".contains(c) { c } else { '_' };
        last.chars().map(clean).collect()
    }
}

/// The format and compression that a file name implies.
#[must_use]
pub fn by_ending(name: &str) -> (Format, Packing) {
    let name = name.to_lowercase();
    let (inner, packing) = match (name.strip_suffix(".gz"), name.strip_suffix(".zst")) {
        (Some(inner), _) => (inner, Packing::Gzip),
        (_, Some(inner)) => (inner, Packing::Zstd),
        _ => (name.as_str(), Packing::None),
    };
    let format = match inner.rsplit('.').next() {
        Some("jsonl" | "ndjson") => Format::Jsonl,
        Some("json") => Format::Json,
        Some("csv") => Format::Csv,
        Some("tsv") => Format::Tsv,
        Some("parquet") => Format::Parquet,
        _ => Format::Text,
    };
    (format, packing)
}

fn has_pattern(part: &std::path::Component<'_>) -> bool {
    part.as_os_str().to_string_lossy().contains(['*', '?'])
}

/// The files that match a pattern.
fn fitting(argument: &str, client: &Client) -> Result<Vec<PathBuf>> {
    let typed = Path::new(argument);
    let root: PathBuf = typed.components().take_while(|part| !has_pattern(part)).collect();
    let root = if root.as_os_str().is_empty() { PathBuf::from(".") } else { root };
    let mut found = Vec::new();
    if root.is_dir() {
        walk(&root, client, &mut found)?;
    }
    let wanted = Pattern::new(argument.strip_prefix("./").unwrap_or(argument).as_bytes());
    let mut fitting = Vec::new();
    for path in found {
        client.check_stopped()?;
        let name = path.strip_prefix(".").unwrap_or(&path);
        if wanted.matches(name.as_os_str().as_encoded_bytes()) {
            fitting.push(path);
        }
    }
    Ok(fitting)
}

/// Files that mark a folder as this program's output.
const MADE: [&str; 3] = ["train.bin", "prepare.json", "last.safetensors"];

/// Finds all files below a folder except hidden ones. Links to folders are not followed, because
/// they may form a loop.
fn walk(folder: &Path, client: &Client, found: &mut Vec<PathBuf>) -> Result<()> {
    let listed = PrepareError::io(folder, "list it");
    for entry in std::fs::read_dir(folder).map_err(&listed)? {
        client.check_stopped()?;
        let entry = entry.map_err(&listed)?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        if entry.file_type().map_err(&listed)?.is_dir() {
            // Skip data sets and runs among the texts.
            let is_made = MADE.iter().any(|file| path.join(file).exists());
            if !is_made {
                walk(&path, client, found)?;
            }
        } else if path.is_file() {
            found.push(path);
        }
    }
    Ok(())
}

/// Whether a file is not text, judged by its extension or its first bytes.
fn is_binary(path: &Path) -> Result<bool> {
    let ending = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    if NO_TEXT.contains(&ending.as_str()) {
        return Ok(true);
    }
    let mut start = Vec::new();
    let file = regular::open(path)?;
    file.take(SNIFFED).read_to_end(&mut start).map_err(PrepareError::io(path, "read it"))?;
    Ok(start.contains(&0))
}

/// Compares names; runs of digits compare by their value.
#[must_use]
pub fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (in_a, in_b) = (digits(a), digits(b));
        let order = if in_a > 0 && in_b > 0 {
            let (left, right) =
                (a[..in_a].trim_start_matches('0'), b[..in_b].trim_start_matches('0'));
            let order = left.len().cmp(&right.len()).then(left.cmp(right)).then(in_a.cmp(&in_b));
            (a, b) = (&a[in_a..], &b[in_b..]);
            order
        } else {
            let (mut left, mut right) = (a.chars(), b.chars());
            let order = left.next().cmp(&right.next());
            (a, b) = (left.as_str(), right.as_str());
            order
        };
        if order.is_ne() || a.is_empty() && b.is_empty() {
            return order;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_as_numbers() {
        let mut names = vec!["p10.txt", "p9.txt", "p1.txt", "p01.txt", "a", "p9.md", ""];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(names, ["", "a", "p1.txt", "p01.txt", "p9.md", "p9.txt", "p10.txt"]);
    }

    #[test]
    fn endings_tell_what_is_inside() {
        for (name, want) in [
            ("a.txt", (Format::Text, Packing::None)),
            ("a.JSONL.GZ", (Format::Jsonl, Packing::Gzip)),
            ("a.jsonl.zst", (Format::Jsonl, Packing::Zstd)),
            ("x.parquet", (Format::Parquet, Packing::None)),
            ("b.rs", (Format::Text, Packing::None)),
            ("b.txt.zst", (Format::Text, Packing::Zstd)),
            ("a.json", (Format::Json, Packing::None)),
            ("a.csv.gz", (Format::Csv, Packing::Gzip)),
            ("a.TSV", (Format::Tsv, Packing::None)),
        ] {
            assert_eq!(by_ending(name), want, "{name}");
        }
        let source = Source::of_url("https://h/a/b%20c.jsonl?x=1");
        assert_eq!((source.format, source.file_name().as_str()), (Format::Jsonl, "b_20c.jsonl"));
    }
}
