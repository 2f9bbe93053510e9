//! Lets one process at a time download a file into Hugging Face's cache. Its own library takes the
//! same lock: `flock` on `.locks/<repository>/<etag>.lock`. Some network file systems have no such
//! locks; work then goes on without one, and a line says so.

use crate::error::{HubError, Result};
use crate::platform;
use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::time::Duration;

/// How often a waiting process tries again.
const GLANCE: Duration = Duration::from_millis(100);
/// Tries before the user is told; a small file takes less.
const QUIET: u64 = 10;

/// Locks a file without waiting, like [`File::try_lock`].
pub type TryLock = fn(&File) -> std::result::Result<(), TryLockError>;

/// Who has a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locked {
    /// This process.
    Here,
    /// Another one.
    Elsewhere,
    /// Nobody: the file system has no locks.
    Nowhere,
}

/// Tries to lock a file.
///
/// # Errors
///
/// When the operating system refuses, though the file system has locks.
pub fn try_lock(file: &File, lock: TryLock) -> io::Result<Locked> {
    match lock(file) {
        Ok(()) => Ok(Locked::Here),
        Err(TryLockError::WouldBlock) => Ok(Locked::Elsewhere),
        Err(TryLockError::Error(error)) if has_no_locks(&error) => Ok(Locked::Nowhere),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Whether an error says that the file system has no locks: ENOSYS, EOPNOTSUPP, or ENOLCK.
fn has_no_locks(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported || platform::is_without_lock_service(error)
}

/// The line about a folder whose file system has no locks.
#[must_use]
pub fn no_locks(folder: &Path, doing: &str) -> String {
    let folder = folder.display();
    format!("{folder}: its file system has no file locks; let no other process {doing} meanwhile")
}

/// Held during a download. The file stays, because others may wait for it.
pub struct Lock {
    _file: File,
    /// Whether the file system has locks.
    pub is_locked: bool,
}

impl Lock {
    /// Takes the lock. `waiting` is called once if another process holds it for a second.
    ///
    /// # Errors
    ///
    /// When the disk fails, or the user stops.
    pub fn take(
        path: &Path,
        lock: TryLock,
        is_over: &dyn Fn() -> bool,
        waiting: &mut dyn FnMut(),
    ) -> Result<Lock> {
        let folder = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder).map_err(HubError::io(folder, "create the folder"))?;
        // Other users of a shared cache may wait for it, too.
        let mut options = platform::for_the_group();
        let file = options.create(true).truncate(false).write(true).open(path);
        let file = file.map_err(HubError::io(path, "open it"))?;
        for tries in 0_u64.. {
            match try_lock(&file, lock).map_err(HubError::io(path, "lock it"))? {
                Locked::Here => return Ok(Lock { _file: file, is_locked: true }),
                // Files appear by a rename, and a checksum finds bytes that two processes mixed.
                Locked::Nowhere => return Ok(Lock { _file: file, is_locked: false }),
                Locked::Elsewhere => {}
            }
            if is_over() {
                return Err(HubError::Stopped);
            }
            if tries == QUIET {
                waiting();
            }
            std::thread::sleep(GLANCE);
        }
        Err(HubError::Stopped) // never: the loop has no end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_locks_are_done_without() {
        let file = File::open("/dev/null").unwrap();
        assert_eq!(try_lock(&file, |_| Ok(())).unwrap(), Locked::Here);
        let held = try_lock(&file, |_| Err(TryLockError::WouldBlock)).unwrap();
        assert_eq!(held, Locked::Elsewhere);
        let cases: [(TryLock, bool); 4] = [
            (|_| Err(errno(rustix::io::Errno::NOSYS)), true),
            (|_| Err(errno(rustix::io::Errno::OPNOTSUPP)), true),
            (|_| Err(errno(rustix::io::Errno::NOLCK)), true),
            (|_| Err(errno(rustix::io::Errno::IO)), false),
        ];
        for (lock, is_done_without) in cases {
            let tried = try_lock(&file, lock);
            assert_eq!(tried.ok(), is_done_without.then_some(Locked::Nowhere));
        }
    }

    fn errno(error: rustix::io::Errno) -> TryLockError {
        TryLockError::Error(error.into())
    }
}
