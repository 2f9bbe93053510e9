//! What the rules read: the files of the tree, their text, and what cargo says about the
//! workspace's packages.
//!
//! Git says what is in the tree: files that are tracked, or new and not ignored. Without git, a
//! plain walk applies the simple patterns of the root's `.gitignore`.

use crate::process;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Extensions of the files whose text some rule reads; others, such as goldens, are not read.
const TEXT_ENDINGS: [&str; 8] = ["rs", "py", "cu", "cuh", "sh", "md", "toml", "svg"];

/// One file of the tree.
#[derive(Debug)]
pub struct SourceFile {
    /// Path from the workspace root, with `/`.
    pub path: String,
    /// Its text; empty if no rule reads it.
    pub text: String,
}

impl SourceFile {
    /// What follows the last dot of the name; empty without one.
    pub fn ending(&self) -> &str {
        ending(&self.path)
    }
}

/// All files of the workspace, sorted by path, and its packages.
#[derive(Debug)]
pub struct Tree {
    /// The files.
    pub files: Vec<SourceFile>,
    /// The `packages` of `cargo metadata`: an array.
    pub packages: Value,
}

impl Tree {
    /// Reads the tree below `root`.
    pub fn read(root: &Path) -> Result<Tree, String> {
        let mut paths = match git_paths(root) {
            Some(paths) => paths,
            None => walked_paths(root)?,
        };
        paths.sort();
        paths.dedup();
        let mut files = Vec::new();
        for path in paths {
            let on_disk = root.join(&path);
            // Git still lists what was deleted but not committed.
            if !on_disk.is_file() {
                continue;
            }
            let text = if TEXT_ENDINGS.contains(&ending(&path)) {
                let bytes = std::fs::read(&on_disk).map_err(|error| format!("{path}: {error}"))?;
                String::from_utf8_lossy(&bytes).into_owned()
            } else {
                String::new()
            };
            files.push(SourceFile { path, text });
        }
        Ok(Tree { files, packages: cargo_packages()? })
    }

    /// A made-up tree of (path, text) pairs.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Tree {
        let file = |&(path, text): &(&str, &str)| SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        Tree { files: files.iter().map(file).collect(), packages: Value::Null }
    }

    /// The files with this ending.
    pub fn ending_in<'a>(&'a self, ending: &'a str) -> impl Iterator<Item = &'a SourceFile> {
        self.files.iter().filter(move |file| file.ending() == ending)
    }

    /// The file at this path.
    pub fn file(&self, path: &str) -> Option<&SourceFile> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Whether a file, or a folder with a file in it, is at this path.
    pub fn holds(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        self.files.iter().any(|file| {
            file.path
                .strip_prefix(path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

/// The crate folder that a path lies in, as (folder, rest): `crates/<name>` or `xtask`.
pub fn crate_of(path: &str) -> Option<(&str, &str)> {
    if let Some(rest) = path.strip_prefix("xtask/") {
        return Some(("xtask", rest));
    }
    let inside = path.strip_prefix("crates/")?;
    inside.split_once('/')
}

fn ending(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rsplit_once('.').map_or("", |(_, ending)| ending)
}

fn cargo_packages() -> Result<Value, String> {
    let mut cargo = process::cargo();
    cargo.args(["metadata", "--format-version=1", "--no-deps", "--locked"]);
    let said = process::capture(&mut cargo).map_err(|failure| failure.to_string())?;
    let mut metadata: Value = serde_json::from_str(&said).map_err(|error| error.to_string())?;
    Ok(metadata["packages"].take())
}

fn git_paths(root: &Path) -> Option<Vec<String>> {
    let mut git = Command::new("git");
    git.current_dir(root).args(["ls-files", "-z", "-co", "--exclude-standard"]);
    let listed = process::ask(&mut git)?;
    Some(listed.split_terminator('\0').map(str::to_owned).collect())
}

fn walked_paths(root: &Path) -> Result<Vec<String>, String> {
    let ignored = std::fs::read_to_string(root.join(".gitignore")).unwrap_or_default();
    let mut found = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(root.join(&folder))
            .map_err(|error| format!("{}: {error}", root.join(&folder).display()))?;
        for entry in entries {
            let entry = entry.map_err(|error| format!("{folder}: {error}"))?;
            let path = format!("{folder}{}", entry.file_name().to_string_lossy());
            if path == ".git" || is_ignored(&ignored, &path) {
                continue;
            }
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(format!("{path}/")),
                _ => found.push(path),
            }
        }
    }
    Ok(found)
}

/// The simple part of git's rules: `/name`, `name/`, `name` and a final `*`.
fn is_ignored(patterns: &str, path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    patterns.lines().map(str::trim).filter(|line| !line.is_empty()).any(|pattern| {
        let (subject, wanted) = match pattern.strip_prefix('/') {
            Some(anchored) => (path, anchored),
            None => (name, pattern),
        };
        let wanted = wanted.trim_end_matches('/');
        match wanted.strip_suffix('*') {
            Some(start) => subject.starts_with(start) && !subject.contains('/'),
            None => subject == wanted,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_walk_obeys_simple_ignore_patterns() {
        let patterns = "/target\n/out*\n__pycache__/\n";
        for (path, want) in [
            ("target", true),
            ("crates/target", false),
            ("out-shakespeare", true),
            ("docs/out.md", false),
            ("a/b/__pycache__", true),
            ("crates", false),
        ] {
            assert_eq!(is_ignored(patterns, path), want, "{path}");
        }
    }

    #[test]
    fn git_and_the_walk_see_this_file() {
        let root = process::workspace_root();
        let walked = walked_paths(&root).unwrap();
        assert!(walked.contains(&"xtask/src/tidy/tree.rs".to_owned()));
        assert!(!walked.iter().any(|path| path.starts_with("target/")));
        let tree = Tree::read(&root).unwrap();
        assert!(tree.file("xtask/src/tidy/tree.rs").is_some());
    }

    #[test]
    fn folders_are_held_when_a_file_is_inside() {
        let tree = Tree::of(&[("docs/decisions/0001-a.md", "")]);
        for (path, want) in [
            ("docs/decisions/", true),
            ("docs", true),
            ("docs/decisions/0001-a.md", true),
            ("docs/dec", false),
            ("docs/decisions/0001-a.md/x", false),
        ] {
            assert_eq!(tree.holds(path), want, "{path}");
        }
    }

    #[test]
    fn paths_are_taken_apart() {
        assert_eq!(crate_of("crates/plan/src/lib.rs"), Some(("plan", "src/lib.rs")));
        assert_eq!(crate_of("xtask/src/main.rs"), Some(("xtask", "src/main.rs")));
        assert_eq!(crate_of("docs/walk.md"), None);
        assert_eq!(
            (ending("a.b/run"), ending("x.tar.gz"), ending(".gitignore")),
            ("", "gz", "gitignore")
        );
    }
}
