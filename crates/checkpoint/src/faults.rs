//! Tests that make every single file operation of a save fail and then check the disk: it must hold
//! the whole old checkpoint or the whole new one, and nothing that the next save does not remove.

use crate::disk::{Disk, RealDisk, Temporary};
use crate::error::{SaveError, SaveProblem};
use crate::save::{BestLink, Content, link_best_on, save_on};
use crate::{Dtype, Reader, TensorInfo};
use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Which operations fail, counted from 0.
#[derive(Clone, Copy, Debug)]
enum Failing {
    None,
    /// Only this one.
    One(usize),
    /// This one and all after it.
    From(usize),
}

/// The real file system with injected failures. Each write takes at most 7 kB.
struct FaultyDisk {
    failing: Failing,
    /// The `errno` that failing operations return.
    errno: i32,
    has_links: bool,
    calls: RefCell<Vec<&'static str>>,
}

const ENOSPC: i32 = 28;
const EIO: i32 = 5;
const EINTR: i32 = 4;
const EPERM: i32 = 1;

impl FaultyDisk {
    fn new(failing: Failing, errno: i32) -> FaultyDisk {
        FaultyDisk { failing, errno, has_links: true, calls: RefCell::default() }
    }

    fn call(&self, name: &'static str) -> io::Result<()> {
        let mut calls = self.calls.borrow_mut();
        let number = calls.len();
        calls.push(name);
        let fails = match self.failing {
            Failing::None => false,
            Failing::One(failing) => number == failing,
            Failing::From(first) => number >= first,
        };
        if fails { Err(io::Error::from_raw_os_error(self.errno)) } else { Ok(()) }
    }
}

impl Disk for FaultyDisk {
    type File = File;

    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        self.call("list").and_then(|()| RealDisk.list(directory))
    }

    fn is_abandoned(&self, temporary: &Temporary) -> bool {
        self.call("is_abandoned").is_ok() && RealDisk.is_abandoned(temporary)
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        self.call("create").and_then(|()| RealDisk.create(path))
    }

    fn open(&self, path: &Path) -> io::Result<(File, u64)> {
        self.call("open").and_then(|()| RealDisk.open(path))
    }

    fn read_at(&self, file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let some = bytes.len().min(7000);
        self.call("read").and_then(|()| RealDisk.read_at(file, &mut bytes[..some], offset))
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let some = bytes.len().min(7000);
        self.call("write").and_then(|()| RealDisk.write_at(file, &bytes[..some], offset))
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.call("sync").and_then(|()| RealDisk.sync(file))
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.call("sync_directory").and_then(|()| RealDisk.sync_directory(directory))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call("rename").and_then(|()| RealDisk.rename(from, to))
    }

    fn hard_link(&self, file: &Path, name: &Path) -> io::Result<()> {
        self.call("hard_link")?;
        if !self.has_links {
            return Err(io::Error::from_raw_os_error(EPERM));
        }
        RealDisk.hard_link(file, name)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call("remove").and_then(|()| RealDisk.remove(path))
    }
}

/// A directory that belongs to one test.
struct TempDir(PathBuf);

