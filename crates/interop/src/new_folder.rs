//! A folder that appears under its name whole or not at all: it is filled under a temporary name
//! and then renamed. What a killed process left behind is removed by the next one.

use crate::export::ExportError;
use crate::platform::exchange_names;
use crate::weights::Sink;
use checkpoint::{SaveError, SaveProblem};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What to do if something has the folder's name already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Refuse.
    Keep,
    /// Replace it.
    Replace,
}

/// A new folder under its temporary name. Dropping it removes the folder.
pub(crate) struct NewFolder {
    path: PathBuf,
    temporary: PathBuf,
    existing: Existing,
    /// What a folder that is replaced may hold.
    names: Vec<String>,
    /// Bytes of all files, for the message if the disk is full.
    needed: u64,
    written: u64,
    /// The folder, locked: so another process sees that this one is alive.
    _lock: File,
}

impl NewFolder {
    /// Begins a folder. With [`Existing::Replace`], a folder that has the name already may hold
    /// nothing but files with `names`.
    pub fn create(
        path: &Path,
        existing: Existing,
        names: &[&str],
        needed: u64,
    ) -> Result<NewFolder, ExportError> {
        let failed = |doing, source| failed(path, doing, source, needed, Some(0));
        check_free(path, existing, names)?;
        let temporary = temporary_name(path, std::process::id())
            .ok_or_else(|| failed("write there", io::ErrorKind::InvalidFilename.into()))?;
        remove_abandoned(path);
        match fs::create_dir(&temporary) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let problem = SaveProblem::Busy { temporary };
                return Err(SaveError { path: path.to_owned(), problem }.into());
            }
            Err(error) => return Err(failed("create its temporary folder", error).into()),
        }
        let locked = File::open(&temporary).inspect(|folder| {
            // Without locks on this file system, the process number tells whether it is in use.
            let _ = folder.try_lock();
        });
        match locked {
            Ok(lock) => Ok(NewFolder {
                path: path.to_owned(),
                temporary,
                existing,
                names: names.iter().map(|name| name.to_string()).collect(),
                needed,
                written: 0,
                _lock: lock,
            }),
            Err(error) => {
                let _ = fs::remove_dir_all(&temporary);
                Err(failed("open its temporary folder", error).into())
            }
        }
    }

    /// Writes a file of the folder: `write` gets a function that appends bytes.
    pub fn file(
        &mut self,
        name: &str,
        write: impl FnOnce(&mut Sink) -> Result<(), ExportError>,
    ) -> Result<(), ExportError> {
        let path = self.path.join(name);
        let failed = |doing, source, taken| failed(&path, doing, source, self.needed, taken);
        let create = File::create_new(self.temporary.join(name));
        let mut file = create.map_err(|error| failed("create it", error, Some(self.written)))?;
        let mut written = self.written;
        write(&mut |bytes| {
            let done = file.write_all(bytes);
            done.map_err(|error| failed("write it", error, Some(written)))?;
            written += bytes.len() as u64;
            Ok(())
        })?;
        file.sync_all().map_err(|error| failed("sync it", error, None))?;
        self.written = written;
        Ok(())
    }

    /// Gives the folder its name. What has the name is checked again: writing may have taken
    /// minutes, and files may have arrived there.
    pub fn finish(self) -> Result<u64, ExportError> {
        let failed = |source| failed(&self.path, "rename it", source, self.needed, None);
        sync(&self.temporary).map_err(failed)?;
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        check_free(&self.path, self.existing, &names)?;
        if self.existing == Existing::Replace && self.path.exists() {
            exchange(&self.temporary, &self.path).map_err(failed)?;
        } else {
            fs::rename(&self.temporary, &self.path).map_err(failed)?;
        }
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        sync(parent.unwrap_or(Path::new("."))).map_err(|source| SaveError {
            path: self.path.clone(),
            problem: SaveProblem::NotDurable { source },
        })?;
        Ok(self.written)
    }
}

impl Drop for NewFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.temporary);
    }
}

