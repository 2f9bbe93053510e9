//! The Python environments that a user may have, first the one this program lies in. Their wheels
//! bring libraries that the system does not have.

use std::path::{Path, PathBuf};

/// The environment that a person names, for tests and for unusual places.
const NAMED: &str = "FITGPT_PYTHON_ENV";

/// This program's file, with links resolved.
pub fn program() -> Option<PathBuf> {
    std::env::current_exe().and_then(std::fs::canonicalize).ok()
}

/// The environment in whose `bin` this program lies. uv, pipx and uvx set no variable that says so.
pub fn own_root() -> Option<PathBuf> {
    program()?.parent()?.parent().map(Path::to_path_buf)
}

/// Folders of Python environments, in the order in which they are asked, each once.
pub fn environments() -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = Vec::new();
    let named = |variable: &str| std::env::var_os(variable).map(PathBuf::from);
    roots.extend(named(NAMED));
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
    let mut found: Vec<PathBuf> = Vec::new();
    for root in roots {
        if !found.contains(&root) {
            found.push(root);
        }
    }
    found
}

/// The folders of packages of a Python environment.
pub fn site_packages_of(root: &Path) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(root.join("lib")).into_iter().flatten().flatten();
    let is_python = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with("python3");
    let mut pythons: Vec<PathBuf> =
        folders.filter(|entry| is_python(&entry.file_name())).map(|entry| entry.path()).collect();
    pythons.sort();
    let packages = |python: PathBuf| ["site-packages", "dist-packages"].map(|p| python.join(p));
    pythons.into_iter().flat_map(packages).filter(|folder| folder.is_dir()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_environment_is_asked_once_and_the_system_last() {
        let all = environments();
        let mut once = all.clone();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), all.len(), "{all:?}");
        assert!(all.contains(&own_root().unwrap()), "{all:?}");
        assert_eq!(all.last().unwrap(), Path::new("/opt/conda"));
    }
}
