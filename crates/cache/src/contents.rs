//! What is in the cache folder, and how to clear it. Only files with the names that this program
//! gives are counted and removed: `FITGPT_CACHE` may name a folder that holds other things.

use std::io;
use std::path::{Path, PathBuf};

/// How the names of the program's files begin and end.
const NAMES: [(&str, &str); 7] = [
    ("", ".cubin"),
    ("matmuls-", ".txt"),
    ("matmuls", ".lock"),
    ("op-times-", ".json"),
    ("plans-", ".json"),
    ("plans", ".lock"),
    ("", ".part"), // what a killed process left
];

/// The folder inside the cache folder in which kernels lie.
pub const KERNELS: &str = "kernels";

/// The files of the cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    files: Vec<PathBuf>,
    bytes: u64,
}

impl Contents {
    /// What this program has put into a cache folder. Links are not followed.
    #[must_use]
    pub fn of(folder: &Path) -> Contents {
        let mut found = Contents::default();
        for place in [folder.to_path_buf(), folder.join(KERNELS)] {
            for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                let is_own = |(start, end): &(&str, &str)| {
                    name.len() >= start.len() + end.len()
                        && name.starts_with(start)
                        && name.ends_with(end)
                };
                let Ok(metadata) = entry.metadata() else { continue };
                if metadata.is_file() && NAMES.iter().any(is_own) {
                    found.bytes = found.bytes.saturating_add(metadata.len());
                    found.files.push(entry.path());
                }
            }
        }
        found
    }

    /// How many files there are.
    #[must_use]
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// How many bytes they take.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Removes the files, and the folders if nothing else is in them. A program that runs meanwhile
    /// has what it needs in memory.
    ///
    /// # Errors
    ///
    /// The first file that cannot be removed, with the reason.
    pub fn clear(&self, folder: &Path) -> Result<(), (PathBuf, io::Error)> {
        for file in &self.files {
            match std::fs::remove_file(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err((file.clone(), error));
                }
                _ => {}
            }
        }
        // Only empty folders can be removed this way.
        let _ = std::fs::remove_dir(folder.join(KERNELS));
        let _ = std::fs::remove_dir(folder);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_programs_own_files_are_removed() {
        let folder = std::env::temp_dir().join(format!("fitgpt-clear-{}", std::process::id()));
        std::fs::create_dir_all(folder.join(KERNELS)).unwrap();
        for name in ["kernels/a-sm90-1.cubin", "op-times-x.json", "plans-y.json", "plans.lock"] {
            std::fs::write(folder.join(name), "12345").unwrap();
        }
        for name in ["thesis.tex", "kernels/other.txt", "plans.md"] {
            std::fs::write(folder.join(name), "mine").unwrap();
        }
        let contents = Contents::of(&folder);
        assert_eq!((contents.files(), contents.bytes()), (4, 20));
        contents.clear(&folder).unwrap();
        contents.clear(&folder).unwrap(); // a second time does nothing
        assert_eq!(Contents::of(&folder), Contents::default());
        for name in ["thesis.tex", "kernels/other.txt", "plans.md"] {
            assert!(folder.join(name).is_file(), "{name}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
