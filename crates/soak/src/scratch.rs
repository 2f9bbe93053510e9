//! Temporary folders, in memory if the system has a memory file system, and helpers for files that
//! are rewritten often.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The folder in which workers create their own; removing it also removes what a killed worker
/// left.
pub const ROOT: &str = "FITGPT_SOAK_SCRATCH";

/// A temporary folder, removed on drop.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Creates an empty folder whose name starts with `name`.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    pub fn new(name: &str) -> io::Result<Scratch> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let memory = Path::new("/dev/shm");
        let root = match std::env::var_os(ROOT) {
            Some(root) => PathBuf::from(root),
            None if memory.is_dir() => memory.to_owned(),
            None => std::env::temp_dir(),
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = root.join(format!("fitgpt-soak-{name}-{}-{number}", std::process::id()));
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        std::fs::create_dir_all(&path)?;
        Ok(Scratch { path })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Replaces a file's content by these bytes.
///
/// # Errors
///
/// When it cannot be written.
pub fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Do not truncate first: some file systems sync a file that was truncated and rewritten, which
    // is slow.
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    file.write_all_at(bytes, 0)?;
    file.set_len(bytes.len() as u64)
}

/// Copies a folder with everything in it.
///
/// # Errors
///
/// When something cannot be read or written.
pub fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)?;
            same_time(&entry.path(), &target)?;
        }
    }
    Ok(())
}

/// Copies modification times to the files of the same name in another folder, because programs use
/// them to detect changes.
///
/// # Errors
///
/// When a time cannot be read or set.
pub fn same_times(from: &Path, to: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            _ if !target.exists() => {}
            true => same_times(&entry.path(), &target)?,
            false => same_time(&entry.path(), &target)?,
        }
    }
    Ok(())
}

fn same_time(from: &Path, to: &Path) -> io::Result<()> {
    let changed = from.metadata()?.modified()?;
    File::options().write(true).open(to)?.set_modified(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_its_owner_and_files_are_replaced_whole() {
        let scratch = Scratch::new("own").unwrap();
        let file = scratch.path().join("a");
        put(&file, b"longer").unwrap();
        put(&file, b"new").unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"new");
        let copy = Scratch::new("own").unwrap();
        copy_folder(scratch.path(), &copy.path().join("b")).unwrap();
        assert_eq!(std::fs::read(copy.path().join("b/a")).unwrap(), b"new");
        let path = scratch.path().to_owned();
        drop(scratch);
        assert!(!path.exists() && copy.path().exists());
    }
}
