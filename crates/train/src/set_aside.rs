//! Keeps a checkpoint that a run is about to replace although it did not resume from it: under a
//! name with its iteration, once.

use crate::error::TrainError;
use crate::saved_run::SavedRun;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bytes compared at a time.
const PIECE: u64 = 1 << 20;

/// If a run resumes from another file than `newest`, which it will write, keeps what is there now.
/// The copy is there whole or not at all. A run that is killed before its first save comes here
/// again, and finds its copy.
pub fn set_aside(from: &Path, newest: &Path) -> Result<(), TrainError> {
    if is_same_file(from, newest) || !newest.exists() {
        return Ok(());
    }
    for kept in names(newest) {
        if !kept.exists() {
            checkpoint::link_best(newest, &kept)?;
            return Ok(());
        }
        if is_copy(newest, &kept).unwrap_or(false) {
            return Ok(());
        }
    }
    Ok(())
}

/// Whether both paths lead to one file.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// The names to keep it under: with its iteration, then with a number, too.
fn names(newest: &Path) -> impl Iterator<Item = PathBuf> {
    let mark = match SavedRun::open(newest) {
        Ok(saved) => saved.document.progress.iteration.to_string(),
        // It may be of use to another version of the program, or be mended.
        Err(_) => "unreadable".to_owned(),
    };
    let [stem, ending] = [newest.file_stem(), newest.extension()]
        .map(|part| part.unwrap_or_default().to_string_lossy().into_owned());
    let name = move |copy: u32| match copy {
        1 => format!("{stem}-{mark}.{ending}"),
        copy => format!("{stem}-{mark}-{copy}.{ending}"),
    };
    let newest = newest.to_owned();
    (1..).map(move |copy| newest.with_file_name(name(copy)))
}

/// Whether both are one file, or two with the same content.
fn is_copy(one: &Path, other: &Path) -> io::Result<bool> {
    if !other.is_file() {
        return Ok(false); // opening a pipe would wait for its writer
    }
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    let (first, second) = (one.metadata()?, other.metadata()?);
    if (first.dev(), first.ino()) == (second.dev(), second.ino()) {
        return Ok(true);
    }
    if first.len() != second.len() {
        return Ok(false);
    }
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    loop {
        ours.clear();
        theirs.clear();
        one.by_ref().take(PIECE).read_to_end(&mut ours)?;
        other.by_ref().take(PIECE).read_to_end(&mut theirs)?;
        if ours != theirs || ours.is_empty() {
            return Ok(ours == theirs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("aside-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        fn names(&self) -> Vec<String> {
            let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
            let mut names: Vec<String> =
                fs::read_dir(&self.0).unwrap().flatten().map(name).collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_damaged_file_is_kept_once_however_often_a_run_is_killed() {
        let folder = Folder::new("killed");
        let [from, newest] = ["ckpt.pt", "last.safetensors"].map(|name| folder.0.join(name));
        set_aside(&from, &newest).unwrap();
        assert!(folder.names().is_empty());
        fs::write(&newest, b"half a checkpoint").unwrap();
        for _ in 0..3 {
            set_aside(&from, &newest).unwrap();
            assert_eq!(folder.names(), ["last-unreadable.safetensors", "last.safetensors"]);
        }
        // A copy, as where there are no hard links.
        fs::write(&newest, b"half a checkpoint").unwrap();
        fs::remove_file(folder.0.join("last-unreadable.safetensors")).unwrap();
        fs::copy(&newest, folder.0.join("last-unreadable.safetensors")).unwrap();
        set_aside(&from, &newest).unwrap();
        assert_eq!(folder.names().len(), 2);
        // Other content is not lost.
        fs::remove_file(&newest).unwrap();
        fs::write(&newest, b"half another file").unwrap();
        set_aside(&from, &newest).unwrap();
        let second = folder.0.join("last-unreadable-2.safetensors");
        assert_eq!(fs::read(second).unwrap(), b"half another file");
        set_aside(&newest, &newest).unwrap();
        assert_eq!(folder.names().len(), 3);
    }

    #[test]
    fn files_are_compared_to_their_end() {
        let folder = Folder::new("compared");
        let [one, other] = ["one", "other"].map(|name| folder.0.join(name));
        let mut content = vec![7; PIECE as usize + 3];
        fs::write(&one, &content).unwrap();
        fs::write(&other, &content).unwrap();
        assert!(is_copy(&one, &other).unwrap());
        content[PIECE as usize + 2] = 8;
        fs::write(&other, &content).unwrap();
        assert!(!is_copy(&one, &other).unwrap());
        assert!(!is_copy(&one, &folder.0).unwrap());
    }
}
