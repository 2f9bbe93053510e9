//! How far a preparation came, on disk: a small JSON file that is replaced as a whole, and only
//! after the tokens it counts are safely there.

use crate::error::{PrepareError, Result};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Its name in the data set's folder. It stays there as a record.
pub const NAME: &str = "prepare.json";

const SCHEMA: &str = "fitgpt.prepare/1";

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
    /// The journal in a folder; none where there is none, or none that can be read.
    #[must_use]
    pub fn read(folder: &Path) -> Option<Journal> {
        let text = std::fs::read(folder.join(NAME)).ok()?;
        let value: Value = serde_json::from_slice(&text).ok()?;
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

/// Writes a file beside the old one, and swaps them when it is safely on disk.
pub fn replace(path: &Path, content: &[u8]) -> Result<()> {
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
