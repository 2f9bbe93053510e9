//! Finds an MPI with the standard ABI: in the folder that `FITGPT_MPI` names, by the system's
//! loader, beside an `mpiexec` on the path, and in Python environments. An MPI without that ABI is
//! recognised, so that the one line about it can say so.

use library::{Library, environments};
use plan::BackendError;
use std::path::{Path, PathBuf};

/// The variable with the folder of an MPI: `bin/mpiexec` and `lib/libmpi_abi.so.1` are in it.
pub const ENVIRONMENT: &str = "FITGPT_MPI";

/// How to get an MPI that has the ABI, with its `mpiexec`.
pub const INSTALL: &str = "pip install mpich";

const FILE: &str = "libmpi_abi.so.1";

/// Names of libraries that are an MPI: MPICH's and its relatives', Open MPI's, and any.
const OTHERS: [&str; 4] = ["libmpi.so.12", "libmpi.so.40", "libmpich.so.12", "libmpi.so"];

const LAUNCHER: &str = "mpiexec";

/// Where things are looked for; a value, so that tests have their own.
#[derive(Debug, Default)]
pub struct Places {
    /// From `FITGPT_MPI`.
    named: Option<PathBuf>,
    /// The folders of the path.
    path: Vec<PathBuf>,
    /// Folders with `bin` and `lib`: Python environments, `/usr/local`, `/usr`.
    roots: Vec<PathBuf>,
    /// More folders with libraries, for those without the ABI.
    folders: Vec<PathBuf>,
}

impl Places {
    /// Those of this process.
    pub fn current() -> Places {
        let split = |variable: &str| {
            let value = std::env::var_os(variable).unwrap_or_default();
            let all = std::env::split_paths(&value).filter(|path| !path.as_os_str().is_empty());
            all.collect::<Vec<PathBuf>>()
        };
        let mut folders = split("LD_LIBRARY_PATH");
        let usual = [
            "/usr/lib/x86_64-linux-gnu",
            "/usr/lib/aarch64-linux-gnu",
            "/usr/lib64",
            "/usr/lib64/openmpi/lib",
            "/usr/lib64/mpich/lib",
        ];
        folders.extend(usual.map(PathBuf::from));
        let named = std::env::var_os(ENVIRONMENT).filter(|value| !value.is_empty());
        let named = named.map(PathBuf::from);
        // The launcher may have been started by its path.
        let path = parent_folder().into_iter().chain(split("PATH")).collect();
        Places { named, path, roots: environments(), folders }
    }

    /// Folders with `bin` and `lib` beside which an `mpiexec` is on the path.
    fn launchers(&self) -> impl Iterator<Item = &Path> {
        let has_one = |folder: &&PathBuf| folder.join(LAUNCHER).exists();
        self.path.iter().filter(has_one).filter_map(|folder| folder.parent())
    }

    /// The files to try, in order.
    fn candidates(&self) -> Vec<PathBuf> {
        if let Some(named) = &self.named {
            return vec![named.join("lib").join(FILE), named.join(FILE)];
        }
        let mut all = vec![PathBuf::from(FILE)];
        let roots = self.launchers().chain(self.roots.iter().map(PathBuf::as_path));
        all.extend(roots.flat_map(|root| ["lib", "lib64"].map(|lib| root.join(lib).join(FILE))));
        all
    }

    /// A library of an MPI that has no standard ABI.
    fn without_abi(&self) -> Option<PathBuf> {
        let roots = self.named.iter().map(PathBuf::as_path).chain(self.launchers());
        let roots = roots.chain(self.roots.iter().map(PathBuf::as_path));
        let below = roots.flat_map(|root| ["lib", "lib64"].map(|lib| root.join(lib)));
        let folders = below.chain(self.folders.iter().cloned());
        let files = folders.flat_map(|folder| OTHERS.map(|name| folder.join(name)));
        files.into_iter().find(|file| file.exists())
    }

    /// What to say when nothing loaded.
    fn refusal(&self, tried: &[String]) -> String {
        let loader = tried.first().map(|said| format!(" (the loader said: {said})"));
        let loader = loader.unwrap_or_default();
        if let (Some(named), None) = (&self.named, tried.first()) {
            let named = named.display();
            return format!("{ENVIRONMENT}={named}: there is no lib/{FILE}; `{INSTALL}` has one");
        }
        match self.without_abi() {
            Some(file) if tried.is_empty() => format!(
                "the MPI at {} lacks MPI's standard ABI ({FILE}); `{INSTALL}` has it, with its own \
                 {LAUNCHER}",
                file.display()
            ),
            _ => format!("MPI ({FILE}) was not found; install it with `{INSTALL}`{loader}"),
        }
    }

