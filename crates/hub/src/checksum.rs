//! The checksums by which the hub names the content of files.

use crate::error::{HubError, Result};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Bytes read at a time.
const BUFFER: usize = 256 << 10;

/// What a file's content must hash to, in lower-case hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// SHA-256 of the bytes: large files.
    Sha256(String),
    /// git's SHA-1 of a blob, which covers the length: files that are kept in git itself.
    GitBlob(String),
}

impl Checksum {
    /// The checksum that an ETag of the hub is; `None` if it is something else.
    #[must_use]
    pub fn of_etag(etag: &str) -> Option<Checksum> {
        let is_hex = etag.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        match etag.len() {
            64 if is_hex => Some(Checksum::Sha256(etag.to_owned())),
            40 if is_hex => Some(Checksum::GitBlob(etag.to_owned())),
            _ => None,
        }
    }

    /// Checks a complete file; returns what is wrong with it.
    pub(crate) fn check(&self, path: &Path, is_over: &dyn Fn() -> bool) -> Result<Option<String>> {
        let (name, found, wanted) = match self {
            Checksum::Sha256(wanted) => ("sha256", digest(Sha256::new(), path, is_over)?, wanted),
            Checksum::GitBlob(wanted) => {
                let size = path.metadata().map_err(HubError::io(path, "read its size"))?.len();
                let hash = Sha1::new_with_prefix(format!("blob {size}\0"));
                ("git hash", digest(hash, path, is_over)?, wanted)
            }
        };
        let is_same = found == *wanted;
        Ok((!is_same).then(|| format!("its {name} is {found}, but should be {wanted}")))
    }
}

/// The hash of a file's bytes, after what is already in it.
fn digest<D: Digest>(mut hash: D, path: &Path, is_over: &dyn Fn() -> bool) -> Result<String> {
    let reading = HubError::io(path, "read it for its checksum");
    let mut file = File::open(path).map_err(&reading)?;
    let mut buffer = vec![0; BUFFER];
    loop {
        if is_over() {
            return Err(HubError::Stopped);
        }
        match file.read(&mut buffer).map_err(&reading)? {
            0 => return Ok(hex(&hash.finalize())),
            count => hash.update(&buffer[..count]),
        }
    }
}

/// Bytes in hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_known_by_both_hashes() {
        let path = std::env::temp_dir().join(format!("fitgpt-checksum-{}", std::process::id()));
        std::fs::write(&path, "hello\n").unwrap();
        // `git hash-object` and `sha256sum` of this file.
        let git = Checksum::of_etag("ce013625030ba8dba906f756967f9e9ca394464a").unwrap();
        let sha = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        let sha = Checksum::of_etag(sha).unwrap();
        assert_eq!(git.check(&path, &|| false).unwrap(), None);
        assert_eq!(sha.check(&path, &|| false).unwrap(), None);
        std::fs::write(&path, "hellO\n").unwrap();
        let said = git.check(&path, &|| false).unwrap().unwrap();
        assert!(said.starts_with("its git hash is "), "{said}");
        assert!(sha.check(&path, &|| false).unwrap().unwrap().contains("but should be 5891b5"));
        assert!(matches!(sha.check(&path, &|| true), Err(HubError::Stopped)));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn other_tags_are_no_checksums() {
        for tag in ["", "abc", "CE013625030BA8DBA906F756967F9E9CA394464A", &"g".repeat(64)] {
            assert_eq!(Checksum::of_etag(tag), None, "{tag}");
        }
    }
}
