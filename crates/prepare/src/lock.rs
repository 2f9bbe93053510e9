//! One preparation at a time in a folder: a locked file that is there as long as somebody works.
//!
//! The system frees the lock of a process that ends in whatever way, so a file that is left behind
//! locks nobody out.

use crate::error::{PrepareError, Result};
use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Hidden: a folder that is prepared in place may be read as a source.
const NAME: &str = ".prepare.lock";

/// Held while a data set is made.
pub struct Lock {
    path: PathBuf,
    /// Locked while it is open.
    _file: File,
}

impl Lock {
    /// Takes the lock of a folder, which is made where it is not there.
    ///
    /// # Errors
    ///
    /// When another process has it, or the disk refuses.
    pub fn take(folder: &Path) -> Result<Lock> {
        data::disk::make_folder(folder).map_err(PrepareError::io(folder, "make the folder"))?;
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
        // Still locked: nobody else can have it under this name. One that stays harms nobody.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether the file is still the one of that name.
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