/// Gives each folder the other's name, at once. Where the system cannot, the old one is moved away
/// first.
fn exchange(new: &Path, old: &Path) -> io::Result<()> {
    if exchange_names(new, old).is_ok() {
        return Ok(());
    }
    let mut aside = new.as_os_str().to_owned();
    aside.push("-old");
    let aside = PathBuf::from(aside);
    fs::rename(old, &aside)?;
    if let Err(error) = fs::rename(new, old) {
        fs::rename(&aside, old)?;
        return Err(error);
    }
    fs::rename(&aside, new)
}

fn sync(folder: &Path) -> io::Result<()> {
    match File::open(folder)?.sync_all() {
        // Some network file systems cannot sync a directory.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

/// Refuses a name that is taken, unless it may be replaced.
pub(crate) fn check_free(
    path: &Path,
    existing: Existing,
    names: &[&str],
) -> Result<(), ExportError> {
    let refuse = |advice: String| Err(ExportError::Exists { path: path.to_owned(), advice });
    let is_link = fs::symlink_metadata(path).map(|found| found.is_symlink());
    match is_link {
        Err(_) => return Ok(()),
        // There is nothing in an empty folder to keep.
        Ok(false) if fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none()) => {
            return Ok(());
        }
        Ok(_) => {}
    }
    if existing == Existing::Keep {
        return refuse("give another --out, or add --overwrite to replace it".to_owned());
    }
    if !fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        return refuse("it is not a folder; give another --out".to_owned());
    }
    let mut entries = fs::read_dir(path).into_iter().flatten().flatten();
    let other = entries.find(|entry| !names.iter().any(|name| entry.file_name() == *name));
    match other {
        None => Ok(()),
        Some(other) => refuse(format!(
            "it holds {:?}, which is not a file of an exported model; give another --out",
            other.file_name()
        )),
    }
}

/// `<name>.tmp-<pid>`; none if the path has no file name.
fn temporary_name(path: &Path, pid: u32) -> Option<PathBuf> {
    let mut name = path.file_name()?.to_owned();
    name.push(format!(".tmp-{pid}"));
    Some(path.with_file_name(name))
}

