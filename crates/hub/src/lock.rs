//! Lets one process at a time download a file into Hugging Face's cache. Its own library takes the
//! same lock: `flock` on `.locks/<repository>/<etag>.lock`.

use crate::error::{HubError, Result};
use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// How often a waiting process tries again.
const GLANCE: Duration = Duration::from_millis(100);
/// Tries before the user is told; a small file takes less.
const QUIET: u64 = 10;

/// Held during a download. The file stays, because others may wait for it.
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock. `waiting` is called once if another process holds it for a second.
    ///
    /// # Errors
    ///
    /// When the disk fails, or the user stops.
    pub fn take(
        path: &Path,
        is_over: &dyn Fn() -> bool,
        waiting: &mut dyn FnMut(),
    ) -> Result<Lock> {
        let folder = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder).map_err(HubError::io(folder, "create the folder"))?;
        // Other users of a shared cache may wait for it, too.
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(false).write(true).mode(0o664).open(path);
        let file = file.map_err(HubError::io(path, "open it"))?;
        for tries in 0_u64.. {
            match file.try_lock() {
                Ok(()) => return Ok(Lock { _file: file }),
                // Where locks are not supported: files appear by a rename, so that two downloads
                // of the same content do no harm.
                Err(TryLockError::Error(error))
                    if error.kind() == std::io::ErrorKind::Unsupported =>
                {
                    return Ok(Lock { _file: file });
                }
                Err(TryLockError::Error(error)) => {
                    return Err(HubError::io(path, "lock it")(error));
                }
                Err(TryLockError::WouldBlock) => {}
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
