//! Turns a request into a job: sources, tokenizer, split, and space on the disk. Nothing is written
//! here; `--dry-run` stops after this step.

use crate::disk;
use crate::error::{PrepareError, Result};
use crate::journal::Totals;
use crate::listing;
use crate::readers::Packing;
use crate::sniff::Shape;
use crate::sources::{Format, Listing, Locator, Source, is_url};
use crate::split;
use data::Split;
use data::known::{self, KnownTokens, Origin};
use hub::{Client, hex};
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

/// The tokenizer that the user asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenizerChoice {
    /// GPT-2's byte-pair encoding.
    Gpt2,
    /// One id per character.
    Char,
    /// A Hugging Face tokenizer.json.
    Json(PathBuf),
}

/// What the user asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// Files, folders, patterns, addresses, known names, or `-`.
    pub sources: Vec<String>,
    /// The data set's folder.
    pub out: PathBuf,
    /// `None` means the tokenizer of the known data set, else GPT-2's.
    pub tokenizer: Option<TokenizerChoice>,
    /// Fraction of the text for validation; `None` for nanoGPT's.
    pub val: Option<f64>,
    /// The JSON field that holds the text.
    pub field: String,
    /// The column of parquet files and tables that holds the text. `None` means the column of the
    /// known data set, else `field` for tables and `text` for parquet.
    pub column: Option<String>,
    /// The format of standard input and of files with an unknown extension.
    pub format: Option<Format>,
    /// Seed of the split into training and validation documents.
    pub seed: u64,
    /// Number of encoding threads.
    pub workers: usize,
    /// Stop after this many training tokens.
    pub max_tokens: Option<u64>,
    /// Whether to keep downloaded files.
    pub keep_downloads: bool,
    /// Whether to replace another data set in the folder.
    pub overwrite: bool,
    /// Whether to start although the disk looks too small.
    pub ignore_space: bool,
}

/// A request with everything resolved: what [`run()`](crate::run()) executes.
#[derive(Clone, Debug)]
pub struct Job {
    /// The user's request.
    pub request: Request,
    /// In reading order.
    pub sources: Vec<Source>,
    /// Files that are skipped because they hold no text.
    pub left_out: Vec<PathBuf>,
    /// The tokenizer to use.
    pub tokenizer: TokenizerChoice,
    /// The column of parquet files.
    pub column: String,
    /// Whether this is one text that is split by position.
    pub by_position: bool,
    /// Fraction of the text for validation.
    pub val: f64,
    /// Total size of the sources whose size is known.
    pub bytes: u64,
    /// Whether the size of each source is known.
    pub sizes_known: bool,
    /// Estimate of the disk space needed.
    pub needed: u64,
    /// Free disk space in bytes.
    pub free: u64,
}

