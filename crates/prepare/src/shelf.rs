//! Provides sources as local files. Remote ones are downloaded one ahead of their use.

use crate::error::{PrepareError, Result};
use crate::sources::{Locator, Source};
use hub::{Checksum, Client, hex};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

/// The folder for downloads within the data set's.
pub const FOLDER: &str = "downloads";
/// The copy of standard input in there.
pub const STDIN: &str = "stdin";

/// All sources of a preparation.
#[derive(Clone)]
pub struct Shelf {
    sources: Arc<[Source]>,
    client: Client,
    folder: PathBuf,
}

impl Shelf {
    /// Downloads go to a folder within `out`.
    #[must_use]
    pub fn new(sources: Arc<[Source]>, client: Client, out: &Path) -> Shelf {
        Shelf { sources, client, folder: out.join(FOLDER) }
    }

    /// The path of a source, which may not exist yet.
    #[must_use]
    pub fn path(&self, index: usize) -> PathBuf {
        let source = &self.sources[index];
        match &source.locator {
            Locator::File(path) => path.clone(),
            Locator::Stdin => self.folder.join(STDIN),
            // Shards of two data sets may have the same name, so the copy's name includes a hash of
            // the address.
            Locator::Url { url, sha256 } => {
                let whose = hex(&Sha256::digest(format!("{url} {sha256:?}")));
                self.folder.join(format!("{index:05}-{}-{}", &whose[..12], source.file_name()))
            }
        }
    }

    /// Makes a source available as a local file, downloading it if needed.
    ///
    /// # Errors
    ///
    /// When the download fails.
    pub fn bring(&self, index: usize) -> Result<PathBuf> {
        let path = self.path(index);
        if let Locator::Url { url, sha256 } = &self.sources[index].locator {
            let made = std::fs::create_dir_all(&self.folder);
            made.map_err(PrepareError::io(&self.folder, "create the folder for downloads"))?;
            let checksum = sha256.clone().map(Checksum::Sha256);
            self.client.fetch(url, checksum.as_ref(), &path).inspect_err(|_| {
                let _ = std::fs::remove_dir(&self.folder); // only if it is empty
            })?;
        }
        Ok(path)
    }

    /// Removes the copy of a source that is no longer needed, complete or partial.
    pub fn discard(&self, index: usize) {
        if !matches!(self.sources[index].locator, Locator::File(_)) {
            // A file that cannot be removed does no harm.
            let path = self.path(index);
            hub::remove_part(&path);
            let _ = std::fs::remove_file(path);
        }
    }

    /// Removes all copies, and their folder if it is empty: it may hold files of the user.
    pub fn clear(&self) {
        if self.sources.iter().all(|source| matches!(source.locator, Locator::File(_))) {
            return;
        }
        (0..self.sources.len()).for_each(|index| self.discard(index));
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// Downloads sources in order, the next one while the current one is used.
pub struct Ahead {
    shelf: Shelf,
    coming: Option<(usize, JoinHandle<Result<PathBuf>>)>,
}

impl Ahead {
    /// Starts without any download.
    #[must_use]
    pub fn new(shelf: Shelf) -> Ahead {
        Ahead { shelf, coming: None }
    }

    /// Waits for the file of a source, and starts downloading the next one.
    ///
    /// # Errors
    ///
    /// When the download fails.
    pub fn get(&mut self, index: usize) -> Result<PathBuf> {
        let path = match self.coming.take() {
            Some((expected, thread)) if expected == index => {
                thread.join().unwrap_or_else(|_| {
                    Err(PrepareError::Usage("the download thread ended unexpectedly".to_owned()))
                })?
            }
            _ => self.shelf.bring(index)?,
        };
        let next = self.shelf.sources.get(index + 1);
        if next.is_some_and(|next| matches!(next.locator, Locator::Url { .. })) {
            let shelf = self.shelf.clone();
            let thread = std::thread::Builder::new().name("ahead".to_owned());
            // If no thread can be started, `get` downloads it when it is needed.
            let thread = thread.spawn(move || shelf.bring(index + 1)).ok();
            self.coming = thread.map(|thread| (index + 1, thread));
        }
        Ok(path)
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if let Some((_, thread)) = self.coming.take() {
            // The download is no longer needed.
            self.shelf.client.halt.store(true, Ordering::Relaxed);
            let _ = thread.join();
        }
    }
}