impl TempDir {
    fn new(test: &str) -> TempDir {
        let name = format!("fitgpt-checkpoint-{}-{test}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    fn last(&self) -> PathBuf {
        self.0.join("last")
    }

    fn best(&self) -> PathBuf {
        self.0.join("best")
    }

    fn temporary_files(&self) -> usize {
        let names = RealDisk.list(&self.0).unwrap();
        names.iter().filter(|name| name.to_string_lossy().contains(".tmp-")).count()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Saves a checkpoint that holds nothing but `version`.
fn save_version(disk: &impl Disk, path: &Path, version: u8) -> Result<u64, SaveError> {
    let tensors = [
        TensorInfo::new("state", Dtype::U8, &[5]),
        TensorInfo::new("weights/a", Dtype::F32, &[40, 50]),
        TensorInfo::new("weights/b", Dtype::F32, &[1000]),
    ];
    let document = format!("{{\"version\":{version}}}");
    let content = Content { document: &document, tensors: &tensors };
    save_on(disk, path, &content, &mut [0; 8000], &mut |_, bytes| {
        bytes.fill(version);
        Ok(())
    })
}

/// The version that a checkpoint holds, after checking the whole file.
fn version(path: &Path) -> u8 {
    let reader = Reader::open(path).unwrap();
    let mut versions = Vec::new();
    for (index, tensor) in reader.tensors().iter().enumerate() {
        let mut content = vec![0; tensor.bytes().unwrap() as usize];
        reader.read(index, &mut content).unwrap();
        versions.extend(content);
    }
    let version = versions[0];
    assert!(versions.iter().all(|&found| found == version));
    assert_eq!(reader.document(), format!("{{\"version\":{version}}}"));
    version
}

/// Calls `check` with disks that fail in every way, until they no longer fail at all.
fn with_every_fault(mut check: impl FnMut(&FaultyDisk, &str) -> Result<(), SaveError>) {
    for errno in [ENOSPC, EIO, EINTR] {
        for failing in [Failing::One as fn(usize) -> Failing, Failing::From] {
            let mut number = 0;
            loop {
                let disk = FaultyDisk::new(failing(number), errno);
                // A disk that returns only EINTR would be retried for ever.
                if errno == EINTR && matches!(disk.failing, Failing::From(_)) {
                    break;
                }
                let outcome = check(&disk, &format!("{:?} of errno {errno}", disk.failing));
                if number >= disk.calls.borrow().len() {
                    assert!(outcome.is_ok());
                    break;
                }
                number += 1;
            }
            assert!(number > 9 || errno == EINTR, "only {number} operations");
        }
    }
}

#[test]
fn the_old_checkpoint_survives_every_fault() {
    let dir = TempDir::new("every-fault");
    with_every_fault(|disk, fault| {
        save_version(&RealDisk, &dir.last(), 1).unwrap();
        let outcome = save_version(disk, &dir.last(), 2);
        let want = match &outcome {
            Ok(_) => 2,
            Err(error) if matches!(error.problem, SaveProblem::NotDurable { .. }) => 2,
            Err(_) => 1,
        };
        assert_eq!(version(&dir.last()), want, "{fault}");
        let calls = disk.calls.borrow();
        let removal_fails = match disk.failing {
            Failing::One(number) => calls.get(number) == Some(&"remove"),
            Failing::None | Failing::From(_) => true,
        };
        assert!(dir.temporary_files() == 0 || removal_fails, "{fault}: {calls:?}");
        save_version(&RealDisk, &dir.last(), 3).unwrap();
        assert_eq!(version(&dir.last()), 3, "{fault}");
        assert_eq!(dir.temporary_files(), 0, "{fault}");
        outcome.map(drop)
    });
}

#[test]
fn best_survives_every_fault() {
    for has_links in [true, false] {
        let dir = TempDir::new(if has_links { "best-fault" } else { "best-copy-fault" });
        with_every_fault_of_links(has_links, |disk, fault| {
            save_version(&RealDisk, &dir.last(), 1).unwrap();
            link_best_on(&RealDisk, &dir.last(), &dir.best()).unwrap();
            save_version(&RealDisk, &dir.last(), 2).unwrap();
            let outcome = link_best_on(disk, &dir.last(), &dir.best());
            let want = match &outcome {
                Ok(_) => 2,
                Err(error) if matches!(error.problem, SaveProblem::NotDurable { .. }) => 2,
                Err(_) => 1,
            };
            assert_eq!(version(&dir.best()), want, "{fault}");
            assert_eq!(version(&dir.last()), 2, "{fault}");
            link_best_on(&RealDisk, &dir.last(), &dir.best()).unwrap();
            assert_eq!(version(&dir.best()), 2, "{fault}");
            assert_eq!(dir.temporary_files(), 0, "{fault}");
            outcome.map(drop)
        });
    }
}

fn with_every_fault_of_links(
    has_links: bool,
    mut check: impl FnMut(&FaultyDisk, &str) -> Result<(), SaveError>,
) {
    for errno in [ENOSPC, EIO] {
        for number in 0.. {
            let disk = FaultyDisk { has_links, ..FaultyDisk::new(Failing::One(number), errno) };
            let outcome = check(&disk, &format!("{number} of errno {errno}, links {has_links}"));
            if number >= disk.calls.borrow().len() {
                assert!(outcome.is_ok());
                assert!(number >= 4, "only {number} operations");
                break;
            }
        }
    }
}

#[test]
fn names_change_only_after_everything_is_on_the_disk() {
    let dir = TempDir::new("order");
    let disk = FaultyDisk::new(Failing::None, EIO);
    save_version(&disk, &dir.last(), 1).unwrap();
    let mut calls = disk.calls.take();
    calls.dedup();
    let want = ["list", "create", "write", "sync", "rename", "remove", "sync_directory"];
    assert_eq!(calls, want);
    let linked = link_best_on(&disk, &dir.last(), &dir.best()).unwrap();
    assert_eq!(linked, BestLink::Linked);
    let want = ["list", "hard_link", "rename", "remove", "sync_directory"];
    assert_eq!(disk.calls.take(), want);
    let disk = FaultyDisk { has_links: false, ..disk };
    let copied = link_best_on(&disk, &dir.last(), &dir.best()).unwrap();
    assert_eq!(copied, BestLink::Copied);
    assert_eq!(version(&dir.best()), 1);
}

#[test]
fn a_full_disk_is_named_with_its_numbers() {
    let dir = TempDir::new("full");
    let needed = save_version(&RealDisk, &dir.last(), 1).unwrap();
    // Operations 0 and 1 are list and create, 2 and 3 the header and the first 7000 bytes.
    for (number, want) in [(1, Some(0)), (2, Some(0)), (4, Some(needed - 12005 + 7000))] {
        let disk = FaultyDisk::new(Failing::One(number), ENOSPC);
        let error = save_version(&disk, &dir.last(), 2).unwrap_err();
        let SaveProblem::DiskFull { needed: found, free } = error.problem else {
            panic!("{error}");
        };
        assert_eq!((found, free), (needed, want), "{number}");
    }
    let sync = FaultyDisk::new(Failing::None, ENOSPC);
    save_version(&sync, &dir.last(), 1).unwrap();
    let number = sync.calls.borrow().iter().position(|call| *call == "sync").unwrap();
    let disk = FaultyDisk::new(Failing::One(number), ENOSPC);
    let error = save_version(&disk, &dir.last(), 2).unwrap_err();
    assert!(matches!(error.problem, SaveProblem::DiskFull { free: None, .. }), "{error}");
}

#[test]
fn a_panic_of_the_caller_leaves_nothing_behind() {
    let dir = TempDir::new("panic");
    save_version(&RealDisk, &dir.last(), 1).unwrap();
    let tensors = [TensorInfo::new("x", Dtype::U8, &[1])];
    let content = Content { document: "{}", tensors: &tensors };
    let path = dir.last();
    let caught = std::panic::catch_unwind(|| {
        let _ = save_on(&RealDisk, &path, &content, &mut [0], &mut |_, _| panic!("on purpose"));
    });
    assert!(caught.is_err());
    assert_eq!(dir.temporary_files(), 0);
    assert_eq!(version(&dir.last()), 1);
}
