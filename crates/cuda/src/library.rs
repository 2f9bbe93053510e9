//! Finds shared libraries where people have them: the system, `CUDA_HOME`, the toolkit's usual
//! folders, and the wheels of Python environments, first of the one this program lies in. If a
//! library or symbol is missing, the error says what to install.

use crate::installation::{Installation, own_root, site_packages_of};
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

/// What a library is called and where to find it.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// For people.
    pub name: &'static str,
    /// File names without the version: `libnvrtc.so`.
    pub stem: &'static str,
    /// Major versions, the preferred one first; empty if the file name has no version.
    pub majors: &'static [u32],
    /// Files of the same folder that must be loaded first, by the start of their names.
    pub before: &'static [&'static str],
    /// Folders below `site-packages/nvidia` in which wheels put it.
    pub wheels: &'static [&'static str],
    /// Where it comes from.
    pub origin: Origin,
}

/// Where a library comes from, for the advice.
#[derive(Clone, Copy, Debug)]
pub enum Origin {
    /// From NVIDIA's driver; the text says what to do.
    Driver(&'static str),
    /// From a Python package of this name.
    Package(&'static str),
}

impl Wanted {
    /// How to install it. `newest` is the highest major version that the driver can use.
    pub fn install(&self, newest: Option<u32>) -> String {
        match self.origin {
            Origin::Driver(text) => text.to_string(),
            Origin::Package(package) => Installation::current().advice(package, newest),
        }
    }
}

/// A loaded library. It is never unloaded, because NVIDIA's libraries start their own threads.
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
    /// The first file that loads. `newest` is the highest major version that the driver can use.
    pub fn find(wanted: &Wanted, newest: Option<u32>) -> Result<Library, LibraryError> {
        let mut tried = Vec::new();
        for name in file_names(wanted, newest) {
            for path in candidates(wanted, &name) {
                let is_path = path.components().count() > 1;
                if is_path && !path.exists() {
                    continue;
                }
                match load(wanted, &path) {
                    Ok(library) => return Ok(library),
                    Err(said) if is_path => tried.push(said),
                    Err(_) => {}
                }
            }
        }
        let install = wanted.install(newest);
        Err(LibraryError::Missing { name: wanted.name, install, tried })
    }

    /// Where it was found.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// A function of the library.
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

/// `libnvrtc.so.13`, `libnvrtc.so.12`, …, without versions that are too new for the driver.
fn file_names(wanted: &Wanted, newest: Option<u32>) -> Vec<String> {
    if wanted.majors.is_empty() {
        return vec![wanted.stem.to_string()];
    }
    let usable = wanted.majors.iter().filter(|&&major| newest.is_none_or(|newest| major <= newest));
    usable.map(|major| format!("{}.{major}", wanted.stem)).collect()
}

/// Where a file may be: by name for the system's loader, then in known folders.
fn candidates(wanted: &Wanted, file: &str) -> Vec<PathBuf> {
    let mut all = Vec::new();
    if let Some(home) = std::env::var_os("CUDA_HOME").or_else(|| std::env::var_os("CUDA_PATH")) {
        let home = PathBuf::from(home);
        all.extend(["lib64", "lib", "targets/x86_64-linux/lib"].map(|d| home.join(d).join(file)));
    }
    all.push(PathBuf::from(file));
    for site in site_packages() {
        all.extend(wanted.wheels.iter().map(|wheel| site.join("nvidia").join(wheel).join(file)));
    }
    all.extend(toolkits().into_iter().map(|folder| folder.join("lib64").join(file)));
    all.push(Path::new("/usr/lib/wsl/lib").join(file));
    all
}

/// Folders of installed toolkits, the newest first.
fn toolkits() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = entries(Path::new("/usr/local"), "cuda");
    found.sort();
    found.reverse();
    found
}

/// `site-packages` of the Python environments that a user may have.
fn site_packages() -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = Vec::new();
    let named = |variable: &str| std::env::var_os(variable).map(PathBuf::from);
    roots.extend(named("FITGPT_PYTHON_ENV"));
    roots.extend(own_root());
    roots.extend(["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(named));
    let path = std::env::var_os("PATH").unwrap_or_default();
    for folder in std::env::split_paths(&path).filter(|folder| folder.join("python3").exists()) {
        roots.extend(folder.parent().map(Path::to_path_buf));
        // If `python3` is a link into an environment, use that environment.
        let linked = std::fs::canonicalize(folder.join("python3")).ok();
        roots.extend(
            linked.as_deref().and_then(Path::parent).and_then(Path::parent).map(Into::into),
        );
    }
    roots.extend(std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local")));
    roots.extend(["/usr/local", "/usr", "/opt/conda"].map(PathBuf::from));
    let mut found = Vec::new();
    for packages in roots.iter().flat_map(|root| site_packages_of(root)) {
        if packages.join("nvidia").is_dir() && !found.contains(&packages) {
            found.push(packages);
        }
    }
    found
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

fn load(wanted: &Wanted, path: &Path) -> Result<Library, String> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut before = Vec::new();
    for start in wanted.before {
        // Wheels contain a second build of some libraries next to the first.
        let is_first = |file: &&PathBuf| !file.to_string_lossy().contains(".alt.");
        let siblings = folder.map(|folder| entries(folder, start)).unwrap_or_default();
        if let Some(file) = siblings.iter().find(is_first) {
            before.push(open(file)?);
        }
    }
    let handle = open(path)?;
    let path = path.to_string_lossy().into_owned();
    let (handle, before) = (ManuallyDrop::new(handle), ManuallyDrop::new(before));
    Ok(Library { handle, before, name: wanted.name, path })
}

fn open(path: &Path) -> Result<libloading::os::unix::Library, String> {
    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
    // SAFETY: loading runs the library's initialisers. These are NVIDIA's own libraries by name,
    // from places that only the user or the system writes.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.map_err(|error| error.to_string())
}

/// Declares a table of C functions of one library: a struct with a field for each, and `load`,
/// whose error names a missing function.
macro_rules! function_table {
    (
        $(#[$doc:meta])*
        $table:ident { $($symbol:ident : fn($($arg:ty),* $(,)?) -> $out:ty),+ $(,)? }
    ) => {
        $(#[$doc])*
        #[allow(non_snake_case)]
        pub(crate) struct $table {
            $(pub(crate) $symbol: unsafe extern "C" fn($($arg),*) -> $out,)+
            /// Keeps the library loaded.
            #[allow(dead_code)]
            pub(crate) library: $crate::library::Library,
        }

        impl $table {
            pub(crate) fn load(
                library: $crate::library::Library,
            ) -> Result<$table, $crate::library::LibraryError> {
                Ok($table {
                    $(
                        // SAFETY: the type is that of NVIDIA's reference for this symbol.
                        $symbol: unsafe { library.function(stringify!($symbol)) }?,
                    )+
                    library,
                })
            }
        }
    };
}

pub(crate) use function_table;

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Wanted = Wanted {
        name: "Nothing",
        stem: "libfitgpt_nothing.so",
        majors: &[13, 12],
        before: &[],
        wheels: &["cu13/lib"],
        origin: Origin::Driver("install nothing"),
    };

    #[test]
    fn a_missing_library_is_an_error_that_says_what_to_install() {
        let error = Library::find(&NOTHING, None).unwrap_err();
        assert_eq!(error.to_string(), "Nothing was not found; install nothing");
    }

    #[test]
    fn a_missing_symbol_is_an_error_that_names_it() {
        let wanted = Wanted { name: "C", stem: "libc.so.6", majors: &[], ..NOTHING };
        let library = Library::find(&wanted, None).unwrap();
        // SAFETY: the symbol does not exist, so nothing is called.
        let found = unsafe { library.function::<unsafe extern "C" fn()>("fitgpt_nothing") };
        let said = found.unwrap_err().to_string();
        assert!(said.contains("too old: it has no fitgpt_nothing"), "{said}");
    }

    #[test]
    fn names_stop_at_what_the_driver_can_use() {
        let names = ["libfitgpt_nothing.so.13", "libfitgpt_nothing.so.12"];
        assert_eq!(file_names(&NOTHING, None), names);
        assert_eq!(file_names(&NOTHING, Some(12)), names[1..]);
        assert!(file_names(&NOTHING, Some(11)).is_empty());
    }
}
