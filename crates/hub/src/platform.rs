//! What only some systems have: free space of a disk, links, permissions of new files, and one of
//! their errors.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Free bytes on the disk of a folder; none if its file system does not report them, as some of
/// FUSE.
///
/// # Errors
///
/// The operating system's.
pub fn free_bytes(folder: &Path) -> io::Result<Option<u64>> {
    let stats = rustix::fs::statvfs(folder)?;
    Ok((stats.f_blocks > 0).then(|| stats.f_bavail.saturating_mul(stats.f_frsize)))
}

/// Makes a link.
///
/// # Errors
///
/// The operating system's; some file systems have no links.
pub fn link(target: &Path, path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, path)
}

/// Options for a file that the group may write to, too.
pub fn for_the_group() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o664);
    options
}

/// Whether an error is ENOLCK, which NFS gives where its lock service does not run.
pub fn is_without_lock_service(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NOLCK.raw_os_error())
}
