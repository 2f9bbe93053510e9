//! A sequence of tokens from one file, a set of shards, or memory.

use crate::error::DataError;
use crate::token_file::TokenFile;
use std::path::{Path, PathBuf};

/// The number of 16-bit ids.
const ALL_IDS: u32 = 1 << 16;

/// Most files kept open at once; systems allow a process 1024 or more.
const MOST_OPEN_FILES: usize = 256;

/// Tokens read at a time when a stream is checked.
const CHECKED_AT_ONCE: usize = 1 << 16;

/// A sequence of token ids with random access.
#[derive(Debug)]
pub struct TokenStream {
    source: Source,
    tokens: u64,
    vocab_size: u32,
}

#[derive(Debug)]
enum Source {
    /// The name that messages use, and the tokens.
    Memory(PathBuf, Vec<u16>),
    /// Each file with the number of tokens in the files before it.
    Files(Vec<(u64, TokenFile)>),
}

impl TokenStream {
    /// The files, in order, as one stream.
    ///
    /// # Errors
    ///
    /// As [`TokenFile::open`], for the first file that fails.
    pub fn open(paths: &[PathBuf]) -> Result<Self, DataError> {
        let mut tokens = 0;
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            let mut file = TokenFile::open(path)?;
            if paths.len() > MOST_OPEN_FILES {
                file.close();
            }
            let before: u64 = tokens;
            // Sparse files can have any size.
            tokens = before.checked_add(file.len()).ok_or_else(|| DataError::Shape {
                what: format!("{}: more tokens than can be counted", path.display()),
            })?;
            files.push((before, file));
        }
        Ok(Self { source: Source::Files(files), tokens, vocab_size: ALL_IDS })
    }

    /// A stream in memory; `name` is what messages call it.
    #[must_use]
    pub fn from_memory(name: &str, tokens: Vec<u16>) -> Self {
        let count = tokens.len() as u64;
        let source = Source::Memory(PathBuf::from(name), tokens);
        Self { source, tokens: count, vocab_size: ALL_IDS }
    }

    /// From now on, reading an id of `vocab_size` or above is an error. Without this call, all ids
    /// are allowed.
    pub fn set_vocab_size(&mut self, vocab_size: u32) {
        self.vocab_size = vocab_size;
    }

    /// Total number of tokens.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.tokens
    }

    /// Whether the stream has no tokens.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens == 0
    }

    /// Bytes of memory that its tokens take; 0 if they are in files.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        match &self.source {
            Source::Memory(_, tokens) => 2 * tokens.len() as u64,
            Source::Files(_) => 0,
        }
    }

    /// All tokens. For short texts.
    ///
    /// # Errors
    ///
    /// As [`TokenStream::read`].
    pub fn to_vec(&self) -> Result<Vec<u16>, DataError> {
        let mut ids = vec![0; self.tokens as usize];
        self.read(0, &mut ids)?;
        Ok(ids.into_iter().map(|id| id as u16).collect())
    }

    /// Number of files; 0 for a stream in memory.
    #[must_use]
    pub fn files(&self) -> usize {
        match &self.source {
            Source::Memory(..) => 0,
            Source::Files(files) => files.len(),
        }
    }

    /// Its files in order; none for a stream in memory.
    #[must_use]
    pub fn paths(&self) -> Vec<&Path> {
        match &self.source {
            Source::Memory(..) => Vec::new(),
            Source::Files(files) => files.iter().map(|(_, file)| file.path()).collect(),
        }
    }

    /// What messages name: the first file, or the name of a stream in memory.
    #[must_use]
    pub fn path(&self) -> &Path {
        match &self.source {
            Source::Memory(name, _) => name,
            Source::Files(files) => files.first().map_or(Path::new(""), |(_, file)| file.path()),
        }
    }

    /// Fills `out` with the tokens from `start` on. Allocates nothing.
    ///
    /// # Errors
    ///
    /// When the range exceeds the stream, a read fails, or an id is outside the vocabulary.
    pub fn read(&self, start: u64, out: &mut [i32]) -> Result<(), DataError> {
        let count = out.len() as u64;
        let Some(end) = start.checked_add(count).filter(|&end| end <= self.tokens) else {
            let (path, tokens) = (self.path().to_owned(), self.tokens);
            return Err(DataError::OutOfRange { path, start, count, tokens });
        };
        match &self.source {
            Source::Memory(name, tokens) => {
                self.copy(name, start, &tokens[start as usize..end as usize], out)
            }
            Source::Files(files) => self.read_files(files, start, out),
        }
    }

    fn copy(&self, name: &Path, start: u64, ids: &[u16], out: &mut [i32]) -> Result<(), DataError> {
        for (offset, (token, &id)) in out.iter_mut().zip(ids).enumerate() {
            if u32::from(id) >= self.vocab_size {
                let (path, token) = (name.to_owned(), start + offset as u64);
                let vocab_size = self.vocab_size;
                return Err(DataError::BeyondVocabulary { path, token, id, vocab_size });
            }
            *token = i32::from(id);
        }
        Ok(())
    }

    fn read_files(
        &self,
        files: &[(u64, TokenFile)],
        start: u64,
        out: &mut [i32],
    ) -> Result<(), DataError> {
        // The last file that begins at or before `start`.
        let first = files.partition_point(|(before, _)| *before <= start).saturating_sub(1);
        let mut at = start;
        let mut rest = out;
        for (before, file) in &files[first..] {
            if rest.is_empty() {
                break;
            }
            let inside = at - before;
            let count = (file.len() - inside).min(rest.len() as u64);
            let (part, after) = rest.split_at_mut(count as usize);
            file.read(inside, part, self.vocab_size)?;
            at += count;
            rest = after;
        }
        Ok(())
    }

    /// Checks that the first `tokens` tokens are ids of the vocabulary, so that a file made with
    /// another tokenizer is found before the run and not during it.
    ///
    /// # Errors
    ///
    /// When a read fails, or at the first id outside the vocabulary.
    pub fn check_ids(&self, tokens: u64) -> Result<(), DataError> {
        let mut buffer = vec![0; CHECKED_AT_ONCE];
        let end = self.tokens.min(tokens);
        let mut at = 0;
        while at < end {
            let count = (end - at).min(CHECKED_AT_ONCE as u64);
            self.read(at, &mut buffer[..count as usize])?;
            at += count;
        }
        Ok(())
    }

    /// Checks that the stream can hold a sequence of `block_size` tokens and its targets.
    ///
    /// # Errors
    ///
    /// When the stream is too short, with both numbers.
    pub fn check_block_size(&self, block_size: u64) -> Result<(), DataError> {
        if self.tokens > block_size {
            return Ok(());
        }
        let (path, tokens) = (self.path().to_owned(), self.tokens);
        Err(DataError::TooShort { path, tokens, block_size })
    }
}
