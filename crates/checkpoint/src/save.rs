//! Saves a checkpoint without ever losing the previous one: it writes a temporary file, syncs it,
//! and renames it over the old file. A kill leaves at most the temporary file, which the next save
//! removes.

use crate::checksum::Checksum;
use crate::disk::{Disk, RealDisk, Temporary};
use crate::error::{SaveError, SaveProblem};
use crate::header::Header;
use crate::tensor::{TensorInfo, largest_bytes};
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

/// Bytes checksummed and written at a time, few enough to be still in the cache when written.
const CHUNK: usize = 1 << 20;

/// Writes a checkpoint with this JSON document and these tensors; returns the file's size.
///
/// `fill(index, content)` is called once for each of `tensors`, not necessarily in order. `content`
/// is a part of `buffer` with exactly the tensor's size and arbitrary initial bytes; `fill` must
/// write little-endian elements into it. `buffer` must hold the largest tensor ([`largest_bytes`]).
/// `save` allocates nothing else of a tensor's size.
///
/// The checksums are in the header, which precedes the tensors. So `save` first writes zeros where
/// the header will be, then the tensors, then the header. This way it needs each tensor only once,
/// and an incomplete file never looks complete.
///
/// # Errors
///
/// When the file cannot be written. The old file is then untouched and no temporary file remains;
/// [`SaveProblem::NotDurable`] is the one exception.
pub fn save<E: Into<Box<dyn Error + Send + Sync>>>(
    path: &Path,
    document: &str,
    tensors: &[TensorInfo],
    buffer: &mut [u8],
    fill: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
) -> Result<u64, SaveError> {
    write(path, document, tensors, buffer, fill)?.finish()
}

/// The first part of [`save()`]: writes the temporary file. It is not yet on the disk for certain,
/// and the old file is in place until [`Written::finish`].
///
/// # Errors
///
/// As [`save()`].
pub fn write<E: Into<Box<dyn Error + Send + Sync>>>(
    path: &Path,
    document: &str,
    tensors: &[TensorInfo],
    buffer: &mut [u8],
    mut fill: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
) -> Result<Written, SaveError> {
    let fill = &mut |index: usize, content: &mut [u8]| fill(index, content).map_err(Into::into);
    let content = Content { document, tensors };
    Ok(Written(write_on(&RealDisk, path, &content, buffer, fill)?))
}

/// A checkpoint in its temporary file. Dropping it removes the file.
pub struct Written(pub(crate) Unfinished<'static, RealDisk>);

impl Written {
    /// The second part of [`save()`]: waits until the file is on the disk, and renames it over the
    /// old one. Needs no tensors any more, so another thread can do it. Returns the file's size.
    ///
    /// # Errors
    ///
    /// As [`save()`].
    pub fn finish(self) -> Result<u64, SaveError> {
        self.0.finish()
    }
}

/// Size of the file that [`save()`] would write.
///
/// # Errors
///
/// When no such file could be written, whatever the tensors contain.
pub fn file_bytes(path: &Path, document: &str, tensors: &[TensorInfo]) -> Result<u64, SaveError> {
    let bytes = Header::lay_out(document, tensors).and_then(|(header, _)| {
        Ok((header.encode()?.len() as u64).saturating_add(header.data_bytes()))
    });
    bytes.map_err(|problem| SaveError { path: path.to_owned(), problem })
}

/// How [`link_best`] made `best` equal to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BestLink {
    /// `best` is a second name of the same file.
    Linked,
    /// `best` is a copy, because the file system has no hard links.
    Copied,
}

/// Makes `best` equal to what `last` is now, atomically. Later saves to `last` do not change it.
///
/// # Errors
///
/// When neither a link nor a copy can be made. `best` is then unchanged.
pub fn link_best(last: &Path, best: &Path) -> Result<BestLink, SaveError> {
    link_best_on(&RealDisk, last, best)
}

/// What a checkpoint holds, except for its tensors' content.
pub(crate) struct Content<'a> {
    pub document: &'a str,
    pub tensors: &'a [TensorInfo],
}

