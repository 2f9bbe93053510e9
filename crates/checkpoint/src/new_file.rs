//! A file that appears under its name whole or not at all, whatever its format: the care of
//! [`save()`](crate::save()) for files of other programs.

use crate::disk::RealDisk;
use crate::error::{SaveError, SaveProblem};
use crate::save::{Output, Unfinished, Written, prepare};
use std::path::Path;

/// A new file under its temporary name. Dropping it removes the file.
pub struct NewFile(Unfinished<'static, RealDisk>);

impl NewFile {
    /// Begins a file. `needed` is its final size, for the message if the disk is full.
    ///
    /// # Errors
    ///
    /// When it cannot be created, or another process is writing the same file.
    pub fn create(path: &Path, needed: u64) -> Result<NewFile, SaveError> {
        let created =
            prepare(&RealDisk, path, |temporary| Output::create(&RealDisk, temporary, needed));
        let (output, temporary) =
            created.map_err(|problem| SaveError { path: path.to_owned(), problem })?;
        Ok(NewFile(Unfinished { path: path.to_owned(), output, temporary }))
    }

    /// Writes bytes after those that are there.
    ///
    /// # Errors
    ///
    /// When they cannot be written.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), SaveError> {
        let written = self.0.output.append(bytes);
        written.map_err(|problem| self.named(problem))
    }

    /// Writes bytes at an offset.
    ///
    /// # Errors
    ///
    /// When they cannot be written.
    pub fn put(&mut self, bytes: &[u8], offset: u64) -> Result<(), SaveError> {
        let written = self.0.output.put(bytes, offset);
        written.map_err(|problem| self.named(problem))
    }

    /// Waits until the file is on the disk, and gives it its name. A file that has the name is
    /// replaced. Returns its size.
    ///
    /// # Errors
    ///
    /// As [`save()`](crate::save()).
    pub fn finish(self) -> Result<u64, SaveError> {
        let bytes = self.0.output.top;
        self.0.finish()?;
        Ok(bytes)
    }

    /// Ends writing and leaves the rest to [`Written::finish`], which another thread can call.
    #[must_use]
    pub fn into_written(self) -> Written {
        Written(self.0)
    }

    fn named(&self, problem: SaveProblem) -> SaveError {
        SaveError { path: self.0.path.clone(), problem }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_is_whole_or_not_there() {
        let folder = std::env::temp_dir().join(format!("new-file-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("model.gguf");
        let names = || fs::read_dir(&folder).unwrap().count();
        let mut file = NewFile::create(&path, 6).unwrap();
        file.append(b"abc").unwrap();
        assert!(!path.exists());
        let busy = NewFile::create(&path, 6).map(drop).unwrap_err();
        assert!(matches!(busy.problem, SaveProblem::Busy { .. }), "{busy}");
        drop(file);
        assert_eq!(names(), 0);
        let mut file = NewFile::create(&path, 6).unwrap();
        file.append(b"abcdef").unwrap();
        file.put(b"XY", 1).unwrap();
        assert_eq!(file.finish().unwrap(), 6);
        assert_eq!(fs::read(&path).unwrap(), b"aXYdef");
        assert_eq!(names(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }
}
