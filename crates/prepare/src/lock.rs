//! Allows one preparation at a time in a folder, with a locked file.
//!
//! The system releases the lock however the process ends, so a leftover file does not block the
//! next preparation.

use crate::error::{PrepareError, Result};
use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Hidden, because a folder that is prepared in place is also read as a source.
const NAME: &str = ".prepare.lock";

/// Held while a data set is made.
pub struct Lock {
    path: PathBuf,
    /// The lock lasts as long as this file is open.
    _file: File,
}

impl Lock {
    /// Takes the lock of a folder, creating the folder if needed.
    ///
    /// # Errors
    ///
    /// When another process holds it, or the disk fails.
    pub fn take(folder: &Path) -> Result<Lock> {
        data::disk::make_folder(folder).map_err(PrepareError::io(folder, "create the folder"))?;
        let path = folder.join(NAME);
        loop {
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
            let file = file.map_err(PrepareError::io(&path, "open it"))?;
            match file.try_lock() {
                Ok(()) if is_at(&file, &path) => return Ok(Lock { path, _file: file }),
                Ok(()) => {} // removed by its last holder meanwhile
                Err(TryLockError::WouldBlock) => {
                    let what = "another process is making a data set here; wait until it is \
                                done, or choose another --out";
                    return Err(PrepareError::Output {
                        path: folder.to_owned(),
                        what: what.into(),
                    });
                }
                Err(TryLockError::Error(error)) => {
                    return Err(PrepareError::io(&path, "lock it")(error));
                }
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // It is still locked, so nobody else holds the file of this name. If removing fails, the
        // leftover file does no harm.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether the path still refers to this file.
fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), path.metadata()) {
        (Ok(held), Ok(named)) => (held.dev(), held.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_for_one_and_ends_with_it() {
        let folder = std::env::temp_dir().join(format!("fitgpt-lock-{}", std::process::id()));
        let first = Lock::take(&folder).unwrap();
        let refused = Lock::take(&folder).err().unwrap().to_string();
        assert!(refused.contains("another process"), "{refused}");
        drop(first);
        assert!(!folder.join(NAME).exists());
        drop(Lock::take(&folder).unwrap());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