    /// The `mpiexec` that belongs to the library which would be loaded.
    fn mpiexec(&self) -> Option<PathBuf> {
        let beside = |root: &Path| root.join("bin").join(LAUNCHER);
        if let Some(named) = &self.named {
            return Some(beside(named)).filter(|file| file.exists());
        }
        let has_abi =
            |root: &&Path| ["lib", "lib64"].iter().any(|l| root.join(l).join(FILE).exists());
        let roots = self.launchers().chain(self.roots.iter().map(PathBuf::as_path));
        roots.filter(has_abi).map(beside).find(|file| file.exists())
    }
}

/// The folder of the program that started this one, where the system tells.
fn parent_folder() -> Option<PathBuf> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    let program = std::fs::read_link(format!("/proc/{}/exe", parent.trim())).ok()?;
    program.parent().map(Path::to_path_buf)
}

/// Loads MPI.
pub fn find() -> Result<Library, BackendError> {
    let places = Places::current();
    let mut tried = Vec::new();
    let found = Library::first("MPI", &[], places.candidates(), &mut tried);
    found.ok_or_else(|| BackendError::Refused { what: places.refusal(&tried) })
}

/// The `mpiexec` of an MPI that has the standard ABI, if there is one here.
pub fn mpiexec() -> Option<PathBuf> {
    Places::current().mpiexec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with these empty files, and places of which nothing is taken from this machine.
    fn places(name: &str, files: &[&str]) -> (PathBuf, Places) {
        let root = std::env::temp_dir().join(format!("fitgpt-mpi-{name}-{}", std::process::id()));
        for file in files {
            let file = root.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "").unwrap();
        }
        (root, Places::default())
    }

    #[test]
    fn the_loader_comes_first_then_mpiexec_then_environments() {
        let (root, places) = places("order", &["here/bin/mpiexec", "there/lib/libmpi_abi.so.1"]);
        let path = vec![root.join("empty"), root.join("here/bin")];
        let places = Places { path, roots: vec![root.join("there")], ..places };
        let found = places.candidates();
        assert_eq!(found[0], Path::new(FILE));
        assert_eq!(found[1], root.join("here/lib").join(FILE));
        assert_eq!(found[3], root.join("there/lib").join(FILE));
        assert_eq!(found.len(), 5);
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn the_folder_that_is_named_is_the_only_one() {
        let (root, places) = places("named", &["mine/bin/mpiexec", "other/bin/mpiexec"]);
        let path = vec![root.join("other/bin")];
        let places = Places { named: Some(root.join("mine")), path, ..places };
        assert!(places.candidates().iter().all(|file| file.starts_with(root.join("mine"))));
        assert_eq!(places.mpiexec(), Some(root.join("mine/bin/mpiexec")));
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn the_launcher_belongs_to_the_library() {
        let files = ["old/bin/mpiexec", "old/lib/libmpi.so.40", "new/bin/mpiexec"];
        let (root, places) =
            places("launcher", &[&files[..], &["new/lib/libmpi_abi.so.1"]].concat());
        let path = vec![root.join("old/bin")];
        let places = Places { path, roots: vec![root.join("new")], ..places };
        assert_eq!(places.mpiexec(), Some(root.join("new/bin/mpiexec")));
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn an_mpi_without_the_abi_is_told_apart_from_none() {
        for name in ["libmpi.so.40", "libmpi.so.12"] {
            let (root, places) = places("abi", &[&format!("lib/{name}")]);
            let places = Places { folders: vec![root.join("lib")], ..places };
            let said = places.refusal(&[]);
            let want = format!("the MPI at {}/lib/{name} lacks MPI's standard ABI", root.display());
            assert!(said.starts_with(&want) && said.contains("`pip install mpich`"), "{said}");
            std::fs::remove_dir_all(&root).unwrap();
        }
        let said = Places::default().refusal(&[]);
        assert_eq!(
            said,
            "MPI (libmpi_abi.so.1) was not found; install it with `pip install mpich`"
        );
    }
}
