//! What is asked for, and what it comes to: sources, tokenizer, split, room on the disk. Nothing
//! is written here; `--dry-run` stops behind it.

use crate::disk;
use crate::download::{Client, hex};
use crate::error::{PrepareError, Result};
use crate::journal::Totals;
use crate::readers::Packing;
use crate::sniff::Shape;
use crate::sources::{Format, Listing, Place, Source, is_url};
use crate::split;
use data::Split;
use data::known::{self, KnownTokens, Origin};
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

/// How text becomes tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// GPT-2's byte pairs.
    Gpt2,
    /// One id per character.
    Char,
    /// A tokenizer.json.
    Json(PathBuf),
}

/// What the user asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// Files, folders, patterns, addresses, known names, or `-`.
    pub sources: Vec<String>,
    /// The data set's folder.
    pub out: PathBuf,
    /// None: what a known data set wants, else GPT-2's.
    pub tokenizer: Option<Choice>,
    /// Share for validation; none for nanoGPT's.
    pub val: Option<f64>,
    /// Of JSON.
    pub field: String,
    /// Of parquet and tables; none for what a known data set wants, else `text`, and in tables
    /// what the field is called.
    pub column: Option<String>,
    /// Of standard input, and of files whose ending does not tell.
    pub format: Option<Format>,
    /// Of the split of documents.
    pub seed: u64,
    /// Threads that encode.
    pub workers: usize,
    /// Tokens to train on after which it is enough.
    pub max_tokens: Option<u64>,
    /// Whether downloads stay.
    pub keep_downloads: bool,
    /// Whether another data set in the folder is replaced.
    pub overwrite: bool,
    /// Whether it may begin though the disk looks too small.
    pub ignore_space: bool,
}

/// What it comes to.
#[derive(Clone, Debug)]
pub struct Job {
    /// As asked for.
    pub request: Request,
    /// In the order in which they are read.
    pub sources: Vec<Source>,
    /// Files that were left out because they hold no text.
    pub left_out: Vec<PathBuf>,
    /// How text becomes tokens.
    pub tokenizer: Choice,
    /// The column of parquet files.
    pub column: String,
    /// Whether it is one text that is divided by position.
    pub by_position: bool,
    /// The share for validation.
    pub val: f64,
    /// Bytes of all sources, as far as sizes are known.
    pub bytes: u64,
    /// Whether the size of each source is known.
    pub sizes_known: bool,
    /// Bytes on disk that it will take, by experience.
    pub needed: u64,
    /// Bytes that are free.
    pub free: u64,
}

impl Job {
    /// Finds out what a request comes to; asks the hub where a known name is among the sources.
    ///
    /// # Errors
    ///
    /// When a source is not there, or the request contradicts itself.
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
                            listing.sources.extend(client.hub().list(row, config, client)?);
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
        // What is for validation comes first: --max-tokens may end before the rest is read.
        listing.sources.sort_by_key(|source| source.split != Some(Split::Val));
        let tokenizer = match (&request.tokenizer, known_tokens) {
            (Some(choice), _) => choice.clone(),
            (None, Some(KnownTokens::Characters(_))) => Choice::Char,
            (None, _) => Choice::Gpt2,
        };
        let (by_position, val) = divided(&listing.sources, request.val);
        let by_characters = tokenizer == Choice::Char;
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

    /// What standard input holds is known once it is at hand: whether it is JSON, which changes
    /// how it is divided. An explicit format stays.
    pub(crate) fn recognise(&mut self, index: usize, shape: Shape) -> bool {
        let is_json = self.request.format.is_none() && shape != Shape::Other;
        if is_json {
            self.sources[index].format = Format::Json;
            (self.by_position, self.val) = divided(&self.sources, self.request.val);
        }
        is_json
    }

    /// Whether there is room for what is not there yet.
    ///
    /// # Errors
    ///
    /// When there is not, with both numbers.
    pub fn check_space(&self) -> Result<()> {
        let missing = self.needed.saturating_sub(disk::already_written(&self.request.out));
        if self.request.ignore_space || missing <= self.free {
            return Ok(());
        }
        let gib = |bytes: u64| format!("{:.2} GiB", bytes as f64 / f64::from(1 << 30));
        let what = format!(
            "about {} will be needed and {} are free; make room, choose another --out, take \
             less with --max-tokens, or try it with --ignore-space",
            gib(missing),
            gib(self.free)
        );
        Err(PrepareError::Output { path: self.request.out.clone(), what })
    }

    /// Tokens that validation should have at least.
    #[must_use]
    pub fn enough_val(&self) -> u64 {
        split::enough(self.tokenizer == Choice::Char)
    }

