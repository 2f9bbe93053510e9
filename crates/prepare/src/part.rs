//! A download that is not whole: its bytes, and the mark of the version that they are of.
//!
//! Bytes lie in `<file>.part`, the mark (an entity tag or a date, as the server gave it) in the
//! first line of `<file>.part.version`. A part is gone on with where a checksum will prove the
//! whole, or where the server is asked for the rest of that very version. The second line counts
//! the bytes that are safely on disk: after a power cut, those behind them may be zeros.

use crate::error::{PrepareError, Result};
use crate::{journal, regular};
use std::fs::{File, OpenOptions};
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
    /// That of the file `path`. One that cannot be gone on with is removed; bytes that nothing
    /// will prove and that may not be safely on disk are cut off.
    #[must_use]
    pub fn new(path: &Path, is_proved: bool) -> Part {
        let (path, mark) = paths(path);
        let part = Part { path, mark, is_proved };
        let is_whole = match part.read_mark() {
            _ if is_proved => true,
            Some((_, safe)) => part.bytes() <= safe || part.cut(safe).is_ok(),
            None => false,
        };
        if !is_whole {
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
        self.read_mark().map(|(version, _)| version)
    }

    /// The mark of the version, and the bytes that are safely on disk.
    fn read_mark(&self) -> Option<(String, u64)> {
        let mark = regular::read(&self.mark, MARK, "mark of a version").ok()?;
        let mark = String::from_utf8(mark).ok()?;
        let (version, safe) = mark.split_once('\n').unwrap_or((&mark, "0"));
        is_sendable(version).then(|| (version.to_owned(), safe.trim().parse().unwrap_or(0)))
    }

    fn write_mark(&self, version: &str, safe: u64) -> Result<()> {
        journal::replace(&self.mark, format!("{version}\n{safe}\n").as_bytes())
    }

    /// Makes its bytes safe: after this, not even a power cut loses them.
    ///
    /// # Errors
    ///
    /// When the disk refuses.
    pub fn sync(&self, file: &File, bytes: u64) -> Result<()> {
        file.sync_data().map_err(PrepareError::io(&self.path, "write a download"))?;
        match self.version() {
            Some(version) => self.write_mark(&version, bytes),
            None => Ok(()),
        }
    }

    fn cut(&self, bytes: u64) -> std::io::Result<()> {
        OpenOptions::new().write(true).open(&self.path)?.set_len(bytes)
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
        match tag.or_else(|| text("last-modified")).filter(|version| is_sendable(version)) {
            Some(version) => self.write_mark(version, 0),
            None => Ok(()),
        }
    }

    /// Removes all of it. What stays would be untidy, not wrong.
    pub fn clear(&self) {
        let _ = std::fs::remove_file(&self.path);
        remove_mark(&self.mark);
    }

    /// All is there: the file gets its name.
    ///
    /// # Errors
    ///
    /// When the disk refuses.
    pub fn finish(&self, path: &Path) -> Result<()> {
        let named = std::fs::rename(&self.path, path);
        named.map_err(PrepareError::io(path, "name a whole download"))?;
        remove_mark(&self.mark);
        Ok(())
    }

    /// What is left after a failure, for its message.
    #[must_use]
    pub fn left(&self) -> String {
        match (self.bytes(), self.is_resumable()) {
            (0, _) => String::new(),
            (bytes, true) => {
                format!("; {bytes} bytes of it are kept, and the same command continues from there")
            }
            (_, false) => "; this file then begins anew, because its server gives no ETag or \
                           Last-Modified"
                .to_owned(),
        }
    }
}

/// Removes what was begun of a file.
pub fn remove(path: &Path) {
    let (path, mark) = paths(path);
    let _ = std::fs::remove_file(path);
    remove_mark(&mark);
}

/// Removes a mark, and what a kill left of its replacement.
fn remove_mark(mark: &Path) {
    let _ = std::fs::remove_file(mark);
    let _ = std::fs::remove_file(mark.with_added_extension("part"));
}

/// Whether a mark can stand in a header, and in a line of its file with a number behind it.
fn is_sendable(version: &str) -> bool {
    let is_short = (version.len() as u64) < MARK - 32;
    is_short && !version.is_empty() && version.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

fn paths(path: &Path) -> (PathBuf, PathBuf) {
    let part = path.with_added_extension("part");
    let mark = part.with_added_extension("version");
    (part, mark)
}
