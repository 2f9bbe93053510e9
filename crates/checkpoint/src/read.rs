//! Reading a checkpoint. The header is checked when the file is opened, a tensor's bytes when they
//! are read. The file is not memory-mapped, so truncating it causes an error, not a signal.

use crate::checksum::Checksum;
use crate::error::{ReadError, ReadProblem};
use crate::header::Header;
use crate::safetensors::{Opened, read_all};
use crate::tensor::TensorInfo;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Bytes read and checksummed at a time.
const CHUNK: usize = 1 << 20;

/// An open checkpoint. It still reads the same file after a save gives its name to a new one.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    file: File,
    header: Header,
    /// File offset of the first tensor.
    data_start: u64,
}

impl Reader {
    /// Opens a checkpoint and checks everything except the tensors' content.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, is not ours, has a newer version, is truncated or contradicts
    /// itself.
    pub fn open(path: &Path) -> Result<Reader, ReadError> {
        Reader::open_file(path).map_err(|problem| ReadError { path: path.to_owned(), problem })
    }

    fn open_file(path: &Path) -> Result<Reader, ReadProblem> {
        let opened = Opened::open(path)?;
        let header = Header::decode(&opened.header, opened.file_bytes)?;
        let data_start = opened.data_start();
        Ok(Reader { path: path.to_owned(), file: opened.file, header, data_start })
    }

    /// The run's JSON document.
    #[must_use]
    pub fn document(&self) -> &str {
        &self.header.document
    }

    /// Its tensors in the order of the file, which may differ from the order given to `save`.
    #[must_use]
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.header.tensors
    }

    /// Index of the tensor with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<usize> {
        self.header.tensors.iter().position(|tensor| tensor.name == name)
    }

    /// Reads a tensor into a buffer of exactly its size.
    ///
    /// # Errors
    ///
    /// When the content cannot be read or fails its checksum (the buffer then holds the damaged
    /// content), or when the buffer has the wrong size.
    pub fn read(&self, index: usize, content: &mut [u8]) -> Result<(), ReadError> {
        self.read_tensor(index, content).map_err(|problem| self.named(problem))
    }

    fn read_tensor(&self, index: usize, content: &mut [u8]) -> Result<(), ReadProblem> {
        let span = *self
            .header
            .spans
            .get(index)
            .ok_or(ReadProblem::NoSuchTensor { index, count: self.header.spans.len() })?;
        let given = content.len() as u64;
        if given != span.bytes {
            let tensor = self.header.tensors[index].name.clone();
            return Err(ReadProblem::BufferSize { tensor, needed: span.bytes, given });
        }
        let mut checksum = Checksum::new();
        let mut offset = self.data_start + span.start;
        for chunk in content.chunks_mut(CHUNK) {
            read_all(&self.file, chunk, offset)?;
            checksum.update(chunk);
            offset += chunk.len() as u64;
        }
        self.compare(index, &checksum)
    }

    /// Checks the content of every tensor, one small chunk at a time.
    ///
    /// # Errors
    ///
    /// When the content of a tensor cannot be read or fails its checksum.
    pub fn verify(&self) -> Result<(), ReadError> {
        self.verify_tensors().map_err(|problem| self.named(problem))
    }

    fn verify_tensors(&self) -> Result<(), ReadProblem> {
        let mut buffer = vec![0; CHUNK];
        for (index, span) in self.header.spans.iter().enumerate() {
            let mut checksum = Checksum::new();
            let mut done = 0;
            while done < span.bytes {
                let bytes = (span.bytes - done).min(CHUNK as u64) as usize;
                read_all(&self.file, &mut buffer[..bytes], self.data_start + span.start + done)?;
                checksum.update(&buffer[..bytes]);
                done += bytes as u64;
            }
            self.compare(index, &checksum)?;
        }
        Ok(())
    }

    fn compare(&self, index: usize, checksum: &Checksum) -> Result<(), ReadProblem> {
        let (expected, found) = (self.header.spans[index].checksum, checksum.value());
        if found == expected {
            return Ok(());
        }
        let tensor = self.header.tensors[index].name.clone();
        Err(ReadProblem::Checksum { tensor, expected, found })
    }

    fn named(&self, problem: ReadProblem) -> ReadError {
        ReadError { path: self.path.clone(), problem }
    }
}
