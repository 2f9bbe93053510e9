//! A download that is not whole: its bytes, and the mark of the version that they are of.
//!
//! Bytes lie in `<file>.part`, the mark (an entity tag or a date, as the server gave it) in
//! `<file>.part.version`. A part is gone on with where a checksum will prove the whole, or where
//! the server is asked for the rest of that very version.

use crate::error::{PrepareError, Result};
use crate::regular;
use std::path::{Path, PathBuf};
use ureq::http::HeaderMap;

/// Most bytes of a mark.
const MARK: u64 = 1 << 10;

/// Where it lies.
pub struct Part {
    /// Its bytes.
    pub path: PathBuf,
    mark: PathBuf,
    /// Whether the whole can be proved.
    is_proved: bool,
}

impl Part {
    /// That of the file `path`. One that cannot be gone on with is removed.
    #[must_use]
    pub fn new(path: &Path, is_proved: bool) -> Part {
        let (path, mark) = paths(path);
        let part = Part { path, mark, is_proved };
        if !part.is_resumable() {
            part.clear();
        }
        part
    }

    /// Bytes that are there.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.path.metadata().map_or(0, |metadata| metadata.len())
    }

    /// The mark of its version, if the server gave one.
    #[must_use]
    pub fn version(&self) -> Option<String> {
        let mark = regular::read(&self.mark, MARK, "mark of a version").ok()?;
        String::from_utf8(mark).ok().filter(|mark| !mark.is_empty())
    }

    /// Whether another call can go on with it.
    #[must_use]
    pub fn is_resumable(&self) -> bool {
        self.is_proved || self.version().is_some()
    }

    /// A new version begins.
    ///
    /// # Errors
    ///
    /// When the disk refuses.
    pub fn begin(&self, headers: &HeaderMap) -> Result<()> {
        self.clear();
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        // A weak tag says that two versions mean the same, not that their bytes are the same.
        let tag = text("etag").filter(|tag| !tag.starts_with("W/"));
        match tag.or_else(|| text("last-modified")).filter(|mark| (mark.len() as u64) < MARK) {
            Some(mark) => {
                std::fs::write(&self.mark, mark).map_err(PrepareError::io(&self.mark, "write it"))
            }
            None => Ok(()),
        }
    }

    /// Removes all of it. What stays would be untidy, not wrong.
    pub fn clear(&self) {
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_file(&self.mark);
    }

    /// All is there: the file gets its name.
    ///
    /// # Errors
    ///
    /// When the disk refuses.
    pub fn finish(&self, path: &Path) -> Result<()> {
        let named = std::fs::rename(&self.path, path);
        named.map_err(PrepareError::io(path, "name a whole download"))?;
        let _ = std::fs::remove_file(&self.mark);
        Ok(())
    }

    /// What is left after a failure, for its message.
    #[must_use]
    pub fn left(&self) -> String {
        match (self.bytes(), self.is_resumable()) {
            (0, _) => String::new(),
            (bytes, true) => {
                format!("; {bytes} bytes of it are kept, and the same command goes on behind them")
            }
            (_, false) => "; this file begins anew then: its server marks no versions".to_owned(),
        }
    }
}

/// Removes what was begun of a file.
pub fn remove(path: &Path) {
    let (path, mark) = paths(path);
    let _ = std::fs::remove_file(path);
    let _ = std::fs::remove_file(mark);
}

fn paths(path: &Path) -> (PathBuf, PathBuf) {
    let part = path.with_added_extension("part");
    let mark = part.with_added_extension("version");
    (part, mark)
}