/// Removes the temporary folders of killed processes. A failure here must not fail the export.
fn remove_abandoned(path: &Path) {
    let Some(name) = path.file_name() else { return };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let entries = fs::read_dir(parent.unwrap_or(Path::new("."))).into_iter().flatten().flatten();
    for entry in entries {
        let found = entry.file_name();
        let rest = found.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
        let pid = rest.and_then(|rest| rest.strip_prefix(b".tmp-"));
        let pid = pid.and_then(|pid| std::str::from_utf8(pid).ok()?.parse::<u32>().ok());
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if let (Some(pid), true) = (pid, is_folder)
            && is_abandoned(&entry.path(), pid)
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether the process that was filling a temporary folder is gone: the kernel releases its lock.
fn is_abandoned(folder: &Path, pid: u32) -> bool {
    match File::open(folder).map(|folder| folder.try_lock()) {
        Ok(Ok(())) => true,
        Ok(Err(fs::TryLockError::WouldBlock)) | Err(_) => false,
        Ok(Err(fs::TryLockError::Error(_))) => {
            let processes = Path::new("/proc");
            processes.join("self").exists() && !processes.join(pid.to_string()).exists()
        }
    }
}

fn failed(
    path: &Path,
    doing: &'static str,
    source: io::Error,
    needed: u64,
    taken: Option<u64>,
) -> SaveError {
    SaveError { path: path.to_owned(), problem: SaveProblem::of(doing, source, needed, taken) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("new-folder-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn export(path: &Path, existing: Existing, content: &[u8]) -> Result<u64, ExportError> {
        let mut folder = NewFolder::create(path, existing, &["a"], 1)?;
        folder.file("a", |append| append(content))?;
        folder.finish()
    }

    #[test]
    fn a_folder_is_whole_or_not_there() {
        let root = scratch("whole");
        let path = root.join("model");
        let names = || fs::read_dir(&root).unwrap().count();
        let mut folder = NewFolder::create(&path, Existing::Keep, &["a"], 1).unwrap();
        folder.file("a", |append| append(b"1")).unwrap();
        let busy = NewFolder::create(&path, Existing::Keep, &["a"], 1).map(drop).unwrap_err();
        assert!(busy.to_string().contains("another save is under way"), "{busy}");
        assert!(folder.file("b", |_| Err(ExportError::Stopped)).is_err());
        drop(folder);
        assert_eq!(names(), 0);
        assert_eq!(export(&path, Existing::Keep, b"12").unwrap(), 2);
        assert_eq!((fs::read(path.join("a")).unwrap(), names()), (b"12".to_vec(), 1));
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn what_exists_is_replaced_only_if_asked_and_only_a_model() {
        let root = scratch("replace");
        let path = root.join("model");
        export(&path, Existing::Keep, b"old").unwrap();
        let error = export(&path, Existing::Keep, b"new").unwrap_err().to_string();
        assert!(error.ends_with("give another --out, or add --overwrite to replace it"), "{error}");
        export(&path, Existing::Replace, b"new").unwrap();
        assert_eq!(fs::read(path.join("a")).unwrap(), b"new");
        assert_eq!(fs::read_dir(&root).unwrap().count(), 1);
        fs::write(path.join("thesis.txt"), "mine").unwrap();
        let error = export(&path, Existing::Replace, b"new").unwrap_err().to_string();
        assert!(error.contains("it holds \"thesis.txt\", which is not a file of"), "{error}");
        fs::remove_file(path.join("thesis.txt")).unwrap();
        let mut folder = NewFolder::create(&path, Existing::Replace, &["a"], 1).unwrap();
        folder.file("a", |append| append(b"newer")).unwrap();
        fs::write(path.join("thesis.txt"), "mine").unwrap();
        let error = folder.finish().unwrap_err().to_string();
        assert!(error.contains("it holds \"thesis.txt\""), "{error}");
        assert_eq!(fs::read(path.join("a")).unwrap(), b"new");
        let mut folder = NewFolder::create(&root.join("late"), Existing::Keep, &["a"], 1).unwrap();
        folder.file("a", |append| append(b"1")).unwrap();
        fs::create_dir(root.join("late")).unwrap();
        fs::write(root.join("late/thesis.txt"), "mine").unwrap();
        let error = folder.finish().unwrap_err().to_string();
        assert!(error.contains("late exists already"), "{error}");
        fs::write(root.join("file"), "mine").unwrap();
        let error = export(&root.join("file"), Existing::Replace, b"").unwrap_err().to_string();
        assert!(error.contains("it is not a folder"), "{error}");
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn an_empty_folder_is_used() {
        let root = scratch("empty");
        let path = root.join("model");
        for existing in [Existing::Keep, Existing::Replace] {
            fs::create_dir(&path).unwrap();
            export(&path, existing, b"1").unwrap();
            assert_eq!(fs::read(path.join("a")).unwrap(), b"1");
            assert_eq!(fs::read_dir(&root).unwrap().count(), 1);
            fs::remove_dir_all(&path).unwrap();
        }
        fs::create_dir(root.join("other")).unwrap();
        std::os::unix::fs::symlink(root.join("other"), &path).unwrap();
        let error = export(&path, Existing::Keep, b"1").unwrap_err().to_string();
        assert!(error.contains("model exists already"), "{error}");
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn what_a_killed_process_left_is_removed() {
        let root = scratch("killed");
        let path = root.join("model");
        let left = temporary_name(&path, 1).unwrap();
        fs::create_dir(&left).unwrap();
        fs::write(left.join("a"), "half").unwrap();
        fs::create_dir(root.join("model.tmp-x")).unwrap();
        export(&path, Existing::Keep, b"1").unwrap();
        assert!(!left.exists());
        assert!(root.join("model.tmp-x").exists());
        fs::remove_dir_all(&root).unwrap();
    }
}