impl Job {
    /// Resolves a request. Asks the hub if a source is a known name.
    ///
    /// # Errors
    ///
    /// When a source does not exist, or the request contradicts itself.
    pub fn new(request: Request, client: &Client) -> Result<Job> {
        if request.sources.iter().filter(|source| *source == "-").count() > 1 {
            let what = "standard input (`-`) can be read only once".to_owned();
            return Err(PrepareError::Usage(what));
        }
        let columns = request.column.clone().into_iter().chain([request.field.clone()]).collect();
        let mut listing = Listing { columns, ..Listing::default() };
        let mut known_tokens = None;
        let mut column = request.column.clone();
        for argument in &request.sources {
            let exists = std::path::Path::new(argument).exists();
            match known::find(argument).filter(|_| !exists) {
                Some((row, config)) => {
                    known_tokens = Some(row.tokens);
                    match row.origin {
                        Origin::Text(url) => listing.sources.push(Source::of_url(url)),
                        Origin::Hub { column: named, .. } => {
                            column.get_or_insert_with(|| named.to_owned());
                            listing.sources.extend(listing::list(row, config, client)?);
                        }
                    }
                }
                None if argument == "-" => listing.sources.push(standard_input(&request)),
                None if is_url(argument) => listing.sources.push(Source::of_url(argument)),
                None => listing.add(argument, client)?,
            }
        }
        leave_own_files_out(&mut listing, &request.out)?;
        for source in &mut listing.sources {
            source.format = wanted_format(source.format, request.format);
        }
        // Validation comes first, because --max-tokens may stop before the rest is read.
        listing.sources.sort_by_key(|source| source.split != Some(Split::Val));
        let tokenizer = match (&request.tokenizer, known_tokens) {
            (Some(choice), _) => choice.clone(),
            (None, Some(KnownTokens::Characters(_))) => TokenizerChoice::Char,
            (None, _) => TokenizerChoice::Gpt2,
        };
        let (by_position, val) = divided(&listing.sources, request.val);
        let by_characters = tokenizer == TokenizerChoice::Char;
        let twice = by_characters || by_position;
        let (bytes, needed) = sizes(&listing.sources, (by_characters, twice), &request);
        Ok(Job {
            sizes_known: listing.sources.iter().all(|source| source.bytes.is_some()),
            free: disk::free(&request.out)?,
            column: column.unwrap_or_else(|| "text".to_owned()),
            sources: listing.sources,
            left_out: listing.left_out,
            request,
            tokenizer,
            by_position,
            val,
            bytes,
            needed,
        })
    }

    /// Sets the format of standard input once its first bytes have arrived. JSON changes how the
    /// text is split. An explicit format stays.
    pub(crate) fn recognise(&mut self, index: usize, shape: Shape) -> bool {
        let is_json = self.request.format.is_none() && shape != Shape::Other;
        if is_json {
            self.sources[index].format = Format::Json;
            (self.by_position, self.val) = divided(&self.sources, self.request.val);
        }
        is_json
    }

    /// Checks that the disk has room for what is not yet written.
    ///
    /// # Errors
    ///
    /// When there is not enough; the message has both numbers.
    pub fn check_space(&self) -> Result<()> {
        let missing = self.needed.saturating_sub(disk::already_written(&self.request.out));
        if self.request.ignore_space || missing <= self.free {
            return Ok(());
        }
        let gib = |bytes: u64| format!("{:.2} GiB", bytes as f64 / f64::from(1 << 30));
        let what = format!(
            "this needs about {}, but only {} is free; make room, choose another --out, \
             limit it with --max-tokens, or start anyway with --ignore-space",
            gib(missing),
            gib(self.free)
        );
        Err(PrepareError::Output { path: self.request.out.clone(), what })
    }

    /// The fewest tokens that validation should have.
    #[must_use]
    pub fn enough_val(&self) -> u64 {
        split::enough(self.tokenizer == TokenizerChoice::Char)
    }

    /// If validation got too few tokens, a value of `--val` that gives enough, if there is one.
    #[must_use]
    pub fn larger_val(&self, totals: &Totals) -> Option<f64> {
        let is_fixed = self.sources.iter().any(|source| source.split.is_some());
        let share = split::share_for_enough(totals, self.request.seed, self.enough_val());
        share.filter(|_| !is_fixed)
    }

    /// A checksum of everything that determines the bytes of the result.
    ///
    /// # Errors
    ///
    /// When a source file has disappeared.
    pub fn settings(&self) -> Result<String> {
        let Job { request, tokenizer, column, by_position, val, .. } = self;
        let Request { field, seed, max_tokens, .. } = request;
        let mut hash = Sha256::new();
        let how = (by_position, val.to_bits(), seed, max_tokens, field, column);
        hash.update(format!("1 {how:?} {:?}", (crate::segment::WINDOW, crate::segment::BATCH)));
        match tokenizer {
            TokenizerChoice::Json(path) => {
                hash.update(hex(&Sha256::digest(crate::tokenizers::read_json(path)?)));
            }
            choice => hash.update(format!("{choice:?}")),
        }
        for source in &self.sources {
            let Source { name, locator, format, packing, bytes, split } = source;
            hash.update(format!("{name:?} {format:?} {packing:?} {bytes:?} {split:?}"));
            match locator {
                Locator::File(path) => {
                    let metadata =
                        path.metadata().map_err(PrepareError::io(path, "read its size"))?;
                    let changed = metadata.modified().ok();
                    let changed = changed.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
                    hash.update(format!("{} {changed:?}", metadata.len()));
                }
                Locator::Stdin => {}
                Locator::Url { url, sha256 } => hash.update(format!("{url} {sha256:?}")),
            }
        }
        Ok(hex(&hash.finalize()))
    }
}