    /// A share for `--val` that would do, where validation got too few tokens and one would.
    #[must_use]
    pub fn larger_val(&self, totals: &Totals) -> Option<f64> {
        let is_fixed = self.sources.iter().any(|source| source.split.is_some());
        let share = split::share_for_enough(totals, self.request.seed, self.enough_val());
        share.filter(|_| !is_fixed)
    }

    /// A checksum of everything that decides the bytes of the result.
    ///
    /// # Errors
    ///
    /// When a file is gone.
    pub fn settings(&self) -> Result<String> {
        let Job { request, tokenizer, column, by_position, val, .. } = self;
        let Request { field, seed, max_tokens, .. } = request;
        let mut hash = Sha256::new();
        let how = (by_position, val.to_bits(), seed, max_tokens, field, column);
        hash.update(format!("1 {how:?} {:?}", (crate::segment::WINDOW, crate::segment::BATCH)));
        match tokenizer {
            Choice::Json(path) => {
                hash.update(hex(&Sha256::digest(crate::tokens::read_json(path)?)));
            }
            choice => hash.update(format!("{choice:?}")),
        }
        for source in &self.sources {
            let Source { name, place, format, packing, bytes, split } = source;
            hash.update(format!("{name:?} {format:?} {packing:?} {bytes:?} {split:?}"));
            match place {
                Place::File(path) => {
                    let metadata =
                        path.metadata().map_err(PrepareError::io(path, "read its size"))?;
                    let changed = metadata.modified().ok();
                    let changed = changed.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
                    hash.update(format!("{} {changed:?}", metadata.len()));
                }
                Place::Stdin => {}
                Place::Url { url, sha256 } => hash.update(format!("{url} {sha256:?}")),
            }
        }
        Ok(hex(&hash.finalize()))
    }
}

/// A folder that is prepared in place holds our own files, too: they are no text.
fn leave_own_files_out(listing: &mut Listing, out: &std::path::Path) -> Result<()> {
    let Ok(out) = out.canonicalize() else {
        return Ok(()); // not there yet: nothing of ours
    };
    let is_own = |source: &Source| {
        let Place::File(path) = &source.place else {
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
        true => Err(PrepareError::Usage("there is no text but what prepare made itself".into())),
        false => Ok(()),
    }
}

/// Whether it is one text that is divided by position, and the share for validation.
fn divided(sources: &[Source], val: Option<f64>) -> (bool, f64) {
    let by_position = matches!(sources, [one] if one.format == Format::Text);
    let usual = if by_position { split::TAIL } else { split::DOCUMENTS };
    (by_position, val.unwrap_or(usual))
}

/// What a file is read as: one whose ending does not tell as asked for, JSON and tables as plain
/// text where that is asked for.
fn wanted_format(found: Format, asked: Option<Format>) -> Format {
    match (found, asked) {
        (Format::Text, Some(asked)) => asked,
        (Format::Json | Format::Csv | Format::Tsv, Some(Format::Text)) => Format::Text,
        (found, _) => found,
    }
}

fn standard_input(request: &Request) -> Source {
    let format = request.format.unwrap_or(Format::Text);
    let (name, place) = ("standard input".to_owned(), Place::Stdin);
    Source { name, place, format, packing: Packing::None, bytes: None, split: None }
}

/// Bytes of the sources, and those that the data set and the downloads will take.
fn sizes(
    sources: &[Source],
    (by_characters, twice): (bool, bool),
    request: &Request,
) -> (u64, u64) {
    let size = |source: &Source| source.bytes.unwrap_or(0);
    // A server tells sizes: their sum may be more than a number holds.
    let total = |sum: u64, size: u64| sum.saturating_add(size);
    let bytes = sources.iter().map(size).fold(0, total);
    let tokens = |source| size(source) as f64 * disk::tokens_per_byte(source, by_characters);
    let mut needed = sources.iter().map(tokens).sum::<f64>() as u64;
    if let Some(most) = request.max_tokens {
        needed = needed.min(most.saturating_mul(2).saturating_add(1 << 20));
    }
    let mut downloads: Vec<u64> =
        sources.iter().filter(|s| matches!(s.place, Place::Url { .. })).map(size).collect();
    downloads.sort_unstable();
    // The one in use and the one behind it; all of them where they are read twice.
    let at_once = if request.keep_downloads || twice { downloads.len() } else { 2 };
    let downloads = downloads.into_iter().rev().take(at_once).fold(0, total);
    (bytes, needed.saturating_add(downloads))
}
