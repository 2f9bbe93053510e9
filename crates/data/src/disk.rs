//! Disk operations other than reading and writing files: folders that survive a power cut, and the
//! limit on the size of files.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Creates a folder and its parents. When this returns, their names are on the disk and survive a
/// power cut.
///
/// # Errors
///
/// When the operating system refuses.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    let is_new = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let new: Vec<&Path> = folder.ancestors().take_while(is_new).collect();
    std::fs::create_dir_all(folder)?;
    for made in new {
        let above = made.parent().filter(|above| !above.as_os_str().is_empty());
        match File::open(above.unwrap_or(Path::new(".")))?.sync_all() {
            // Some network file systems cannot sync a directory.
            Err(error) if error.kind() != io::ErrorKind::InvalidInput => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Replaces a small file: writes `<file>.part` and renames it when it is safely on the disk.
///
/// # Errors
///
/// When the operating system refuses; the old file then remains.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = path.with_added_extension("part");
    let mut file = File::create(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    path.parent().map_or(Ok(()), sync_folder)
}

/// Syncs the names in a folder.
///
/// # Errors
///
/// When the operating system refuses.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Largest file that this process may write (`ulimit -f`), if there is a limit. Beyond it the
/// system kills the process with a signal and prints no message.
#[must_use]
pub fn file_limit() -> Option<u64> {
    parse_limit(&std::fs::read_to_string("/proc/self/limits").ok()?)
}

fn parse_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max file size"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_made_with_those_above_and_twice() {
        let top = std::env::temp_dir().join(format!("fitgpt-folders-{}", std::process::id()));
        let folder = top.join("a/b");
        make_folder(&folder).unwrap();
        make_folder(&folder).unwrap();
        assert!(folder.is_dir());
        std::fs::write(top.join("file"), b"x").unwrap();
        assert!(make_folder(&top.join("file/c")).is_err());
        std::fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn the_soft_limit_is_read() {
        let limits = |value: &str| {
            format!("Max cpu time  1 2 seconds\nMax file size             {value}   9 bytes\n")
        };
        assert_eq!(parse_limit(&limits("4096")), Some(4096));
        assert_eq!(parse_limit(&limits("unlimited")), None);
        assert_eq!(parse_limit("Max file size"), None);
        assert_eq!(parse_limit(""), None);
    }
}
