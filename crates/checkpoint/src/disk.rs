//! The file operations that a save is made of, behind a trait so that tests can let each of them
//! fail. [`RealDisk`] is the only one outside tests.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What a save asks of the system.
pub(crate) trait Disk {
    type File;

    /// Names in a directory.
    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>>;

    /// Whether nobody writes this temporary file any more.
    fn is_abandoned(&self, temporary: &Temporary) -> bool;

    /// A new, empty file that [`Disk::is_abandoned`] finds in use until it is dropped.
    fn create(&self, path: &Path) -> io::Result<Self::File>;

    /// An existing file, and its length.
    fn open(&self, path: &Path) -> io::Result<(Self::File, u64)>;

    /// Reads some bytes.
    fn read_at(&self, file: &Self::File, bytes: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes some of the bytes.
    fn write_at(&self, file: &Self::File, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Returns when the file's content is on the disk.
    fn sync(&self, file: &Self::File) -> io::Result<()>;

    /// Returns when the directory's names are on the disk.
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;

    /// Gives a file another name, in place of the file that had it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file a second name.
    fn hard_link(&self, file: &Path, name: &Path) -> io::Result<()>;

    /// Removes a name.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// The name under which a process writes a file before it has its own: `<name>.tmp-<pid>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Temporary {
    pub path: PathBuf,
    pub pid: u32,
}

impl Temporary {
    /// Where process `pid` writes `path`; `None` if the path does not end in a name.
    pub fn of(path: &Path, pid: u32) -> Option<Temporary> {
        let mut name = path.file_name()?.to_owned();
        name.push(format!(".tmp-{pid}"));
        Some(Temporary { path: path.with_file_name(name), pid })
    }

    /// Those among the names of a directory that belong to `path`, whatever process wrote them.
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

/// The file system.
pub(crate) struct RealDisk;

impl Disk for RealDisk {
    type File = File;

    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    /// The writer holds a lock, which ends with it, whatever ends it; a process number may be
    /// another's by now, or one of another machine.
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
            // No locks on this file system: the process number has to do.
            Err(TryLockError::Error(_)) => !is_running(temporary.pid),
        }
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        match file.try_lock() {
            // Without locks on this file system the process number has to do.
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
            // Some network file systems have no such operation.
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

/// Whether a process of this number runs here. Where that cannot be known, it does.
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
