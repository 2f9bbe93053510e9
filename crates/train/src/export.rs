//! A checkpoint on its way out: what it says about its model, and the same model in a file of ours.

use crate::error::TrainError;
use crate::found;
use crate::host::room;
use crate::save_ckpt;
use crate::saved_run::SavedRun;
use checkpoint::largest_bytes;
use interop::{Existing, ExportError, Precision, torch};
use plan::ops::GeluKind;
use std::path::Path;

/// A checkpoint to export, opened.
pub struct Export {
    /// The checkpoint.
    pub saved: SavedRun,
    /// Why its ids have no text; none if they have.
    pub no_tokenizer: Option<String>,
    /// Its form of GELU.
    pub gelu: GeluKind,
    /// Its parameters, as nanoGPT counts them.
    pub parameters: u64,
    /// Tokens that its run has trained on; none if the file does not say.
    pub tokens_seen: Option<u64>,
}

impl Export {
    /// Opens what a name means: a checkpoint's file, or a run's folder.
    pub fn open(name: &Path) -> Result<Export, TrainError> {
        let mut saved = found::open(name)?;
        let tokenizer = saved.tokenizer();
        let no_tokenizer = tokenizer.as_ref().err().map(TrainError::to_string);
        saved.document.tokenizer = tokenizer.ok();
        let gelu = saved.pretrained().gelu;
        let architecture = model::Architecture::from(model::Gpt2 { gelu });
        let parameters = architecture.reported_parameters(&saved.document.dims);
        let parameters = parameters.map_err(search::SearchError::from)?;
        let tokens_seen = saved.document.tokens_seen();
        Ok(Export { saved, no_tokenizer, gelu, parameters, tokens_seen })
    }

    /// Writes the model as our own file, with its moments if it has them; returns the file's size.
    /// `existing` says what happens to a file that has the name when the new one is complete.
    /// `report` gets the bytes written so far and in all, and returns whether to go on.
    pub fn write_native(
        &mut self,
        path: &Path,
        existing: Existing,
        report: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<u64, TrainError> {
        let text = self.saved.document.to_json()?;
        let tensors = self.saved.tensors()?;
        let infos = tensors.tensors().to_vec();
        let total = checkpoint::file_bytes(path, &text, &infos)?;
        let mut buffer = room(largest_bytes(&infos).unwrap_or(u64::MAX), "the largest tensor")?;
        if !report(0, total) {
            return Err(ExportError::Stopped.into());
        }
        let (mut done, mut is_stopped) = (0, false);
        let fill = |index: usize, content: &mut [u8]| {
            done += content.len() as u64;
            if !report(done, total) {
                is_stopped = true;
                return Err(Box::<dyn std::error::Error + Send + Sync>::from("stopped"));
            }
            Ok(tensors.read(index, content)?)
        };
        match checkpoint::write(path, &text, &infos, &mut buffer, fill) {
            Err(_) if is_stopped => Err(ExportError::Stopped.into()),
            written => {
                let written = written?;
                interop::check_file(path, existing)?;
                Ok(written.finish()?)
            }
        }
    }
}

impl Export {
    /// Writes the model as nanoGPT's `ckpt.pt`, with its moments if it has them; returns the file's
    /// size. `existing` and `report` as for [`Export::write_native`].
    pub fn write_ckpt(
        &mut self,
        path: &Path,
        (precision, existing): (Precision, Existing),
        report: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<u64, TrainError> {
        let mut run = save_ckpt::exported(&self.saved.document, self.gelu);
        Ok(torch::write(path, self.saved.tensors()?, &mut run, (precision, existing), report)?)
    }
}
