//! One loaded library and its functions. If a library or symbol is missing, the error says what to
//! install.

use std::fmt;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

/// A library that could not be loaded, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LibraryError {
    /// No file of that name could be loaded.
    Missing {
        /// For people: "NVRTC".
        name: &'static str,
        /// How to install it.
        install: String,
        /// The loader's messages about files that do exist.
        tried: Vec<String>,
    },
    /// The library exists but is older than what this program calls.
    Symbol {
        /// For people.
        name: &'static str,
        /// Where it was found.
        path: String,
        /// The function that is missing.
        symbol: String,
    },
}

impl fmt::Display for LibraryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LibraryError::Missing { name, install, tried } => {
                write!(f, "{name} was not found; {install}")?;
                match tried.first() {
                    Some(said) => write!(f, " (the loader said: {said})"),
                    None => Ok(()),
                }
            }
            LibraryError::Symbol { name, path, symbol } => {
                write!(f, "{name} at {path} is too old: it has no {symbol}; update it")
            }
        }
    }
}

impl std::error::Error for LibraryError {}

/// A loaded library. It is never unloaded, because such libraries start their own threads.
pub struct Library {
    handle: ManuallyDrop<libloading::os::unix::Library>,
    before: ManuallyDrop<Vec<libloading::os::unix::Library>>,
    name: &'static str,
    path: String,
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}, {} before it", self.name, self.path, self.before.len())
    }
}

impl Library {
    /// The first file that loads. A name without a folder is left to the system's loader. Files of
    /// the same folder whose names start with one of `before` are loaded first. Without success:
    /// what the loader said about files that do exist, put after `tried`.
    pub fn first(
        name: &'static str,
        before: &[&str],
        candidates: impl IntoIterator<Item = PathBuf>,
        tried: &mut Vec<String>,
    ) -> Option<Library> {
        for path in candidates {
            let is_path = path.components().count() > 1;
            if is_path && !path.exists() {
                continue;
            }
            match load(name, before, &path) {
                Ok(library) => return Some(library),
                Err(said) if is_path => tried.push(said),
                Err(_) => {}
            }
        }
        None
    }

    /// Where it was found.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// A function of the library.
    ///
    /// # Errors
    /// The library has no such function.
    ///
    /// # Safety
    /// `F` is the type of that function.
    pub unsafe fn function<F: Copy>(&self, symbol: &str) -> Result<F, LibraryError> {
        let missing = || LibraryError::Symbol {
            name: self.name,
            path: self.path.clone(),
            symbol: symbol.to_string(),
        };
        // SAFETY: the caller gives the type; the table that keeps the pointer keeps the library.
        let found = unsafe { self.handle.get::<F>(symbol.as_bytes()) }.map_err(|_| missing())?;
        Ok(*found)
    }
}

fn load(name: &'static str, before: &[&str], path: &Path) -> Result<Library, String> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut loaded = Vec::new();
    for start in before {
        // Wheels contain a second build of some libraries next to the first.
        let is_first = |file: &&PathBuf| !file.to_string_lossy().contains(".alt.");
        let siblings = folder.map(|folder| entries(folder, start)).unwrap_or_default();
        if let Some(file) = siblings.iter().find(is_first) {
            loaded.push(open(file)?);
        }
    }
    let handle = open(path)?;
    let path = path.to_string_lossy().into_owned();
    let (handle, before) = (ManuallyDrop::new(handle), ManuallyDrop::new(loaded));
    Ok(Library { handle, before, name, path })
}

/// Entries of a folder whose names start with `start`, in order of name.
fn entries(folder: &Path, start: &str) -> Vec<PathBuf> {
    let list = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = list
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(start))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

fn open(path: &Path) -> Result<libloading::os::unix::Library, String> {
    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
    // SAFETY: loading runs the library's initialisers. These are NVIDIA's and MPI's own libraries
    // by name, from places that only the user or the system writes.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(files: &[&str]) -> (Option<Library>, Vec<String>) {
        let mut tried = Vec::new();
        let found = Library::first("C", &[], files.iter().map(PathBuf::from), &mut tried);
        (found, tried)
    }

    #[test]
    fn the_first_file_that_loads_is_taken() {
        let (found, tried) = find(&["/nowhere/libc.so.6", "libfitgpt_nothing.so", "libc.so.6"]);
        assert_eq!(found.unwrap().path(), "libc.so.6");
        assert!(tried.is_empty(), "nothing exists that failed: {tried:?}");
    }

    #[test]
    fn a_file_that_exists_and_does_not_load_is_told() {
        let this = std::env::temp_dir().join(format!("fitgpt-library-{}.so", std::process::id()));
        std::fs::write(&this, "no library").unwrap();
        let (found, tried) = find(&[this.to_str().unwrap()]);
        std::fs::remove_file(&this).unwrap();
        assert!(found.is_none());
        let install = "install nothing".to_owned();
        let said = LibraryError::Missing { name: "C", install, tried }.to_string();
        assert!(said.starts_with("C was not found; install nothing (the loader said: "), "{said}");
    }

    #[test]
    fn a_missing_symbol_is_an_error_that_names_it() {
        let library = find(&["libc.so.6"]).0.unwrap();
        // SAFETY: the symbol does not exist, so nothing is called.
        let found = unsafe { library.function::<unsafe extern "C" fn()>("fitgpt_nothing") };
        let said = found.unwrap_err().to_string();
        assert!(said.contains("too old: it has no fitgpt_nothing"), "{said}");
    }
}
