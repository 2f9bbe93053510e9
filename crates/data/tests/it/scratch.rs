//! A folder for one test, removed when the test ends.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("fitgpt-data-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file and returns its path.
    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Tokens as a headerless file holds them.
pub fn raw(tokens: &[u16]) -> Vec<u8> {
    tokens.iter().flat_map(|token| token.to_le_bytes()).collect()
}

/// Tokens as a shard holds them.
pub fn shard(tokens: &[u16]) -> Vec<u8> {
    shard_with(20240520, 1, tokens.len() as i32, tokens)
}

/// A shard with any header.
pub fn shard_with(magic: i32, version: i32, count: i32, tokens: &[u16]) -> Vec<u8> {
    let mut bytes = vec![0; 1024];
    for (place, number) in [magic, version, count].into_iter().enumerate() {
        bytes[place * 4..place * 4 + 4].copy_from_slice(&number.to_le_bytes());
    }
    bytes.extend(raw(tokens));
    bytes
}