/// Skips our own output files in a folder that is prepared in place.
fn leave_own_files_out(listing: &mut Listing, out: &std::path::Path) -> Result<()> {
    let Ok(out) = out.canonicalize() else {
        return Ok(()); // not there yet: nothing of ours
    };
    let is_own = |source: &Source| {
        let Locator::File(path) = &source.locator else {
            return false;
        };
        let Ok(path) = path.canonicalize() else {
            return false;
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let made = ["prepare.json", "tokenizer.json", "meta.pkl"].contains(&name.as_ref())
            || name.ends_with(".bin")
            || name.ends_with(".part");
        path.starts_with(out.join(crate::shelf::FOLDER)) || (path.parent() == Some(&out) && made)
    };
    listing.sources.retain(|source| !is_own(source));
    match listing.sources.is_empty() {
        true => {
            Err(PrepareError::Usage("the only files are those that prepare made itself".into()))
        }
        false => Ok(()),
    }
}

/// Whether this is one text that is split by position, and the fraction for validation.
fn divided(sources: &[Source], val: Option<f64>) -> (bool, f64) {
    let by_position = matches!(sources, [one] if one.format == Format::Text);
    let usual = if by_position { split::TAIL } else { split::DOCUMENTS };
    (by_position, val.unwrap_or(usual))
}

/// The format to read a file as. The requested format applies to files with an unknown extension;
/// requesting plain text also applies to JSON and tables.
fn wanted_format(found: Format, asked: Option<Format>) -> Format {
    match (found, asked) {
        (Format::Text, Some(asked)) => asked,
        (Format::Json | Format::Csv | Format::Tsv, Some(Format::Text)) => Format::Text,
        (found, _) => found,
    }
}

fn standard_input(request: &Request) -> Source {
    let format = request.format.unwrap_or(Format::Text);
    let (name, locator) = ("standard input".to_owned(), Locator::Stdin);
    Source { name, locator, format, packing: Packing::None, bytes: None, split: None }
}

/// Bytes of the sources, and bytes that the data set and the downloads will take.
fn sizes(
    sources: &[Source],
    (by_characters, twice): (bool, bool),
    request: &Request,
) -> (u64, u64) {
    let size = |source: &Source| source.bytes.unwrap_or(0);
    // Servers report sizes, so their sum may overflow.
    let total = |sum: u64, size: u64| sum.saturating_add(size);
    let bytes = sources.iter().map(size).fold(0, total);
    let tokens = |source| size(source) as f64 * disk::tokens_per_byte(source, by_characters);
    let mut needed = sources.iter().map(tokens).sum::<f64>() as u64;
    if let Some(most) = request.max_tokens {
        needed = needed.min(most.saturating_mul(2).saturating_add(1 << 20));
    }
    let mut downloads: Vec<u64> =
        sources.iter().filter(|s| matches!(s.locator, Locator::Url { .. })).map(size).collect();
    downloads.sort_unstable();
    // The download in use and the next one; all of them if they are read twice.
    let at_once = if request.keep_downloads || twice { downloads.len() } else { 2 };
    let downloads = downloads.into_iter().rev().take(at_once).fold(0, total);
    (bytes, needed.saturating_add(downloads))
}
