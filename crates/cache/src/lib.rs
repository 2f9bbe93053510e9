//! Cache files, which only save time: compiled kernels, timed matmuls and step times. A cached
//! kernel is executed, so a file is used only if no other user could have written it. A file with
//! any problem is ignored and the caller gets the reason; it costs time, but never a run.

#![forbid(unsafe_code)]

mod contents;

pub use contents::{Contents, KERNELS};

use std::fmt;
use std::fs::{DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Why a cached file is not used.
#[derive(Debug)]
pub enum Ignored {
    /// There is no file. This needs no message.
    Absent,
    /// The file or its folder belongs to neither this user nor root.
    Foreign {
        /// The owner's user id.
        owner: u32,
    },
    /// Other users may write to the file or its folder.
    Writable,
    /// It is not a regular file.
    NotAFile,
    /// It is longer than any file that this program writes.
    TooLarge {
        /// The most bytes allowed.
        limit: u64,
    },
    /// It is damaged or from another version.
    Content(&'static str),
    /// It cannot be read.
    Io(io::Error),
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ignored::Absent => write!(f, "it does not exist"),
            Ignored::Foreign { owner } => {
                write!(f, "it or its folder belongs to another user (uid {owner})")
            }
            Ignored::Writable => {
                write!(f, "other users can write to it or its folder (run chmod go-w on both)")
            }
            Ignored::NotAFile => write!(f, "it is not a regular file"),
            Ignored::TooLarge { limit } => write!(f, "it is longer than {limit} bytes"),
            Ignored::Content(what) => write!(f, "{what}"),
            Ignored::Io(error) => error.fmt(f),
        }
    }
}

/// The cache folder: `FITGPT_CACHE`, else `fitgpt` in the user's cache folder; `None` if there is
/// no home folder.
#[must_use]
pub fn folder() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let system = || named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")));
    named("FITGPT_CACHE").or_else(|| Some(system()?.join("fitgpt")))
}

/// Reads a file that only this user or root can have written.
///
/// # Errors
///
/// Why it is not used.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>, Ignored> {
    // Checked before opening, because opening a pipe waits for a writer.
    if !path.metadata().map_err(absent)?.is_file() {
        return Err(Ignored::NotAFile);
    }
    let mut file = File::open(path).map_err(absent)?;
    let metadata = file.metadata().map_err(Ignored::Io)?;
    if !metadata.is_file() {
        return Err(Ignored::NotAFile);
    }
    trust(&metadata)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    trust(&folder.unwrap_or(Path::new(".")).metadata().map_err(Ignored::Io)?)?;
    if metadata.len() > limit {
        return Err(Ignored::TooLarge { limit });
    }
    let mut content = Vec::new();
    (&mut file).take(limit + 1).read_to_end(&mut content).map_err(Ignored::Io)?;
    match content.len() as u64 > limit {
        true => Err(Ignored::TooLarge { limit }),
        false => Ok(content),
    }
}

/// Replaces a file by writing a temporary one and renaming it, so that another process never sees a
/// partial file. Only this user can read or write the file and new folders.
///
/// # Errors
///
/// When the operating system refuses.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    make_folder(path)?;
    let temporary = path.with_added_extension(format!("{}.part", std::process::id()));
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| file.write_all(content))
        .and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

/// Waits until no other process holds this lock file, at most for `patience`. The lock ends when
/// the file is dropped. `None` if it could not be had: the cache only saves time, so callers work
/// on without it.
#[must_use]
pub fn lock(path: &Path, patience: Duration) -> Option<File> {
    make_folder(path).ok()?;
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(path).ok()?;
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Some(file),
            Err(TryLockError::WouldBlock) if start.elapsed() < patience => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(_) => return None,
        }
    }
}

/// Makes the folder of a file. Only this user can enter a new one.
fn make_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) => DirBuilder::new().recursive(true).mode(0o700).create(folder),
        None => Ok(()),
    }
}

fn absent(error: io::Error) -> Ignored {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ignored::Absent,
        _ => Ignored::Io(error),
    }
}

