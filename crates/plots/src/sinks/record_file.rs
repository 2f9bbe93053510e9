//! A file of records that are appended whole or not at all.

use std::fs::File;
use std::io::{ErrorKind, Result, Write};

/// A file that is open for appending.
pub struct RecordFile {
    file: File,
    /// Bytes of whole records.
    whole: u64,
    /// Most bytes of the file: the system kills a process that exceeds `ulimit -f`.
    limit: u64,
    /// Whether half a record follows them.
    is_torn: bool,
}

impl RecordFile {
    /// Keeps the first `whole` bytes of a file that is open for appending.
    pub fn new(file: File, whole: u64, limit: u64) -> Result<RecordFile> {
        if file.metadata()?.len() != whole {
            file.set_len(whole)?;
        }
        Ok(RecordFile { file, whole, limit, is_torn: false })
    }

    /// Bytes of whole records.
    pub fn bytes(&self) -> u64 {
        self.whole
    }

    /// Appends a record. On an error, what was written of it is taken back, now or by the
    /// next call.
    pub fn append(&mut self, record: &[u8]) -> Result<()> {
        if self.is_torn {
            self.file.set_len(self.whole)?;
            self.is_torn = false;
        }
        let bytes = record.len() as u64;
        if self.whole.saturating_add(bytes) > self.limit {
            return Err(ErrorKind::FileTooLarge.into());
        }
        if let Err(error) = self.file.write_all(record) {
            self.is_torn = self.file.set_len(self.whole).is_err();
            return Err(error);
        }
        self.whole += bytes;
        Ok(())
    }
}
