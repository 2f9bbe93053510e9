//! Writing a checkpoint so that the one before it is never lost: beside it, synced, then renamed
//! over it. A kill leaves at most a temporary file, which the next save removes.

use crate::checksum::Checksum;
use crate::disk::{Disk, RealDisk, Temporary};
use crate::error::{SaveError, SaveProblem};
use crate::header::Header;
use crate::tensor::{TensorInfo, largest_bytes};
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

/// Bytes that are summed and written at a time: they are still in the cache when they are written.
const CHUNK: usize = 1 << 20;

/// Writes a checkpoint with this JSON document and these tensors; gives the file's size.
///
/// `fill(index, content)` is asked once for each of `tensors`, not always in their order, and gets
/// exactly the tensor's size of `buffer`, which must hold the largest one ([`largest_bytes`]). It
/// may contain anything before and must contain little-endian elements after. Nothing else of the
/// size of a tensor is obtained.
///
/// The checksums stand in the header, before the bytes they are of. Room for the header is written
/// first, as zeros, and the header itself when all tensors have been: so each tensor is asked for
/// once, and a file that is not complete does not look like one.
///
/// # Errors
///
/// When the file cannot be written. The file that was there before is then untouched, and nothing
/// is left beside it; [`SaveProblem::NotDurable`] is the one exception.
pub fn save<E: Into<Box<dyn Error + Send + Sync>>>(
    path: &Path,
    document: &str,
    tensors: &[TensorInfo],
    buffer: &mut [u8],
    mut fill: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
) -> Result<u64, SaveError> {
    let fill = &mut |index: usize, content: &mut [u8]| fill(index, content).map_err(Into::into);
    save_on(&RealDisk, path, &Content { document, tensors }, buffer, fill)
}

/// Size of the file that [`save()`] would write.
///
/// # Errors
///
/// When it could not be written whatever its tensors contain.
pub fn file_bytes(path: &Path, document: &str, tensors: &[TensorInfo]) -> Result<u64, SaveError> {
    let bytes = Header::lay_out(document, tensors).and_then(|(header, _)| {
        Ok((header.encode()?.len() as u64).saturating_add(header.data_bytes()))
    });
    bytes.map_err(|problem| SaveError { path: path.to_owned(), problem })
}

/// How `best` came to be what `last` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BestLink {
    /// It is the same file under a second name.
    Linked,
    /// It is a copy: this file system has no links.
    Copied,
}

/// Makes `best` what `last` is now, at once or not at all. Later saves to `last` do not change it.
///
/// # Errors
///
/// When neither a link nor a copy can be made. `best` is then what it was before.
pub fn link_best(last: &Path, best: &Path) -> Result<BestLink, SaveError> {
    link_best_on(&RealDisk, last, best)
}

/// What a checkpoint holds, its tensors' content aside.
pub(crate) struct Content<'a> {
    pub document: &'a str,
    pub tensors: &'a [TensorInfo],
}

/// The caller's part of a save.
type Fill<'a> = dyn FnMut(usize, &mut [u8]) -> Result<(), Box<dyn Error + Send + Sync>> + 'a;

pub(crate) fn save_on<D: Disk>(
    disk: &D,
    path: &Path,
    content: &Content,
    buffer: &mut [u8],
    fill: &mut Fill,
) -> Result<u64, SaveError> {
    let named = |problem| SaveError { path: path.to_owned(), problem };
    let (header, order) = Header::lay_out(content.document, content.tensors).map_err(named)?;
    let (needed, given) = (largest_bytes(content.tensors).unwrap_or(u64::MAX), buffer.len() as u64);
    if needed > given {
        return Err(named(SaveProblem::BufferTooSmall { needed, given }));
    }
    let job = Job { header, order, buffer, fill };
    replace(disk, path, |temporary| job.write(disk, temporary)).map_err(named)
}

pub(crate) fn link_best_on<D: Disk>(
    disk: &D,
    last: &Path,
    best: &Path,
) -> Result<BestLink, SaveError> {
    let linked = replace(disk, best, |temporary| match disk.hard_link(last, temporary) {
        Ok(()) => Ok(BestLink::Linked),
        // These would stop a copy too.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(busy(temporary)),
        Err(source) if source.kind() == io::ErrorKind::NotFound => {
            Err(SaveProblem::Io { doing: "link the last checkpoint", source })
        }
        Err(_) => copy(disk, last, temporary).map(|()| BestLink::Copied),
    });
    linked.map_err(|problem| SaveError { path: best.to_owned(), problem })
}

/// Lets `write` make a file beside `path`, then gives it that name. On an error, `path` is what it
/// was and the file beside it is gone.
fn replace<D: Disk, T>(
    disk: &D,
    path: &Path,
    write: impl FnOnce(&Path) -> Result<T, SaveProblem>,
) -> Result<T, SaveProblem> {
    let Some(temporary) = Temporary::of(path, std::process::id()) else {
        let source = io::ErrorKind::InvalidFilename.into();
        return Err(SaveProblem::Io { doing: "write there", source });
    };
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    remove_abandoned(disk, directory, path);
    let guard = RemoveOnDrop { disk, path: temporary.path };
    let written = match write(&guard.path) {
        Err(problem @ SaveProblem::Busy { .. }) => {
            // It is another's file.
            std::mem::forget(guard);
            return Err(problem);
        }
        written => written?,
    };
    disk.rename(&guard.path, path)
        .map_err(|source| SaveProblem::Io { doing: "rename its temporary file", source })?;
    // If both names were links to one file, rename left both.
    drop(guard);
    disk.sync_directory(directory).map_err(|source| SaveProblem::NotDurable { source })?;
    Ok(written)
}

