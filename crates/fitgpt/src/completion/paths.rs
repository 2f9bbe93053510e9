//! Files and folders that an unfinished path may become.

use super::Offer;
use std::path::{Path, PathBuf};

/// What is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Files and folders.
    All,
    /// Folders only.
    Folders,
}

/// No shell shows more; a folder may have millions of files.
const MOST: usize = 10_000;

/// Entries whose path begins with `current`, by name. A folder ends with a slash. Hidden ones are
/// left out until their dot is typed.
pub fn paths(current: &str, kind: Kind) -> Vec<Offer> {
    let (folder, start) = match current.rfind('/') {
        Some(at) => current.split_at(at + 1),
        None => ("", current),
    };
    let Ok(entries) = std::fs::read_dir(listed(folder)) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries.flatten().take(MOST) {
        let Ok(name) = entry.file_name().into_string() else {
            continue; // an argument must be UTF-8
        };
        if !name.starts_with(start) || (name.starts_with('.') && !start.starts_with('.')) {
            continue;
        }
        // Of a link this asks what it leads to.
        let is_folder = entry.path().is_dir();
        if is_folder || kind == Kind::All {
            let slash = if is_folder { "/" } else { "" };
            found.push(Offer::new(format!("{folder}{name}{slash}"), ""));
        }
    }
    found.sort_by(|a, b| a.word.cmp(&b.word));
    found
}

/// The folder to list. Shells pass `~/` as it was typed.
fn listed(folder: &str) -> PathBuf {
    match (folder.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ if folder.is_empty() => PathBuf::from("."),
        _ => PathBuf::from(folder),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_end_with_a_slash_and_hidden_files_wait_for_their_dot() {
        let root = std::env::temp_dir().join(format!("fitgpt-paths-{}", std::process::id()));
        std::fs::create_dir_all(root.join("out-a")).unwrap();
        std::fs::write(root.join("other.py"), "").unwrap();
        std::fs::write(root.join(".hidden"), "").unwrap();
        let at = |start: &str, kind| -> Vec<String> {
            let typed = format!("{}/{start}", root.display());
            let shown =
                |offer: Offer| offer.word[root.display().to_string().len() + 1..].to_string();
            paths(&typed, kind).into_iter().map(shown).collect()
        };
        assert_eq!(at("", Kind::All), ["other.py", "out-a/"]);
        assert_eq!(at("o", Kind::Folders), ["out-a/"]);
        assert_eq!(at(".", Kind::All), [".hidden"]);
        assert!(at("none/", Kind::All).is_empty());
        std::fs::remove_dir_all(&root).unwrap();
    }
}
