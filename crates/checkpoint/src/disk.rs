//! The file operations that a save uses. They are behind a trait so that tests can make each of
//! them fail; outside tests, [`RealDisk`] is the only implementation. What only some systems have
//! is called here alone.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Fills the buffer from this offset of a file.
///
/// # Errors
///
/// The operating system's; `UnexpectedEof` if the file ends before the buffer is full.
pub(crate) fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    file.read_exact_at(buffer, offset)
}

/// The file operations of a save. Paths and errors are the operating system's.
pub(crate) trait Disk {
    type File;

    /// The names in a directory.
    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>>;

    /// Whether the process that was writing this temporary file is gone.
    fn is_abandoned(&self, temporary: &Temporary) -> bool;

    /// Creates an empty file. Until the handle is dropped, [`Disk::is_abandoned`] is false for it.
    fn create(&self, path: &Path) -> io::Result<Self::File>;

    /// Opens an existing file for reading; returns it with its length.
    fn open(&self, path: &Path) -> io::Result<(Self::File, u64)>;

    /// Reads up to `bytes.len()` bytes; returns how many.
    fn read_at(&self, file: &Self::File, bytes: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes some or all of `bytes`; returns how many.
    fn write_at(&self, file: &Self::File, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Waits until the file's content is on the disk.
    fn sync(&self, file: &Self::File) -> io::Result<()>;

    /// Waits until the directory's entries are on the disk.
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;

    /// Renames a file, replacing any file that has the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Adds a second name to a file.
    fn hard_link(&self, file: &Path, name: &Path) -> io::Result<()>;

    /// Removes a file's name.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// The temporary name under which a process writes a file before renaming it: `<name>.tmp-<pid>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Temporary {
    pub path: PathBuf,
    pub pid: u32,
}

impl Temporary {
    /// The temporary file that process `pid` uses for `path`; `None` if the path has no file name.
    pub fn of(path: &Path, pid: u32) -> Option<Temporary> {
        let mut name = path.file_name()?.to_owned();
        name.push(format!(".tmp-{pid}"));
        Some(Temporary { path: path.with_file_name(name), pid })
    }

    /// Finds the temporary files of `path` among the names of its directory, from any process.
    pub fn among(names: Vec<OsString>, path: &Path) -> Vec<Temporary> {
        let pid = |name: OsString| {
            let name = name.into_encoded_bytes();
            let rest = name.strip_prefix(path.file_name()?.as_encoded_bytes())?;
            let digits = std::str::from_utf8(rest.strip_prefix(b".tmp-")?).ok()?;
            digits.parse().ok()
        };
        let pids = names.into_iter().filter_map(pid);
        pids.filter_map(|pid| Temporary::of(path, pid)).collect()
    }
}

/// The operating system's file system.
pub(crate) struct RealDisk;

impl Disk for RealDisk {
    type File = File;

    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    /// Tests the writer's file lock, which the kernel releases however the writer ends. The process
    /// number alone is not enough: it may have been reused, or belong to another machine.
    fn is_abandoned(&self, temporary: &Temporary) -> bool {
        let is_file = fs::symlink_metadata(&temporary.path).is_ok_and(|found| found.is_file());
        if !is_file {
            return false;
        }
        let Ok(file) = OpenOptions::new().read(true).write(true).open(&temporary.path) else {
            return false;
        };
        match file.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            // This file system has no locks, so fall back to the process number.
            Err(TryLockError::Error(_)) => !is_running(temporary.pid),
        }
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        match file.try_lock() {
            // Without locks on this file system, `is_abandoned` falls back to the process number.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::AlreadyExists.into()),
        }
    }

    fn open(&self, path: &Path) -> io::Result<(File, u64)> {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        Ok((file, bytes))
    }

    fn read_at(&self, file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        file.read_at(bytes, offset)
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        file.write_at(bytes, offset)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        match File::open(directory)?.sync_all() {
            // Some network file systems cannot sync a directory.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            synced => synced,
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn hard_link(&self, file: &Path, name: &Path) -> io::Result<()> {
        fs::hard_link(file, name)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}

/// Whether a process with this number runs on this machine; true where that cannot be known.
fn is_running(pid: u32) -> bool {
    let processes = Path::new("/proc");
    !processes.join("self").exists() || processes.join(pid.to_string()).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_names_lead_back_to_their_file() {
        let path = Path::new("out/last");
        assert_eq!(Temporary::of(path, 12).unwrap().path, Path::new("out/last.tmp-12"));
        let names = ["last", "last.tmp-7", "last.tmp-", "last.tmp-x", "last.tmp-7x", "best.tmp-7"];
        let found = Temporary::among(names.map(OsString::from).to_vec(), path);
        assert_eq!(found, [Temporary::of(path, 7).unwrap()]);
        assert_eq!(Temporary::of(Path::new("/"), 1), None);
        assert!(Temporary::among(vec!["x.tmp-1".into()], Path::new("..")).is_empty());
    }

    #[test]
    fn this_process_runs() {
        assert!(is_running(std::process::id()));
        assert!(!is_running(u32::MAX) || !Path::new("/proc/self").exists());
    }
}