/// The caller's function that supplies a tensor's content.
type Fill<'a> = dyn FnMut(usize, &mut [u8]) -> Result<(), Box<dyn Error + Send + Sync>> + 'a;

/// A checkpoint in its temporary file.
pub(crate) struct Unfinished<'a, D: Disk> {
    pub path: PathBuf,
    pub output: Output<'a, D>,
    pub temporary: RemoveOnDrop<'a, D>,
}

impl<D: Disk> Unfinished<'_, D> {
    pub fn finish(self) -> Result<u64, SaveError> {
        let Unfinished { path, output, temporary } = self;
        let bytes = output.needed;
        let finished = output.finish().and_then(|()| put_in_place(temporary, &path));
        finished.map_err(|problem| SaveError { path, problem })?;
        Ok(bytes)
    }
}

#[cfg(test)]
pub(crate) fn save_on<D: Disk>(
    disk: &D,
    path: &Path,
    content: &Content,
    buffer: &mut [u8],
    fill: &mut Fill,
) -> Result<u64, SaveError> {
    write_on(disk, path, content, buffer, fill)?.finish()
}

fn write_on<'a, D: Disk>(
    disk: &'a D,
    path: &Path,
    content: &Content,
    buffer: &mut [u8],
    fill: &mut Fill,
) -> Result<Unfinished<'a, D>, SaveError> {
    let named = |problem| SaveError { path: path.to_owned(), problem };
    let (header, order) = Header::lay_out(content.document, content.tensors).map_err(named)?;
    let (needed, given) = (largest_bytes(content.tensors).unwrap_or(u64::MAX), buffer.len() as u64);
    if needed > given {
        return Err(named(SaveProblem::BufferTooSmall { needed, given }));
    }
    let job = Job { header, order, buffer, fill };
    let written = prepare(disk, path, |temporary| job.write(disk, temporary));
    let (output, temporary) = written.map_err(named)?;
    Ok(Unfinished { path: path.to_owned(), output, temporary })
}

pub(crate) fn link_best_on<D: Disk>(
    disk: &D,
    last: &Path,
    best: &Path,
) -> Result<BestLink, SaveError> {
    let linked = prepare(disk, best, |temporary| match disk.hard_link(last, temporary) {
        Ok(()) => Ok(BestLink::Linked),
        // A copy would fail for the same reason as the link.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(busy(temporary)),
        Err(source) if source.kind() == io::ErrorKind::NotFound => {
            Err(SaveProblem::Io { doing: "link the last checkpoint", source })
        }
        Err(_) => copy(disk, last, temporary).map(|()| BestLink::Copied),
    });
    let linked = linked.and_then(|(link, temporary)| {
        put_in_place(temporary, best)?;
        Ok(link)
    });
    linked.map_err(|problem| SaveError { path: best.to_owned(), problem })
}

/// Calls `write` to make the temporary file of `path`. On an error, that file is removed.
pub(crate) fn prepare<'a, D: Disk, T>(
    disk: &'a D,
    path: &Path,
    write: impl FnOnce(&Path) -> Result<T, SaveProblem>,
) -> Result<(T, RemoveOnDrop<'a, D>), SaveProblem> {
    let Some(temporary) = Temporary::of(path, std::process::id()) else {
        let source = io::ErrorKind::InvalidFilename.into();
        return Err(SaveProblem::Io { doing: "write there", source });
    };
    remove_abandoned(disk, directory_of(path), path);
    let guard = RemoveOnDrop { disk, path: temporary.path };
    match write(&guard.path) {
        Ok(written) => Ok((written, guard)),
        Err(problem) => {
            if let SaveProblem::Busy { .. } = problem {
                // The temporary file belongs to the other save: leave it.
                std::mem::forget(guard);
            }
            Err(problem)
        }
    }
}

