//! An incomplete download: its bytes, and the version of the file that they belong to.
//!
//! The bytes are in `<file>.part`, in Hugging Face's cache in `<file>.incomplete`. The first line
//! of `<file>.part.version` is the version as the server gave it: an ETag or a date. A download
//! resumes if a checksum will verify the whole file, or if the server can be asked for the rest of
//! that same version. The second line counts the bytes that are safely on disk; after a power cut,
//! bytes beyond them may be zeros.

use crate::error::{HubError, Result};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::path::{Path, PathBuf};
use ureq::http::HeaderMap;

/// Most bytes of a version file.
const MARK: u64 = 1 << 10;

/// How many bytes the complete file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Nobody knows.
    Unknown,
    /// No more than this.
    AtMost(u64),
    /// As many as the server announced.
    Exactly(u64),
}

impl Size {
    /// The bytes that the file may have.
    #[must_use]
    pub fn most(self) -> u64 {
        match self {
            Size::Unknown => u64::MAX,
            Size::AtMost(bytes) | Size::Exactly(bytes) => bytes,
        }
    }

    /// Whether the complete file can have so many.
    #[must_use]
    pub fn allows(self, bytes: u64) -> bool {
        match self {
            Size::Exactly(announced) => bytes == announced,
            _ => bytes <= self.most(),
        }
    }
}

/// The files of an incomplete download.
pub struct Part {
    /// The file with the bytes.
    pub path: PathBuf,
    /// The size of the complete file.
    pub size: Size,
    mark: PathBuf,
    /// Whether a checksum will verify the complete file.
    is_proved: bool,
    /// Whether the version is kept in a file.
    is_marked: bool,
}

impl Part {
    /// The incomplete download of `path`. It is removed if it cannot be resumed. Bytes that no
    /// checksum will verify and that may not be safely on disk are truncated.
    #[must_use]
    pub fn new(path: &Path, is_proved: bool) -> Part {
        let part = path.with_added_extension("part");
        Part::resumed(part, Size::Unknown, is_proved, true)
    }

    /// The incomplete download of a blob in Hugging Face's cache. Its name is its checksum, so the
    /// version needs no file of its own.
    #[must_use]
    pub fn of_blob(blob: &Path, size: Size, is_proved: bool) -> Part {
        Part::resumed(blob.with_added_extension("incomplete"), size, is_proved, !is_proved)
    }

    fn resumed(path: PathBuf, size: Size, is_proved: bool, is_marked: bool) -> Part {
        let mark = path.with_added_extension("version");
        let part = Part { path, size, mark, is_proved, is_marked };
        let is_whole = match part.read_mark() {
            _ if part.bytes() > size.most() => false,
            _ if is_proved => true,
            Some((_, safe)) => part.bytes() <= safe || part.cut(safe).is_ok(),
            None => false,
        };
        if !is_whole {
            part.clear();
        }
        part
    }

    /// Bytes received so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.path.metadata().map_or(0, |metadata| metadata.len())
    }

    /// Its version, if the server gave one.
    #[must_use]
    pub fn version(&self) -> Option<String> {
        self.read_mark().map(|(version, _)| version)
    }

    /// The version, and the number of bytes that are safely on disk.
    fn read_mark(&self) -> Option<(String, u64)> {
        if !self.mark.is_file() {
            return None; // opening a pipe would wait for its writer
        }
        let mut mark = String::new();
        File::open(&self.mark).ok()?.take(MARK).read_to_string(&mut mark).ok()?;
        let (version, safe) = mark.split_once('\n').unwrap_or((&mark, "0"));
        is_sendable(version).then(|| (version.to_owned(), safe.trim().parse().unwrap_or(0)))
    }

    fn write_mark(&self, version: &str, safe: u64) -> Result<()> {
        let mark = format!("{version}\n{safe}\n");
        let written = data::disk::replace(&self.mark, mark.as_bytes());
        written.map_err(HubError::io(&self.mark, "write it"))
    }

    /// Syncs its bytes. Afterwards a power cut cannot lose them.
    ///
    /// # Errors
    ///
    /// When the disk fails.
    pub fn sync(&self, file: &File, bytes: u64) -> Result<()> {
        file.sync_data().map_err(HubError::io(&self.path, "write a download"))?;
        match self.version() {
            Some(version) => self.write_mark(&version, bytes),
            None => Ok(()),
        }
    }

    fn cut(&self, bytes: u64) -> std::io::Result<()> {
        OpenOptions::new().write(true).open(&self.path)?.set_len(bytes)
    }

    /// Whether another call can resume it.
    #[must_use]
    pub fn is_resumable(&self) -> bool {
        self.is_proved || self.version().is_some()
    }

    /// Starts the download of a new version.
    ///
    /// # Errors
    ///
    /// When the disk fails.
    pub fn begin(&self, headers: &HeaderMap) -> Result<()> {
        self.clear();
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        // A weak ETag does not promise that two versions have the same bytes.
        let tag = text("etag").filter(|tag| !tag.starts_with("W/"));
        match tag.or_else(|| text("last-modified")).filter(|version| is_sendable(version)) {
            Some(version) if self.is_marked => self.write_mark(version, 0),
            _ => Ok(()),
        }
    }

    /// Removes the files. A file that cannot be removed does no harm.
    pub fn clear(&self) {
        let _ = std::fs::remove_file(&self.path);
        remove_mark(&self.mark);
    }

    /// Renames the complete file.
    ///
    /// # Errors
    ///
    /// When the disk fails.
    pub fn finish(&self, path: &Path) -> Result<()> {
        let named = std::fs::rename(&self.path, path);
        named.map_err(HubError::io(path, "rename a complete download"))?;
        remove_mark(&self.mark);
        Ok(())
    }

    /// For the message of a failure: what was kept.
    #[must_use]
    pub fn left(&self) -> String {
        match (self.bytes(), self.is_resumable()) {
            (0, _) => String::new(),
            (bytes, true) => {
                format!("; {bytes} bytes of it are kept, and the same command resumes from there")
            }
            (_, false) => "; this file then starts over, because its server gives no ETag or \
                           Last-Modified"
                .to_owned(),
        }
    }
}

/// Removes the incomplete download of a file.
pub fn remove(path: &Path) {
    let part = path.with_added_extension("part");
    remove_mark(&part.with_added_extension("version"));
    let _ = std::fs::remove_file(part);
}

/// Removes a version file and the temporary file that a kill may have left.
fn remove_mark(mark: &Path) {
    let _ = std::fs::remove_file(mark);
    let _ = std::fs::remove_file(mark.with_added_extension("part"));
}

/// Whether a version can be sent in a header and stored on a line of its own.
fn is_sendable(version: &str) -> bool {
    let is_short = (version.len() as u64) < MARK - 32;
    is_short && !version.is_empty() && version.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}
