//! Which file a name means. A name is a checkpoint's file, a run's folder or a folder of Hugging
//! Face's. Every command that reads a checkpoint finds it here.

use crate::error::TrainError;
use crate::nearby;
use crate::runlog;
use crate::save::{RunProgress, best_ckpt_path, best_path, ckpt_path, last_path};
use crate::save_ckpt;
use crate::saved_run::SavedRun;
use interop::hf;
use std::path::{Path, PathBuf};

/// The checkpoints that a run's folder may have.
pub fn files(folder: &Path) -> [PathBuf; 3] {
    [last_path(folder), best_path(folder), ckpt_path(folder)]
}

/// Whether a folder holds a run.
pub fn is_run(folder: &Path) -> bool {
    files(folder).iter().any(|file| file.exists())
}

/// Whether a file is a checkpoint that the run in its folder has written: it has the name of one,
/// and the run's log or another checkpoint is beside it.
pub fn is_file_of_run(file: &Path) -> bool {
    let Some(folder) = file.parent().filter(|_| file.symlink_metadata().is_ok()) else {
        return false;
    };
    let files = files(folder);
    let is_other = |path: &PathBuf| path.exists() && path.file_name() != file.file_name();
    files.iter().any(|path| path.file_name() == file.file_name())
        && (files.iter().any(is_other) || runlog::path(folder).exists())
}

/// Opens the checkpoint to sample, evaluate or export. In a folder that is the best one, or the
/// last one if there is no best, or nanoGPT's if it is newer.
pub fn open(name: &Path) -> Result<SavedRun, TrainError> {
    let newest = newest(name, &[best_path, last_path])?;
    let best = if name.is_dir() { best_beside(&newest) } else { None };
    Ok(best.unwrap_or(newest))
}

/// The best state of the run whose newest one is `ckpt.pt`, if that is another.
fn best_beside(newest: &SavedRun) -> Option<SavedRun> {
    let folder = newest.path.parent()?;
    let best = best_ckpt_path(folder);
    let is_of_run = newest.path == ckpt_path(folder)
        && save_ckpt::is_best(&best, newest.document.progress.best_val_loss);
    let mut best = is_of_run.then(|| SavedRun::open(&best)).and_then(Result::ok)?;
    let (file, iteration) = (best.path.display(), newest.document.progress.iteration);
    let text = format!("using {file}, the best state; ckpt.pt is at iteration {iteration}");
    best.notices.extend(newest.notices.iter().cloned().chain([text]));
    Some(best)
}

/// Opens the checkpoint that a run goes on from. In a folder that is the last one, or nanoGPT's if
/// it is newer. A model without moments starts at iteration 0.
pub fn open_to_resume(name: &Path) -> Result<SavedRun, TrainError> {
    let mut saved = newest(name, &[last_path])?;
    let file = saved.path.display();
    if !saved.has_moments {
        saved.document.progress = RunProgress::START;
        let text = format!("{file} has no optimizer state: fine-tuning from iteration 0");
        saved.notices.push(text);
    } else if saved.is_foreign() {
        let text = format!(
            "{file}: as in nanoGPT, the model, its optimizer (also weight_decay, beta1 and beta2) \
             and the iteration come from the file, all other settings from the command line"
        );
        saved.notices.push(text);
    }
    Ok(saved)
}

/// Opens the first of our own files that the folder has, or nanoGPT's if its iteration is higher.
fn newest(name: &Path, ours: &[fn(&Path) -> PathBuf]) -> Result<SavedRun, TrainError> {
    if name.is_file() || hf::is_folder(name) && !is_run(name) {
        return SavedRun::open(name);
    }
    let first = ours.iter().map(|file| file(name)).find(|path| path.exists());
    let ckpt = Some(ckpt_path(name)).filter(|path| path.exists());
    let (first, ckpt) = match (first, ckpt) {
        (Some(only), None) | (None, Some(only)) => return SavedRun::open(&only),
        (None, None) => return Err(nearby::no_checkpoint(name)),
        (Some(first), Some(ckpt)) => (first, ckpt),
    };
    // The best one may be older than the last, which says how far the run is.
    let last = Some(last_path(name)).filter(|last| *last != first && last.exists());
    let mut ours = match (SavedRun::open(&first), SavedRun::open(&ckpt)) {
        (Ok(ours), _) => ours,
        (Err(damage), Ok(mut theirs)) => {
            theirs.notices.push(format!("using {}: {damage}", ckpt.display()));
            return Ok(theirs);
        }
        (Err(damage), Err(_)) => return Err(damage),
    };
    let iteration = match &last {
        Some(last) => SavedRun::open(last)
            .map_or(ours.document.progress.iteration, |last| last.document.progress.iteration),
        None => ours.document.progress.iteration,
    };
    match SavedRun::open(&ckpt) {
        // A run that resumed from weights alone counts from 0 again: its own file is the newer one.
        Ok(mut theirs) if theirs.has_moments && theirs.document.progress.iteration > iteration => {
            theirs.notices.push(compared(&ckpt, &theirs, iteration));
            Ok(theirs)
        }
        Ok(theirs) => {
            ours.notices.push(compared(&first, &theirs, iteration));
            Ok(ours)
        }
        Err(error) => {
            ours.notices.push(format!("using {}: {error}", first.display()));
            Ok(ours)
        }
    }
}

/// Says which of two checkpoints is used.
fn compared(used: &Path, theirs: &SavedRun, ours: u64) -> String {
    let (used, at) = (used.display(), theirs.document.progress.iteration);
    format!("using {used}: ckpt.pt is at iteration {at}, fitgpt's own checkpoint at {ours}")
}