/// Renames a temporary file to `path`. On an error, `path` is unchanged.
fn put_in_place<D: Disk>(temporary: RemoveOnDrop<'_, D>, path: &Path) -> Result<(), SaveProblem> {
    let disk = temporary.disk;
    disk.rename(&temporary.path, path)
        .map_err(|source| SaveProblem::Io { doing: "rename its temporary file", source })?;
    // If both names were already links to one file, rename keeps both; this removes the temporary
    // one.
    drop(temporary);
    let synced = disk.sync_directory(directory_of(path));
    synced.map_err(|source| SaveProblem::NotDurable { source })
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    }
}

/// Removes the temporary files of killed processes. A failure here must not fail the save.
fn remove_abandoned<D: Disk>(disk: &D, directory: &Path, path: &Path) {
    let names = disk.list(directory).unwrap_or_default();
    for temporary in Temporary::among(names, path) {
        if disk.is_abandoned(&temporary) {
            let _ = disk.remove(&temporary.path);
        }
    }
}

/// Removes the temporary file however the save ends. After a rename there is none.
pub(crate) struct RemoveOnDrop<'a, D: Disk> {
    disk: &'a D,
    path: PathBuf,
}

impl<D: Disk> Drop for RemoveOnDrop<'_, D> {
    fn drop(&mut self) {
        let _ = self.disk.remove(&self.path);
    }
}

/// A checkpoint that is being written.
struct Job<'a> {
    /// Lists the tensors in the order of the file.
    header: Header,
    /// The caller's index of each tensor.
    order: Vec<usize>,
    buffer: &'a mut [u8],
    fill: &'a mut Fill<'a>,
}

impl Job<'_> {
    /// Writes the whole file.
    fn write<'d, D: Disk>(
        mut self,
        disk: &'d D,
        temporary: &Path,
    ) -> Result<Output<'d, D>, SaveProblem> {
        let header_bytes = self.header.encode()?.len() as u64;
        let needed = header_bytes + self.header.data_bytes();
        let mut output = Output::create(disk, temporary, needed)?;
        output.append(&vec![0; header_bytes as usize])?;
        for position in 0..self.order.len() {
            let index = self.order[position];
            let span = &mut self.header.spans[position];
            let content = &mut self.buffer[..span.bytes as usize];
            (self.fill)(index, content).map_err(|source| SaveProblem::Fill {
                tensor: self.header.tensors[position].name.clone(),
                source,
            })?;
            let mut checksum = Checksum::new();
            for chunk in content.chunks(CHUNK) {
                checksum.update(chunk);
                output.append(chunk)?;
            }
            span.checksum = checksum.value();
        }
        output.put(&self.header.encode()?, 0)?;
        Ok(output)
    }
}

/// Copies a file and syncs the copy.
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

/// A new file and its final length.
pub(crate) struct Output<'a, D: Disk> {
    disk: &'a D,
    file: D::File,
    needed: u64,
    /// Bytes written so far.
    pub top: u64,
}

impl<'a, D: Disk> Output<'a, D> {
    pub fn create(disk: &'a D, path: &Path, needed: u64) -> Result<Output<'a, D>, SaveProblem> {
        match disk.create(path) {
            Ok(file) => Ok(Output { disk, file, needed, top: 0 }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(busy(path)),
            Err(error) => Err(SaveProblem::of("create its temporary file", error, needed, Some(0))),
        }
    }

    pub fn append(&mut self, bytes: &[u8]) -> Result<(), SaveProblem> {
        self.put(bytes, self.top)
    }

    pub fn put(&mut self, bytes: &[u8], offset: u64) -> Result<(), SaveProblem> {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let written = match self.disk.write_at(&self.file, &bytes[done..], at) {
                Ok(0) => Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
                written => written,
            };
            let doing = "write its temporary file";
            done += written
                .map_err(|error| SaveProblem::of(doing, error, self.needed, Some(self.top)))?;
            self.top = self.top.max(offset + done as u64);
        }
        Ok(())
    }

    fn finish(self) -> Result<(), SaveProblem> {
        let synced = self.disk.sync(&self.file);
        synced.map_err(|error| SaveProblem::of("sync its temporary file", error, self.needed, None))
    }
}

fn busy(temporary: &Path) -> SaveProblem {
    SaveProblem::Busy { temporary: temporary.to_owned() }
}
