//! The journal: how far a preparation got. It is a small JSON file that is replaced atomically, and
//! only after the tokens it counts are safely on disk.

use crate::error::{PrepareError, Result};
use crate::{disk, limits, regular};
use serde_json::{Value, json};
use std::path::Path;

/// Its name in the data set's folder. It remains there as a record.
pub const NAME: &str = "prepare.json";

const SCHEMA: &str = "fitgpt.prepare/1";

/// Largest valid count, so that sums and byte sizes cannot overflow.
const MOST: u64 = 1 << 56;

/// Counts of what was read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Training tokens.
    pub train_tokens: u64,
    /// Validation tokens.
    pub val_tokens: u64,
    /// Training documents.
    pub train_documents: u64,
    /// Validation documents.
    pub val_documents: u64,
    /// Bytes of text.
    pub text_bytes: u64,
    /// How many U+FFFD replaced invalid UTF-8.
    pub replaced: u64,
    /// Documents without text that were skipped.
    pub skipped: u64,
}

/// A state from which a preparation can resume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Journal {
    /// Checksum of the request; a different request starts over.
    pub settings: String,
    /// Index of the current source.
    pub source: u64,
    /// How many of its batches were written.
    pub batches: u64,
    /// The number of its first document.
    pub first_document: u64,
    /// Everything so far.
    pub totals: Totals,
    /// Whether everything is written.
    pub complete: bool,
}

impl Journal {
    /// Reads the journal of a folder; `None` if there is none, or the file is not a journal.
    ///
    /// # Errors
    ///
    /// When it cannot be read or has impossible counts.
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

    /// Parses a journal; `None` if the bytes are not one. The counts are not checked here, but in
    /// [`Journal::read`].
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Journal> {
        // A tree of values takes about ten times its text, so the limit on the file's size bounds
        // it.
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

    /// Whether nothing was written yet.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.totals == Totals::default()
    }

    /// Describes an impossible count, if there is one.
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
            return Some(format!("its {name} is {count}, more than any disk holds"));
        }
        // These sums cannot overflow, because each part is at most MOST.
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
    /// When the disk fails; the old journal then remains.
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

/// The error for a damaged journal.
pub fn damaged(folder: &Path, what: &str) -> PrepareError {
    let advice = "remove it to start over, or give prepare --overwrite";
    PrepareError::Output { path: folder.join(NAME), what: format!("is damaged: {what}; {advice}") }
}

/// Replaces a file when the new content is safely on disk.
pub fn replace(path: &Path, content: &[u8]) -> Result<()> {
    disk::check_limit(path, content.len() as u64, data::disk::file_limit())?;
    data::disk::replace(path, content).map_err(PrepareError::io(path, "write it"))
}
