//! Writes a checkpoint that nanoGPT's `train.py` and `sample.py` load. One tensor at a time is in
//! memory; the file appears under its name whole or not at all.

use super::pickled::{self, Pickled, Storage};
use super::zip_out::{ZipFile, file_bytes as zip_bytes};
use crate::export::{ExportError, Meter, Precision, check_file};
use crate::new_folder::Existing;
use crate::rounded::Rounded;
use checkpoint::{SaveError, SaveProblem, TensorInfo, TensorSource, Written, largest_bytes};
use model::{Architecture, Dims, Gpt2, Param};
use plan::StepState;
use plan::ops::GeluKind;
use serde_json::{Map, Value};
use std::error::Error;
use std::path::Path;

/// What a checkpoint says about its run.
pub struct TorchRun {
    /// The model's sizes.
    pub dims: Dims,
    /// The probability that `model_args` names; nanoGPT replaces it when it resumes.
    pub dropout: f64,
    /// The next iteration.
    pub iteration: u64,
    /// The best validation loss; infinite if there is none.
    pub best_val_loss: f64,
    /// Tokens trained on, and seconds of training, if they are known. nanoGPT ignores them.
    pub tokens: Option<u64>,
    /// See `tokens`.
    pub seconds: Option<f64>,
    /// The settings under nanoGPT's keys.
    pub config: Map<String, Value>,
    /// The optimizer's settings; none to write the model alone.
    pub optimizer: Option<TorchOptimizer>,
}

/// The settings of AdamW that a checkpoint has.
pub struct TorchOptimizer {
    /// Updates done so far.
    pub updates: u64,
    /// The learning rate, which nanoGPT replaces at once.
    pub learning_rate: f64,
    /// Weight decay of matrices.
    pub weight_decay: f64,
    /// Decay rates of the moments.
    pub betas: [f64; 2],
    /// Whether nanoGPT uses its fused kernel, as it does on GPUs.
    pub is_fused: bool,
}

/// An error of whoever supplies a tensor's content.
type FillError = Box<dyn Error + Send + Sync>;

/// The entries besides storages, with their content. PyTorch's reader asks for them.
const MARKS: [(&str, &[u8]); 4] = [
    (".format_version", b"1"),
    (".storage_alignment", b"64"),
    ("byteorder", b"little"),
    ("version", b"3\n"),
];

/// A file that is about to be written.
struct Plan<'a> {
    pickled: Pickled,
    tensors: &'a [TensorInfo],
    updates: u64,
}

