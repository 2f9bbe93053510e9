//! What is read, in which order: files, folders, patterns and addresses as the user names them.
//!
//! The order is the same on every machine: as the arguments stand, and within a folder or pattern
//! by name, where numbers count as numbers (`part2` before `part10`).

use crate::download::Client;
use crate::error::{PrepareError, Result};
use crate::pattern::Pattern;
use crate::readers::Packing;
use crate::regular;
use crate::sniff::{Shape, has_column, shape_of_file};
use data::Split;
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
    /// JSON by its ending or its beginning: objects one after the other, or in a list.
    Json,
    /// A table in text, with a column of documents.
    Csv,
    /// The same with tabs.
    Tsv,
    /// A table with a column of documents.
    Parquet,
}

/// Where a source is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// On disk.
    File(PathBuf),
    /// Standard input, kept on disk while it is used: it can be read only once.
    Stdin,
    /// Elsewhere.
    Url {
        /// The address.
        url: String,
        /// What its bytes must give, where it is known.
        sha256: Option<String>,
    },
}

/// One file, wherever it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// As the user knows it.
    pub name: String,
    /// Where it is.
    pub place: Place,
    /// What is in it.
    pub format: Format,
    /// How it is packed.
    pub packing: Packing,
    /// Its size, where it is known.
    pub bytes: Option<u64>,
    /// The half that all of it belongs to, where its maker says so.
    pub split: Option<Split>,
}

/// Endings that a folder may hold and that are no text.
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

/// Bytes in which a zero says that a file is no text.
const SNIFFED: u64 = 8 << 10;

/// What was found for the arguments.
#[derive(Debug, Default)]
pub struct Listing {
    /// Columns of tables that hold text: tables in folders that have none are left out.
    pub columns: Vec<String>,
    /// In the order in which they are read.
    pub sources: Vec<Source>,
    /// Files of folders and patterns that were left out because they hold no text.
    pub left_out: Vec<PathBuf>,
}

/// Whether an argument is an address.
#[must_use]
pub fn is_url(argument: &str) -> bool {
    argument.starts_with("http://") || argument.starts_with("https://")
}

impl Listing {
    /// Adds what one argument names: a file, a folder or a pattern.
    ///
    /// # Errors
    ///
    /// When there is nothing of that name, or it is no text.
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
                let what = "holds zero bytes, so it is no text; \
                            .jsonl, .parquet, .gz and .zst are known by their endings";
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
            "'{argument}' is no file, folder, pattern or known data set; known are {}",
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
                // A table of figures among the texts.
                self.left_out.push(path);
                continue;
            }
            if source.format == Format::Json
                && shape_of_file(&path, source.packing)? != Shape::Records
            {
                // Settings among other files: text like them.
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
    /// A file on disk, known by its ending.
    pub(crate) fn of_file(path: &Path) -> Result<Source> {
        let metadata = path.metadata().map_err(PrepareError::io(path, "read its size"))?;
        let name = path.display().to_string();
        let (format, packing) = by_ending(&name);
        let place = Place::File(path.to_owned());
        Ok(Source { name, place, format, packing, bytes: Some(metadata.len()), split: None })
    }

    /// A file elsewhere, known by its ending.
    #[must_use]
    pub fn of_url(url: &str) -> Source {
        let path = url.split(['?', '#']).next().unwrap_or(url);
        let (format, packing) = by_ending(path);
        let place = Place::Url { url: url.to_owned(), sha256: None };
        Source { name: url.to_owned(), place, format, packing, bytes: None, split: None }
    }

    /// Whether its bytes are text as they lie.
    fn is_plain(&self) -> bool {
        let is_text = !matches!(self.format, Format::Jsonl | Format::Parquet);
        is_text && self.packing == Packing::None
    }

    /// The name of its copy on disk.
    #[must_use]
    pub fn file_name(&self) -> String {
        let path = self.name.split(['?', '#']).next().unwrap_or_default();
        let last = path.rsplit('/').next().unwrap_or_default();
        let clean = |c: char| if c.is_alphanumeric() || "._-".contains(c) { c } else { '_' };
        last.chars().map(clean).collect()
    }
}

/// What a name says of its content.
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

/// The files that a pattern names.
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

/// Files by which a folder is known that was made of text by this program.
const MADE: [&str; 3] = ["train.bin", "prepare.json", "last.safetensors"];

/// All files below a folder but hidden ones. Links to folders are not followed: they may lead
/// back.
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
            // Data sets and runs among the texts are no text.
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

/// Whether a file is no text, by its ending or its first bytes.
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

/// By name, where runs of digits count by their value.
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
