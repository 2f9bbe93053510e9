//! Sources as files on disk: those from elsewhere are brought one ahead of their use.

use crate::download::{Client, hex};
use crate::error::{PrepareError, Result};
use crate::part;
use crate::sources::{Place, Source};
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

    /// Where a source lies, or will lie.
    #[must_use]
    pub fn path(&self, index: usize) -> PathBuf {
        let source = &self.sources[index];
        match &source.place {
            Place::File(path) => path.clone(),
            Place::Stdin => self.folder.join(STDIN),
            // Shards of two data sets may have one name: the address is part of the copy's.
            Place::Url { url, sha256 } => {
                let whose = hex(&Sha256::digest(format!("{url} {sha256:?}")));
                self.folder.join(format!("{index:05}-{}-{}", &whose[..12], source.file_name()))
            }
        }
    }

    /// Brings a source here.
    ///
    /// # Errors
    ///
    /// When it cannot be had.
    pub fn bring(&self, index: usize) -> Result<PathBuf> {
        let path = self.path(index);
        if let Place::Url { url, sha256 } = &self.sources[index].place {
            let made = std::fs::create_dir_all(&self.folder);
            made.map_err(PrepareError::io(&self.folder, "make the folder for downloads"))?;
            self.client.fetch(url, sha256.as_deref(), &path)?;
        }
        Ok(path)
    }

    /// Removes the copy of a source that is used up, or was begun and is not needed any more.
    pub fn discard(&self, index: usize) {
        if !matches!(self.sources[index].place, Place::File(_)) {
            // A file that stays is untidy, not wrong.
            let path = self.path(index);
            part::remove(&path);
            let _ = std::fs::remove_file(path);
        }
    }

    /// Removes all copies, and their folder if nothing else is in it: it may be the user's.
    pub fn clear(&self) {
        if self.sources.iter().all(|source| matches!(source.place, Place::File(_))) {
            return;
        }
        (0..self.sources.len()).for_each(|index| self.discard(index));
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// Brings sources in order, the next one while the last is used.
pub struct Ahead {
    shelf: Shelf,
    coming: Option<(usize, JoinHandle<Result<PathBuf>>)>,
}

impl Ahead {
    /// Nothing is on its way yet.
    #[must_use]
    pub fn new(shelf: Shelf) -> Ahead {
        Ahead { shelf, coming: None }
    }

    /// A source's file, once it is here; the one behind it is on its way then.
    ///
    /// # Errors
    ///
    /// When it cannot be had.
    pub fn get(&mut self, index: usize) -> Result<PathBuf> {
        let path = match self.coming.take() {
            Some((expected, thread)) if expected == index => {
                thread.join().unwrap_or_else(|_| {
                    Err(PrepareError::Usage("the thread that downloads ended".to_owned()))
                })?
            }
            _ => self.shelf.bring(index)?,
        };
        let next = self.shelf.sources.get(index + 1);
        if next.is_some_and(|next| matches!(next.place, Place::Url { .. })) {
            let shelf = self.shelf.clone();
            let thread = std::thread::Builder::new().name("ahead".to_owned());
            // Where no thread is to be had, it is brought when its turn comes.
            let thread = thread.spawn(move || shelf.bring(index + 1)).ok();
            self.coming = thread.map(|thread| (index + 1, thread));
        }
        Ok(path)
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if let Some((_, thread)) = self.coming.take() {
            // Nobody waits for it any more.
            self.shelf.client.halt.store(true, Ordering::Relaxed);
            let _ = thread.join();
        }
    }
}
