//! Finds NVIDIA's libraries where people have them: the system, `CUDA_HOME`, the toolkit's usual
//! folders, and the wheels of Python environments, first of the one this program lies in. If one
//! is missing, the error says what to install.

use crate::installation::Installation;
use library::{environments, site_packages_of};
use std::path::{Path, PathBuf};

pub(crate) use library::function_table;
pub use library::{Library, LibraryError};

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
    /// From a Python package.
    Package(Package),
}

/// A Python package of NVIDIA's.
#[derive(Clone, Copy, Debug)]
pub struct Package {
    /// Its name for CUDA 13.
    pub cuda13: &'static str,
    /// Its name for CUDA 12.
    pub cuda12: &'static str,
    /// Where else the library comes from: "with the CUDA toolkit".
    pub elsewhere: &'static str,
}

impl Wanted {
    /// How to install it. `newest` is the highest major version that the driver can use.
    pub fn install(&self, newest: Option<u32>) -> String {
        match self.origin {
            Origin::Driver(text) => text.to_string(),
            Origin::Package(package) => Installation::current().advice(package, newest),
        }
    }

    /// The first file that loads. `newest` is the highest major version that the driver can use.
    pub fn find(&self, newest: Option<u32>) -> Result<Library, LibraryError> {
        let names = file_names(self, newest);
        let files = names.iter().flat_map(|name| candidates(self, name));
        let mut tried = Vec::new();
        let found = Library::first(self.name, self.before, files, &mut tried);
        let install = || self.install(newest);
        found.ok_or_else(|| LibraryError::Missing { name: self.name, install: install(), tried })
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

/// `site-packages` of the Python environments that hold something of NVIDIA's.
fn site_packages() -> Vec<PathBuf> {
    let all = environments().into_iter().flat_map(|root| site_packages_of(&root));
    let mut found = Vec::new();
    for packages in all.filter(|packages| packages.join("nvidia").is_dir()) {
        if !found.contains(&packages) {
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
        let error = NOTHING.find(None).unwrap_err();
        assert_eq!(error.to_string(), "Nothing was not found; install nothing");
    }

    #[test]
    fn names_stop_at_what_the_driver_can_use() {
        let names = ["libfitgpt_nothing.so.13", "libfitgpt_nothing.so.12"];
        assert_eq!(file_names(&NOTHING, None), names);
        assert_eq!(file_names(&NOTHING, Some(12)), names[1..]);
        assert!(file_names(&NOTHING, Some(11)).is_empty());
    }
}
