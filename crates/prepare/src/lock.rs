//! Allows one preparation at a time in a folder, with a locked file.
//!
//! The system releases the lock however the process ends, so a leftover file does not block the
//! next preparation.

use crate::error::{PrepareError, Result};
use hub::{Locked, TryLock};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Hidden, because a folder that is prepared in place is also read as a source.
const NAME: &str = ".prepare.lock";

/// Held while a data set is made.
pub struct Lock {
    path: PathBuf,
    /// The lock lasts as long as this file is open.
    _file: File,
    /// Whether the file system has locks.
    pub is_locked: bool,
}

impl Lock {
    /// Takes the lock of a folder, creating the folder if needed.
    ///
    /// # Errors
    ///
    /// When another process holds it, or the disk fails.
    pub fn take(folder: &Path, lock: TryLock) -> Result<Lock> {
        data::disk::make_folder(folder).map_err(PrepareError::io(folder, "create the folder"))?;
        let path = folder.join(NAME);
        loop {
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
            let file = file.map_err(PrepareError::io(&path, "open it"))?;
            let tried = hub::try_lock(&file, lock).map_err(PrepareError::io(&path, "lock it"))?;
            let is_locked = tried == Locked::Here;
            match tried {
                Locked::Elsewhere => {
                    let what = "another process is making a data set here; wait until it is \
                                done, or choose another --out";
                    return Err(PrepareError::Output {
                        path: folder.to_owned(),
                        what: what.into(),
                    });
                }
                Locked::Here if !is_at(&file, &path) => {} // removed by its last holder meanwhile
                Locked::Here | Locked::Nowhere => return Ok(Lock { path, _file: file, is_locked }),
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
    use std::fs::TryLockError;

    #[test]
    fn a_lock_is_for_one_and_ends_with_it() {
        let folder = std::env::temp_dir().join(format!("fitgpt-lock-{}", std::process::id()));
        let first = Lock::take(&folder, File::try_lock).unwrap();
        let refused = Lock::take(&folder, File::try_lock).err().unwrap().to_string();
        assert!(refused.contains("another process"), "{refused}");
        drop(first);
        assert!(!folder.join(NAME).exists());
        drop(Lock::take(&folder, File::try_lock).unwrap());
        let none = Lock::take(&folder, |_| Err(unsupported())).unwrap();
        assert!(!none.is_locked);
        assert!(Lock::take(&folder, |_| Err(failed())).is_err());
        drop(none);
        std::fs::remove_dir_all(folder).unwrap();
    }

    fn unsupported() -> TryLockError {
        TryLockError::Error(std::io::ErrorKind::Unsupported.into())
    }

    fn failed() -> TryLockError {
        TryLockError::Error(std::io::ErrorKind::PermissionDenied.into())
    }
}
