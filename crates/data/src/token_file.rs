//! One file of 16-bit tokens: nanoGPT's headerless format, or a shard of llm.c and modded-nanogpt
//! (a header of 256 numbers, then the tokens).
//!
//! It reads with `read_at` into the caller's buffer. If the file is truncated while in use, the
//! read fails; with a memory map, a signal would kill the process.

use crate::error::DataError;
use crate::foreign;
use crate::regular;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const SHARD_MAGIC: i32 = 20_240_520;
const SHARD_VERSION: i32 = 1;
const HEADER_BYTES: u64 = 1024;
const TOKEN_BYTES: u64 = 2;
/// Tokens converted at a time, on the stack.
const CHUNK: usize = 4096;

/// A token file that passed the checks of [`TokenFile::open`].
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    /// `None` if there are too many files to keep all of them open.
    file: Option<File>,
    header_bytes: u64,
    tokens: u64,
}

impl TokenFile {
    /// Opens a file of either format and checks its size and first bytes.
    ///
    /// # Errors
    ///
    /// When it cannot be read, is empty or truncated, has an odd size, or is another kind of file.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let file = regular::open(path)?;
        let metadata = file.metadata().map_err(DataError::io(path, "read its size"))?;
        let bytes = metadata.len();
        let mut sample = [0; foreign::SAMPLE_BYTES];
        let sample = &mut sample[..bytes.min(foreign::SAMPLE_BYTES as u64) as usize];
        file.read_exact_at(sample, 0).map_err(DataError::io(path, "read its beginning"))?;
        let (header_bytes, tokens) = layout(path, bytes, sample)?;
        Ok(Self { path: path.to_owned(), file: Some(file), header_bytes, tokens })
    }

    /// Closes the file. Each later read opens it again.
    pub fn close(&mut self) {
        self.file = None;
    }

    /// Tokens in the file.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an empty file cannot be opened")]
    pub fn len(&self) -> u64 {
        self.tokens
    }

    /// The file's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fills `out` with the tokens from `start` on.
    ///
    /// # Errors
    ///
    /// When the range exceeds the file, the disk fails, or an id is not below `vocab_size`.
    pub fn read(&self, start: u64, out: &mut [i32], vocab_size: u32) -> Result<(), DataError> {
        let count = out.len() as u64;
        if start.checked_add(count).is_none_or(|end| end > self.tokens) {
            let (path, tokens) = (self.path.clone(), self.tokens);
            return Err(DataError::OutOfRange { path, start, count, tokens });
        }
        let mut buffer = [0; CHUNK * TOKEN_BYTES as usize];
        for (index, part) in out.chunks_mut(CHUNK).enumerate() {
            let first = start + (index * CHUNK) as u64;
            let bytes = &mut buffer[..part.len() * TOKEN_BYTES as usize];
            self.read_bytes(first, bytes)?;
            for (offset, (token, pair)) in part.iter_mut().zip(bytes.chunks_exact(2)).enumerate() {
                let id = u16::from_le_bytes([pair[0], pair[1]]);
                if u32::from(id) >= vocab_size {
                    let (path, token) = (self.path.clone(), first + offset as u64);
                    return Err(DataError::BeyondVocabulary { path, token, id, vocab_size });
                }
                *token = i32::from(id);
            }
        }
        Ok(())
    }

    fn read_bytes(&self, first: u64, bytes: &mut [u8]) -> Result<(), DataError> {
        let offset = self.header_bytes + first * TOKEN_BYTES;
        let opened;
        let file = match &self.file {
            Some(file) => file,
            None => {
                opened = regular::open(&self.path)?;
                &opened
            }
        };
        file.read_exact_at(bytes, offset).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                DataError::Shrunk { path: self.path.clone(), token: first }
            }
            _ => DataError::io(&self.path, "read tokens")(error),
        })
    }
}

/// Bytes before the first token, and the number of tokens.
fn layout(path: &Path, bytes: u64, sample: &[u8]) -> Result<(u64, u64), DataError> {
    let path = || path.to_owned();
    if bytes == 0 {
        return Err(DataError::Empty { path: path() });
    }
    if number(sample, 0) == Some(SHARD_MAGIC) {
        let (version, promised) = (number(sample, 1), number(sample, 2));
        let (Some(version), Some(promised)) = (version, promised.map(i64::from)) else {
            return Err(DataError::ShardLength { path: path(), promised: 0, bytes });
        };
        if version != SHARD_VERSION {
            return Err(DataError::ShardVersion { path: path(), version });
        }
        let tokens = u64::try_from(promised).unwrap_or(0);
        if tokens == 0 || bytes != HEADER_BYTES + tokens * TOKEN_BYTES {
            return Err(DataError::ShardLength { path: path(), promised, bytes });
        }
        return Ok((HEADER_BYTES, tokens));
    }
    if let Some((kind, advice)) = foreign::kind(sample) {
        return Err(DataError::Foreign { path: path(), kind, advice });
    }
    if !bytes.is_multiple_of(TOKEN_BYTES) {
        return Err(DataError::OddSize { path: path(), bytes });
    }
    Ok((0, bytes / TOKEN_BYTES))
}

/// The header's number at `index`.
fn number(sample: &[u8], index: usize) -> Option<i32> {
    let bytes = sample.get(index * 4..index * 4 + 4)?;
    bytes.try_into().ok().map(i32::from_le_bytes)
}
