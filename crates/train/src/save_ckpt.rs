//! A run's state as nanoGPT's `ckpt.pt`. It has weights, moments, the iteration and the settings,
//! but no position in the data, no plan and no loss scale: a run that resumes from it continues as
//! nanoGPT's would, not bit for bit.

use crate::document::Document;
use crate::engine::Engine;
use crate::error::TrainError;
use crate::save::{Contents, infos};
use checkpoint::Written;
use interop::torch::{self, TorchOptimizer, TorchRun};
use model::AdamW;
use plan::ops::GeluKind;
use serde_json::Value;
use spec::RunSpec;
use std::path::Path;

/// The optimizer's settings.
struct Settings {
    dropout: f64,
    learning_rate: f64,
    weight_decay: f64,
    betas: [f64; 2],
}

/// What the file says about a run.
fn described(document: &Document, gelu: GeluKind, settings: Settings, updates: u64) -> TorchRun {
    let mut config = document.config.as_object().cloned().unwrap_or_default();
    let gelu = if gelu == GeluKind::Tanh { "tanh" } else { "erf" };
    config.insert("gelu".to_owned(), Value::from(gelu));
    let Settings { dropout, learning_rate, weight_decay, betas } = settings;
    let is_fused = document.device.starts_with("cuda");
    TorchRun {
        dims: document.dims,
        dropout,
        iteration: document.progress.iteration,
        best_val_loss: document.progress.best_val_loss,
        tokens: document.tokens_seen(),
        seconds: document.progress.seconds,
        config,
        optimizer: Some(TorchOptimizer { updates, learning_rate, weight_decay, betas, is_fused }),
    }
}

/// What the file says about a run that trains now.
fn training(document: &Document, spec: &RunSpec, updates: u64) -> TorchRun {
    let settings = Settings {
        dropout: spec.dropout,
        learning_rate: spec.learning_rate,
        weight_decay: spec.weight_decay,
        betas: [spec.beta1, spec.beta2],
    };
    described(document, spec.gelu_kind(), settings, updates)
}

/// What the file says about a saved run, whose settings are in its document. Those that it lacks
/// are nanoGPT's defaults.
pub fn exported(document: &Document, gelu: GeluKind) -> TorchRun {
    let found =
        |key: &str, usual: f64| document.config.get(key).and_then(Value::as_f64).unwrap_or(usual);
    let AdamW { beta1, beta2, weight_decay, .. } = AdamW::NANOGPT;
    let settings = Settings {
        dropout: found("dropout", 0.0),
        learning_rate: found("learning_rate", 6e-4),
        weight_decay: found("weight_decay", weight_decay),
        betas: [found("beta1", beta1), found("beta2", beta2)],
    };
    described(document, gelu, settings, 0)
}

/// Writes everything into a temporary file, like [`crate::save::write`].
pub fn write(
    engine: &mut Engine,
    path: &Path,
    document: &Document,
    spec: &RunSpec,
    buffer: &mut [u8],
) -> Result<Written, TrainError> {
    let run = training(document, spec, engine.state()?.updates);
    let mut contents = Contents::new(engine);
    let infos = contents.infos.clone();
    let fill = |index: usize, content: &mut [u8]| contents.fill(index, content);
    let written = torch::write_with(path, &run, &infos, buffer, fill);
    contents.checked(written)
}

/// Whether a file has the state with this validation loss, the best so far.
pub fn is_best(file: &Path, best_val_loss: f64) -> bool {
    file.exists() && torch::open(file).is_ok_and(|found| found.best_val_loss == Some(best_val_loss))
}

/// Size of the file that [`write()`] would write.
pub fn file_bytes(
    engine: &Engine,
    document: &Document,
    spec: &RunSpec,
    path: &Path,
) -> Result<u64, TrainError> {
    Ok(torch::file_bytes(path, &training(document, spec, 0), &infos(engine))?)
}