fn trust(metadata: &Metadata) -> Result<(), Ignored> {
    let owner = metadata.uid();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(Ignored::Foreign { owner });
    }
    match metadata.mode() & 0o022 {
        0 => Ok(()),
        _ => Err(Ignored::Writable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use requires::{Need, absent};
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown};

    struct TempDir(PathBuf);

    impl TempDir {
        fn new(name: &str) -> TempDir {
            let name = format!("fitgpt-cache-{}-{name}", std::process::id());
            let dir = TempDir(std::env::temp_dir().join(name));
            let _ = std::fs::remove_dir_all(&dir.0);
            write(&dir.file(), b"content").unwrap();
            dir
        }

        fn file(&self) -> PathBuf {
            self.0.join("kernels").join("a")
        }

        fn mode(&self, path: &Path, mode: u32) {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
    }

    impl Drop for TempDir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_was_written_is_read_back() {
        let dir = TempDir::new("own");
        assert_eq!(read(&dir.file(), 7).unwrap(), b"content");
        assert!(matches!(read(&dir.file(), 6), Err(Ignored::TooLarge { limit: 6 })));
        assert!(matches!(read(&dir.0.join("b"), 9), Err(Ignored::Absent)));
        assert!(matches!(read(&dir.file().join("c"), 9), Err(Ignored::Absent)));
        assert!(matches!(read(&dir.0, 9), Err(Ignored::NotAFile)));
        write(&dir.file(), b"other").unwrap();
        assert_eq!(read(&dir.file(), 7).unwrap(), b"other");
        let names = std::fs::read_dir(dir.0.join("kernels")).unwrap().count();
        assert_eq!(names, 1, "the temporary file is gone");
        assert!(write(Path::new("/proc/fitgpt/a"), b"x").is_err());
    }

    #[test]
    fn a_lock_is_had_once_and_waiting_ends() {
        let dir = TempDir::new("lock");
        let path = dir.0.join("new").join("lock");
        let held = lock(&path, Duration::ZERO);
        assert!(held.is_some());
        assert!(lock(&path, Duration::from_millis(50)).is_none());
        drop(held);
        assert!(lock(&path, Duration::ZERO).is_some());
        assert!(lock(Path::new("/proc/fitgpt/lock"), Duration::ZERO).is_none());
    }

    #[test]
    fn what_others_may_write_is_ignored() {
        let dir = TempDir::new("writable");
        let (file, folder) = (dir.file(), dir.0.join("kernels"));
        for (path, mode, usual) in [(&file, 0o602, 0o600), (&file, 0o620, 0o600)]
            .into_iter()
            .chain([(&folder, 0o777, 0o700), (&folder, 0o770, 0o700)])
        {
            dir.mode(path, mode);
            assert!(matches!(read(&file, 9), Err(Ignored::Writable)), "{mode:o}");
            dir.mode(path, usual);
            assert!(read(&file, 9).is_ok());
        }
    }

    #[test]
    fn what_belongs_to_somebody_else_is_ignored() {
        let dir = TempDir::new("foreign");
        for path in [dir.file(), dir.0.join("kernels")] {
            if chown(&path, Some(12345), None).is_err() {
                return absent(Need::Root, "only root can change a file's owner");
            }
            assert!(matches!(read(&dir.file(), 9), Err(Ignored::Foreign { owner: 12345 })));
            chown(&path, Some(rustix::process::geteuid().as_raw()), None).unwrap();
        }
        assert!(read(&dir.file(), 9).is_ok());
    }

    #[test]
    fn a_pipe_and_a_device_are_no_files() {
        let dir = TempDir::new("pipe");
        let pipe = dir.0.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        if made.is_ok_and(|status| status.success()) {
            assert!(matches!(read(&pipe, 9), Err(Ignored::NotAFile)));
        }
        let link = dir.0.join("zero");
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        assert!(matches!(read(&link, 9), Err(Ignored::NotAFile)));
    }
}
