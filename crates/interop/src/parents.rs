//! The folders above a new file or folder: made where they are missing, and removed again if what
//! they were made for does not arrive.

use crate::export::ExportError;
use checkpoint::{SaveError, SaveProblem};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Folders that were made. Dropping this removes those that are still empty.
pub struct Parents(Vec<PathBuf>);

impl Parents {
    /// Makes the folders that `path` needs.
    ///
    /// # Errors
    ///
    /// When one cannot be made. Those that were made are removed again.
    pub fn make(path: &Path) -> Result<Parents, ExportError> {
        let mut made = Parents(Vec::new());
        let above = path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
        let missing: Vec<&Path> = above.take_while(|folder| !folder.exists()).collect();
        for folder in missing.into_iter().rev() {
            match fs::create_dir(folder) {
                Ok(()) => made.0.push(folder.to_owned()),
                // Another process was faster, and may use it.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
                Err(source) => {
                    let problem = SaveProblem::Io { doing: "create its folder", source };
                    return Err(SaveError { path: path.to_owned(), problem }.into());
                }
            }
        }
        Ok(made)
    }

    /// The file or folder is there: nothing is removed.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Parents {
    fn drop(&mut self) {
        for folder in self.0.iter().rev() {
            // One that is not empty any more is somebody else's now.
            let _ = fs::remove_dir(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_stay_with_what_they_were_made_for() {
        let root = std::env::temp_dir().join(format!("fitgpt-parents-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let file = root.join("a/b/model.gguf");
        drop(Parents::make(&file).unwrap());
        assert!(!root.join("a").exists());
        let made = Parents::make(&file).unwrap();
        fs::write(root.join("a/mine"), b"").unwrap();
        drop(made);
        assert!(root.join("a/mine").exists() && !root.join("a/b").exists());
        Parents::make(&file).unwrap().keep();
        assert!(root.join("a/b").is_dir());
        // What is there already is not ours.
        drop(Parents::make(&file).unwrap());
        assert!(root.join("a/b").is_dir());
        let refused = Parents::make(&root.join("a/mine/c/model.gguf")).err().unwrap().to_string();
        assert!(refused.contains("cannot create its folder"), "{refused}");
        drop(Parents::make(Path::new("model.gguf")).unwrap());
        fs::remove_dir_all(&root).unwrap();
    }
}
