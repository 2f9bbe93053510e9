//! How far a preparation came, on disk: a small JSON file that is replaced as a whole, and only
//! after the tokens it counts are safely there.

use crate::error::{PrepareError, Result};
use crate::{disk, limits, regular};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Its name in the data set's folder. It stays there as a record.
pub const NAME: &str = "prepare.json";

const SCHEMA: &str = "fitgpt.prepare/1";

/// Most of anything that is counted: the sum of a few does not wrap, nor do their bytes.
const MOST: u64 = 1 << 56;

/// What was read and written, all of it counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Tokens of the half that is trained on.
    pub train_tokens: u64,
    /// Tokens of the other.
    pub val_tokens: u64,
    /// Documents of the half that is trained on.
    pub train_documents: u64,
    /// Documents of the other.
    pub val_documents: u64,
    /// Bytes of text.
    pub text_bytes: u64,
    /// Replacements of what was no UTF-8.
    pub replaced: u64,
    /// Documents without text that were left out.
    pub skipped: u64,
}

/// A state from which a preparation can go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Journal {
    /// What was asked for, as a checksum: another request begins anew.
    pub settings: String,
    /// The source that is read.
    pub source: u64,
    /// Its batches that were written.
    pub batches: u64,
    /// The number of its first document.
    pub first_document: u64,
    /// Everything so far.
    pub totals: Totals,
    /// Whether nothing is left to be written.
    pub complete: bool,
}

impl Journal {
    /// The journal in a folder; none where there is none, or none of ours.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or counts what cannot be.
    pub fn read(folder: &Path) -> Result<Option<Journal>> {
        let path = folder.join(NAME);
        if !path.exists() {
            return Ok(None);
        }
        let journal = Journal::parse(&regular::read(&path, limits::JOURNAL, "journal of ours")?);
        match journal.as_ref().and_then(Journal::impossible) {
            Some(what) => Err(damaged(folder, &what)),
            None => Ok(journal),
        }
    }

    /// What the bytes of a journal say; none where they are no journal of ours. The counts may be
    /// anything: [`Journal::read`] looks at them.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Journal> {
        // A tree of values takes some ten times its text: the bound of the file bounds it.
        let value: Value = serde_json::from_slice(bytes).ok()?;
        if value["schema"] != SCHEMA {
            return None;
        }
        let number = |name: &str| value[name].as_u64();
        Some(Journal {
            settings: value["settings"].as_str()?.to_owned(),
            source: number("source")?,
            batches: number("batches")?,
            first_document: number("first_document")?,
            totals: Totals {
                train_tokens: number("train_tokens")?,
                val_tokens: number("val_tokens")?,
                train_documents: number("train_documents")?,
                val_documents: number("val_documents")?,
                text_bytes: number("text_bytes")?,
                replaced: number("replaced")?,
                skipped: number("skipped")?,
            },
            complete: value["complete"].as_bool()?,
        })
    }

    /// What it counts that no preparation can have counted.
    #[must_use]
    pub fn impossible(&self) -> Option<String> {
        let Totals { train_tokens, val_tokens, train_documents, val_documents, .. } = self.totals;
        let Totals { text_bytes, replaced, skipped, .. } = self.totals;
        let all = [
            ("train_tokens", train_tokens),
            ("val_tokens", val_tokens),
            ("train_documents", train_documents),
            ("val_documents", val_documents),
            ("text_bytes", text_bytes),
            ("replaced", replaced),
            ("skipped", skipped),
            ("source", self.source),
            ("batches", self.batches),
            ("first_document", self.first_document),
        ];
        if let Some((name, count)) = all.into_iter().find(|(_, count)| *count > MOST) {
            return Some(format!("it has {count} as {name}, more than any disk holds"));
        }
        // None of these sums wraps: each part is at most MOST.
        let (tokens, documents) = (train_tokens + val_tokens, train_documents + val_documents);
        if tokens > text_bytes + documents {
            return Some(format!(
                "it counts {tokens} tokens of {text_bytes} bytes in {documents} documents"
            ));
        }
        let (first, source) = (self.first_document, self.source);
        (first > documents + source).then(|| {
            format!("it counts {documents} documents, but its position is document {first}")
        })
    }

    /// Replaces the journal in a folder.
    ///
    /// # Errors
    ///
    /// When the disk refuses; the old one is still there then.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let totals = &self.totals;
        let value = json!({
            "schema": SCHEMA,
            "complete": self.complete,
            "settings": self.settings,
            "source": self.source,
            "batches": self.batches,
            "first_document": self.first_document,
            "train_tokens": totals.train_tokens,
            "val_tokens": totals.val_tokens,
            "train_documents": totals.train_documents,
            "val_documents": totals.val_documents,
            "text_bytes": totals.text_bytes,
            "replaced": totals.replaced,
            "skipped": totals.skipped,
        });
        replace(&folder.join(NAME), format!("{value:#}\n").as_bytes())
    }
}

/// The journal of a folder cannot be right.
pub fn damaged(folder: &Path, what: &str) -> PrepareError {
    let advice = "remove it to begin anew, or give prepare --overwrite";
    PrepareError::Output { path: folder.join(NAME), what: format!("is damaged: {what}; {advice}") }
}

/// Writes a file beside the old one, and swaps them when it is safely on disk.
pub fn replace(path: &Path, content: &[u8]) -> Result<()> {
    disk::check_limit(path, content.len() as u64, data::disk::file_limit())?;
    let beside = path.with_added_extension("part");
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&beside)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&beside, path)?;
        path.parent().map_or(Ok(()), sync_folder)
    };
    write().map_err(PrepareError::io(path, "write it"))
}

/// Names in a folder, safely on disk.
pub fn sync_folder(folder: &Path) -> std::io::Result<()> {
    File::open(folder)?.sync_all()
}