impl<'a> Plan<'a> {
    fn new(run: &TorchRun, tensors: &'a [TensorInfo]) -> Result<Plan<'a>, SaveProblem> {
        let bad = |why| SaveProblem::BadTensor { name: "weights".to_owned(), why };
        let params = parameters(run.dims).ok_or_else(|| bad("have impossible sizes"))?;
        let pickled = pickled::of(run, &params, tensors)?;
        let updates = run.optimizer.as_ref().map_or(0, |optimizer| optimizer.updates);
        Ok(Plan { pickled, tensors, updates })
    }

    /// Bytes of a storage.
    fn bytes(&self, storage: Storage) -> u64 {
        match storage {
            Storage::Tensor(index) => self.tensors[index].bytes().unwrap_or(u64::MAX),
            Storage::Step => 4,
        }
    }

    fn file_bytes(&self) -> u64 {
        let storages = self.pickled.storages.iter().enumerate();
        let names: Vec<(String, u64)> =
            storages.map(|(key, &storage)| (data_name(key), self.bytes(storage))).collect();
        let marks = MARKS.map(|(name, content)| (name, content.len() as u64));
        let pickle = ("data.pkl", self.pickled.pickle.len() as u64);
        let storages = names.iter().map(|(name, bytes)| (name.as_str(), *bytes));
        zip_bytes([pickle].into_iter().chain(marks).chain(storages))
    }
}

fn data_name(key: usize) -> String {
    format!("data/{key}")
}

/// The parameters of a model, in PyTorch's order.
fn parameters(dims: Dims) -> Option<Vec<Param>> {
    Architecture::Gpt2(Gpt2 { gelu: GeluKind::Erf }).parameters(&dims).ok()
}

/// Size of the file that [`write_with`] would write.
///
/// # Errors
///
/// When a tensor is missing or has another shape than the model's sizes need.
pub fn file_bytes(path: &Path, run: &TorchRun, tensors: &[TensorInfo]) -> Result<u64, SaveError> {
    let named = |problem| SaveError { path: path.to_owned(), problem };
    Ok(Plan::new(run, tensors).map_err(named)?.file_bytes())
}

/// Writes a checkpoint whose tensors `fill` supplies one at a time, under the names of our own
/// checkpoints. `buffer` has room for the largest. [`Written::finish`] gives the file its name.
///
/// # Errors
///
/// As [`checkpoint::write`].
pub fn write_with<E: Into<FillError>>(
    path: &Path,
    run: &TorchRun,
    tensors: &[TensorInfo],
    buffer: &mut [u8],
    mut fill: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
) -> Result<Written, SaveError> {
    let named = |problem| SaveError { path: path.to_owned(), problem };
    let plan = Plan::new(run, tensors).map_err(named)?;
    let mut file = ZipFile::create(path, plan.file_bytes())?;
    file.add("data.pkl", &plan.pickled.pickle)?;
    for (name, content) in MARKS {
        file.add(name, content)?;
    }
    let given = buffer.len() as u64;
    for (key, &storage) in plan.pickled.storages.iter().enumerate() {
        match storage {
            Storage::Step => file.add(&data_name(key), &(plan.updates as f32).to_le_bytes())?,
            Storage::Tensor(index) => {
                let needed = plan.bytes(storage);
                let content = usize::try_from(needed).ok().and_then(|top| buffer.get_mut(..top));
                let content =
                    content.ok_or_else(|| named(SaveProblem::BufferTooSmall { needed, given }))?;
                fill(index, content).map_err(|source| {
                    let tensor = tensors[index].name.clone();
                    named(SaveProblem::Fill { tensor, source: source.into() })
                })?;
                file.add(&data_name(key), content)?;
            }
        }
    }
    file.finish()
}

/// Writes a checkpoint from a source. If the source has no moments, so does the checkpoint: nanoGPT
/// can sample it, but not resume it. `existing` says what happens to a file that has the name when
/// the new one is complete. `report` gets the bytes done and the bytes in all, and returns false to
/// stop. Returns the size of the file.
///
/// # Errors
///
/// When the source cannot be read, the file cannot be written, or the caller stops.
pub fn write(
    path: &Path,
    source: &dyn TensorSource,
    run: &mut TorchRun,
    (precision, existing): (Precision, Existing),
    report: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<u64, ExportError> {
    match updates(source)? {
        Some(updates) => {
            if let Some(optimizer) = &mut run.optimizer {
                optimizer.updates = updates;
            }
        }
        None => run.optimizer = None,
    }
    let source = Rounded::new(source, precision);
    let tensors = source.tensors().to_vec();
    let mut buffer = Vec::new();
    let largest = largest_bytes(&tensors).and_then(|bytes| usize::try_from(bytes).ok());
    match largest.map(|bytes| (bytes, buffer.try_reserve_exact(bytes))) {
        Some((bytes, Ok(()))) => buffer.resize(bytes, 0),
        _ => {
            let what = "there is no memory for the largest tensor".to_owned();
            return Err(ExportError::Refused { what });
        }
    }
    let total = tensors.iter().filter_map(TensorInfo::bytes).sum();
    let mut meter = Meter::start(total, report)?;
    let mut failed = None;
    let written = write_with(path, run, &tensors, &mut buffer, |index, content| {
        let filled = source.fill(index, content).and_then(|()| meter.add(content.len()));
        filled.map_err(|error| {
            failed = Some(error);
            "the source failed"
        })
    });
    match failed {
        Some(error) => Err(error),
        None => {
            let written = written?;
            check_file(path, existing)?;
            Ok(written.finish()?)
        }
    }
}

/// How often the parameters were updated; none if the source has no moments.
fn updates(source: &dyn TensorSource) -> Result<Option<u64>, ExportError> {
    let Some(index) = source.find("state") else {
        return Ok(None);
    };
    let mut bytes = [[0; 4]; StepState::WORDS];
    source.read(index, bytes.as_flattened_mut())?;
    Ok(Some(StepState::from_words(&bytes.map(u32::from_le_bytes)).updates))
}
