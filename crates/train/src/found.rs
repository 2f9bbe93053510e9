//! Which file a name means. A name is a checkpoint's file or a run's folder. Every command that
//! reads a checkpoint finds it here.

use crate::error::TrainError;
use crate::save::{best_path, last_path};
use crate::saved_run::SavedRun;
use std::path::{Path, PathBuf};

/// Opens the checkpoint to sample, evaluate or export. In a folder that is the best one, or the
/// last one if there is no best.
pub fn open(name: &Path) -> Result<SavedRun, TrainError> {
    first_of(name, &[best_path, last_path])
}

/// Opens the checkpoint that a run goes on from. In a folder that is the last one.
pub fn open_to_resume(name: &Path) -> Result<SavedRun, TrainError> {
    first_of(name, &[last_path])
}

fn first_of(name: &Path, files: &[fn(&Path) -> PathBuf]) -> Result<SavedRun, TrainError> {
    if name.is_file() {
        return SavedRun::open(name);
    }
    match files.iter().map(|file| file(name)).find(|path| path.exists()) {
        Some(path) => SavedRun::open(&path),
        None => Err(TrainError::NoCheckpoint { path: name.to_path_buf() }),
    }
}