/// Removes what earlier processes left when they were killed. Failing at that must not cost a save.
fn remove_abandoned<D: Disk>(disk: &D, directory: &Path, path: &Path) {
    let names = disk.list(directory).unwrap_or_default();
    for temporary in Temporary::among(names, path) {
        if disk.is_abandoned(&temporary) {
            let _ = disk.remove(&temporary.path);
        }
    }
}

/// Removes a temporary file, however the save ends. After a rename there is none.
struct RemoveOnDrop<'a, D: Disk> {
    disk: &'a D,
    path: PathBuf,
}

impl<D: Disk> Drop for RemoveOnDrop<'_, D> {
    fn drop(&mut self) {
        let _ = self.disk.remove(&self.path);
    }
}

/// A checkpoint on its way to the disk.
struct Job<'a> {
    /// Its tensors are in the order of the file.
    header: Header,
    /// The caller's index of each tensor.
    order: Vec<usize>,
    buffer: &'a mut [u8],
    fill: &'a mut Fill<'a>,
}

impl Job<'_> {
    /// Writes and syncs the whole file; gives its size.
    fn write<D: Disk>(mut self, disk: &D, temporary: &Path) -> Result<u64, SaveProblem> {
        let header_bytes = self.header.encode()?.len() as u64;
        let needed = header_bytes + self.header.data_bytes();
        let mut output = Output::create(disk, temporary, needed)?;
        output.append(&vec![0; header_bytes as usize])?;
        for place in 0..self.order.len() {
            let index = self.order[place];
            let tensor = &mut self.header.places[place];
            let content = &mut self.buffer[..tensor.bytes as usize];
            (self.fill)(index, content).map_err(|source| SaveProblem::Fill {
                tensor: self.header.tensors[place].name.clone(),
                source,
            })?;
            let mut checksum = Checksum::new();
            for chunk in content.chunks(CHUNK) {
                checksum.update(chunk);
                output.append(chunk)?;
            }
            tensor.checksum = checksum.value();
        }
        output.put(&self.header.encode()?, 0)?;
        output.finish()?;
        Ok(needed)
    }
}

/// Copies a file; the copy is synced.
fn copy<D: Disk>(disk: &D, from: &Path, to: &Path) -> Result<(), SaveProblem> {
    let failed = |source| SaveProblem::Io { doing: "read the last checkpoint", source };
    let (source, bytes) = disk.open(from).map_err(failed)?;
    let mut output = Output::create(disk, to, bytes)?;
    let mut buffer = vec![0; CHUNK];
    loop {
        match disk.read_at(&source, &mut buffer, output.top) {
            Ok(0) => break,
            Ok(read) => output.append(&buffer[..read])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
    if output.top != bytes {
        return Err(failed(io::ErrorKind::UnexpectedEof.into()));
    }
    output.finish()
}

/// A new file that knows how long it will be.
struct Output<'a, D: Disk> {
    disk: &'a D,
    file: D::File,
    needed: u64,
    /// Bytes that the disk has taken.
    top: u64,
}

impl<'a, D: Disk> Output<'a, D> {
    fn create(disk: &'a D, path: &Path, needed: u64) -> Result<Output<'a, D>, SaveProblem> {
        match disk.create(path) {
            Ok(file) => Ok(Output { disk, file, needed, top: 0 }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(busy(path)),
            Err(error) => Err(failed("create its temporary file", error, needed, Some(0))),
        }
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), SaveProblem> {
        self.put(bytes, self.top)
    }

    fn put(&mut self, bytes: &[u8], offset: u64) -> Result<(), SaveProblem> {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let written = match self.disk.write_at(&self.file, &bytes[done..], at) {
                Ok(0) => Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
                written => written,
            };
            let doing = "write its temporary file";
            done += written.map_err(|error| failed(doing, error, self.needed, Some(self.top)))?;
            self.top = self.top.max(offset + done as u64);
        }
        Ok(())
    }

    fn finish(self) -> Result<(), SaveProblem> {
        let synced = self.disk.sync(&self.file);
        synced.map_err(|error| failed("sync its temporary file", error, self.needed, None))
    }
}

fn busy(temporary: &Path) -> SaveProblem {
    SaveProblem::Busy { temporary: temporary.to_owned() }
}

/// What an error of the system means for a file of `needed` bytes of which `taken` are written.
fn failed(doing: &'static str, error: io::Error, needed: u64, taken: Option<u64>) -> SaveProblem {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            SaveProblem::DiskFull { needed, free: taken }
        }
        _ => SaveProblem::Io { doing, source: error },
    }
}
