//! A temporary folder for the files of one task.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that is removed when the value is dropped.
pub struct ScratchFolder {
    /// Where it is.
    pub path: PathBuf,
}

impl ScratchFolder {
    /// An empty folder; `purpose` is part of its name.
    pub fn new(purpose: &str) -> io::Result<ScratchFolder> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("fitgpt-{purpose}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path)?;
        Ok(ScratchFolder { path })
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        // A failure to remove it does no harm.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
