//! nanoGPT's `ckpt.pt`: a zip file of PyTorch with one pickle and one entry for each storage.
//!
//! `archive.rs` reads the zip file, `names.rs` lists what the pickle may name, `view.rs` is a
//! tensor of it, `nanogpt.rs` what a checkpoint of nanoGPT means. `source.rs` reads one tensor at a
//! time. The way out: `write.rs`, with the pickle from `pickled.rs` and the zip file of
//! `zip_out.rs`.

mod archive;
mod names;
mod view;
mod source;
mod nanogpt;

mod write;
mod pickled;
mod zip_out;

use crate::error::{ForeignError, ForeignProblem};
use crate::foreign::ForeignModel;
use std::fs::File;
use std::io::Read;
use std::path::Path;

pub use write::{TorchOptimizer, TorchRun, file_bytes, write, write_with};

/// The first bytes of a zip file that has entries.
const ZIP: [u8; 4] = *b"PK\x03\x04";

/// The first bytes of a file that PyTorch before 1.6 wrote: a pickle of its magic number.
const LEGACY: [u8; 14] =
    [0x80, 2, 0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];

/// What a file is, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Zip,
    /// From PyTorch before 1.6.
    Legacy,
    /// What Python's `pickle.dump` writes.
    Pickle,
    /// What Git has in place of a large file.
    LfsPointer,
    Other,
}

/// Whether this is one of PyTorch's files, or a pickle that may be taken for one, by its first
/// bytes or by its name.
#[must_use]
pub fn is_torch(path: &Path) -> bool {
    let named = path.extension().is_some_and(|ending| ending == "pt" || ending == "pth");
    named || matches!(kind(path), Kind::Zip | Kind::Legacy | Kind::Pickle)
}

fn kind(path: &Path) -> Kind {
    let mut first = Vec::new();
    // Opening a pipe would wait for a writer.
    let is_read = path.is_file()
        && File::open(path)
            .and_then(|file| file.take(LEGACY.len() as u64).read_to_end(&mut first))
            .is_ok();
    match &first[..] {
        _ if !is_read => Kind::Other,
        start if start.starts_with(&ZIP) => Kind::Zip,
        start if start == LEGACY => Kind::Legacy,
        b"version https:" => Kind::LfsPointer,
        // With zeros here, it is the length of a safetensors header.
        [0x80, 2..=5, _, rest @ ..] if rest.iter().take(5).any(|&byte| byte != 0) => Kind::Pickle,
        _ => Kind::Other,
    }
}

/// Opens a checkpoint of nanoGPT. Checks everything except the tensors' content.
///
/// # Errors
///
/// When the file cannot be read, is damaged, holds something else, or asks for more than tensors
/// and plain values.
pub fn open(path: &Path) -> Result<ForeignModel, ForeignError> {
    let named = |problem| ForeignError { path: path.to_owned(), problem };
    let refused = |what: &str| Err(named(ForeignProblem::Refused { what: what.to_owned() }));
    match kind(path) {
        Kind::Legacy => refused(
            "this file was written by PyTorch before 1.6; convert it with a newer one: \
             torch.save(torch.load('old.pt', weights_only=True), 'ckpt.pt')",
        ),
        Kind::Pickle => refused(
            "this is a plain pickle, as pickle.dump writes it, and no checkpoint: torch.save \
             writes a zip file; give the ckpt.pt that train.py wrote",
        ),
        Kind::LfsPointer => refused(
            "this is a Git LFS pointer, not the file itself: run `git lfs pull` in its folder",
        ),
        Kind::Zip | Kind::Other => {
            let archive = archive::Archive::open(path).map_err(named)?;
            nanogpt::read(path, archive).map_err(named)
        }
    }
}
