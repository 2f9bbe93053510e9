//! Decompresses gzip and zstd as a stream and counts the compressed bytes read so far.

use super::ReadSpec;
use crate::error::{PrepareError, Result};
use crate::{limits, regular};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    None,
    /// gzip, with any number of members.
    Gzip,
    /// zstd, with any number of frames. Windows of up to 128 MiB, less for small files.
    Zstd,
}

/// Bytes read from the disk at a time.
const BUFFER: usize = 256 << 10;

impl Packing {
    /// Recognises compression by the first bytes of a file.
    #[must_use]
    pub fn of_first_bytes(bytes: &[u8]) -> Packing {
        match bytes {
            [0x1f, 0x8b, ..] => Packing::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Packing::Zstd,
            _ => Packing::None,
        }
    }
}

/// The decompressed content of a file.
pub struct Unpacked {
    reader: Box<dyn Read>,
    read: Arc<AtomicU64>,
}

impl Unpacked {
    /// Opens a file.
    pub fn open(path: &Path, packing: Packing) -> Result<Unpacked> {
        let file = regular::open(path)?;
        let bytes = file.metadata().map_err(PrepareError::io(path, "read its size"))?.len();
        let read = Arc::new(AtomicU64::new(0));
        let counted = Counted { file, read: Arc::clone(&read) };
        let reader: Box<dyn Read> = match packing {
            Packing::None => Box::new(counted),
            Packing::Gzip => {
                let buffered = BufReader::with_capacity(BUFFER, counted);
                Box::new(flate2::bufread::MultiGzDecoder::new(buffered))
            }
            Packing::Zstd => {
                let opened = zstd::stream::read::Decoder::new(counted).and_then(|mut decoder| {
                    decoder.window_log_max(limits::window_log(bytes))?;
                    Ok(decoder)
                });
                Box::new(opened.map_err(PrepareError::io(path, "unpack it"))?)
            }
        };
        Ok(Unpacked { reader, read })
    }

    /// Bytes of the compressed file read so far.
    pub fn position(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }
}

impl Read for Unpacked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer)
    }
}

struct Counted {
    file: File,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// Turns a read error into a message for the user.
pub fn broken(spec: &ReadSpec<'_>, position: u64) -> impl Fn(io::Error) -> PrepareError {
    let name = spec.name.to_owned();
    let packed = spec.packing;
    let size = spec.path.metadata().map_or(0, |metadata| metadata.len());
    move |error| {
        // zstd reports this only as text; there is no error code.
        if packed == Packing::Zstd && error.to_string().contains("too much memory") {
            let most = (1_u64 << limits::window_log(size)) >> 20;
            let what = format!(
                "its zstd window is too large for so small a file (limit {most} MiB); unpack it \
                 first (unzstd FILE) and give the unpacked file"
            );
            return PrepareError::source(&name, what);
        }
        let kind = match packed {
            Packing::None => "cannot be read",
            Packing::Gzip => "its gzip data is truncated or damaged",
            Packing::Zstd => "its zstd data is truncated or damaged",
        };
        let what = format!(
            "{kind} near byte {position}: {error}; get the file again, then run the same command"
        );
        PrepareError::source(&name, what)
    }
}
