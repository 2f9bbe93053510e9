//! A run's checkpoint: weights, moments and step state by name, and one document about the run. It
//! is written at every evaluation. A run that is loaded from it continues bit for bit.

pub use crate::document::Document;
use crate::document::mismatch;
use crate::engine::Engine;
use crate::error::TrainError;
use crate::host::{are_within, room};
use crate::outer::{self, Outer};
pub use crate::progress::RunProgress;
use crate::shards::{self, Gathering};
use crate::weights;
use checkpoint::{Dtype, Reader, SaveError, TensorInfo, TensorSource, Written};
use plan::{TensorId, half};
use search::HostBytes;
use spec::{CheckpointFormat, RunSpec};
use std::error::Error;
use std::path::{Path, PathBuf};

/// The square of a larger weight overflows an f32: then layer norms output zeros, so that the loss
/// may be finite although the gradients are not. Healthy weights are many powers of ten smaller.
const LARGEST_WEIGHT: f32 = (1u64 << 62) as f32;

/// The file of the newest checkpoint.
pub fn last_path(out_dir: &Path) -> PathBuf {
    out_dir.join("last.safetensors")
}

/// The file of the checkpoint with the best validation loss.
pub fn best_path(out_dir: &Path) -> PathBuf {
    out_dir.join("best.safetensors")
}

/// nanoGPT's checkpoint.
pub fn ckpt_path(out_dir: &Path) -> PathBuf {
    out_dir.join("ckpt.pt")
}

/// The best state in nanoGPT's format, if `ckpt.pt` holds a newer one. That happens when a run is
/// stopped that otherwise keeps only the best.
pub fn best_ckpt_path(out_dir: &Path) -> PathBuf {
    out_dir.join("ckpt-best.pt")
}

/// The file of the newest checkpoint in the format that a run writes.
pub fn newest_path(spec: &RunSpec) -> PathBuf {
    let out_dir = Path::new(&spec.out_dir);
    match spec.checkpoint_format {
        CheckpointFormat::Native => last_path(out_dir),
        CheckpointFormat::Ckpt => ckpt_path(out_dir),
    }
}

/// Whether a source has the optimizer's moments and the step state, without which it is a model
/// alone.
pub fn has_moments(tensors: &dyn TensorSource) -> bool {
    tensors.tensors().iter().any(|tensor| !tensor.name.starts_with(WEIGHTS))
}

/// What the names of weights start with.
const WEIGHTS: &str = "weights/";

/// A tensor of a checkpoint.
struct SavedTensor {
    info: TensorInfo,
    id: Place,
}

/// Where a tensor of a checkpoint is.
#[derive(Clone, Copy)]
enum Place {
    /// A parameter's weights.
    Weights(usize),
    /// Another tensor on the backend.
    Tensor(TensorId),
    /// In the outer step's state: the momentum of a parameter.
    OuterMomentum(usize),
}

/// The checkpoint's name of a number format.
fn stored_dtype(dtype: plan::Dtype) -> Dtype {
    match dtype {
        // In a checkpoint, halves are joined.
        plan::Dtype::F32 | plan::Dtype::U16 => Dtype::F32,
        plan::Dtype::Bf16 => Dtype::BF16,
        plan::Dtype::F16 => Dtype::F16,
        plan::Dtype::I32 => Dtype::I32,
        plan::Dtype::U32 => Dtype::U32,
    }
}

/// Every tensor of a checkpoint: the weights, then one kind of state after the other, so that ranks
/// put each together once. The prefix of a name is the tensor's role. Gradients are zero between
/// iterations and are not saved.
fn tensors(engine: &Engine) -> Vec<SavedTensor> {
    let (program, schedule) = (engine.program(), &engine.plan().schedule);
    let mut all = Vec::new();
    let mut add = |name: String, tensor: TensorId, id: Place| {
        let tensor = schedule.tensors.get(tensor);
        let info = TensorInfo::new(name, stored_dtype(tensor.dtype), tensor.shape.dims());
        all.push(SavedTensor { info, id });
    };
    for (index, row) in program.parameters.iter().enumerate() {
        add(format!("{WEIGHTS}{}", row.param.name), row.weight, Place::Weights(index));
    }
    let kinds = program.parameters.first().map_or(0, |row| row.state.len());
    for kind in 0..kinds {
        for row in &program.parameters {
            let (kind, id) = row.state[kind];
            add(format!("{kind}/{}", row.param.name), id, Place::Tensor(id));
        }
    }
    add("state".to_string(), program.state, Place::Tensor(program.state));
    if engine.has_outer() {
        let infos = Outer::infos(program).into_iter().enumerate();
        all.extend(infos.map(|(index, info)| {
            let id = Place::OuterMomentum(index);
            SavedTensor { info, id }
        }));
    }
    all
}

/// Allocates the buffer that [`write()`] and [`load`] need, of the largest tensor's size.
pub fn buffer(host: &HostBytes) -> Result<Vec<u8>, TrainError> {
    room(host.checkpoint_tensor.get(), "saving")
}

/// The tensors of a running engine, on their way into a file.
pub(crate) struct Contents<'a> {
    engine: &'a mut Engine,
    ids: Vec<Place>,
    gathering: Gathering,
    pub infos: Vec<TensorInfo>,
    /// The first tensor whose values are broken.
    broken: Option<String>,
}

impl<'a> Contents<'a> {
    pub fn new(engine: &'a mut Engine) -> Contents<'a> {
        let (infos, ids) = tensors(engine).into_iter().map(|kept| (kept.info, kept.id)).unzip();
        Contents { engine, ids, gathering: Gathering::default(), infos, broken: None }
    }

    /// Reads a tensor; fails if its values are broken.
    pub fn fill(
        &mut self,
        index: usize,
        content: &mut [u8],
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        match self.ids[index] {
            Place::Weights(index) => {
                let (backend, program) = self.engine.parts();
                let row = &program.parameters[index];
                self.gathering.prepare(backend, program, row.weight)?;
                weights::read(backend, row, content)?;
            }
            Place::Tensor(id) => {
                let (backend, program) = self.engine.parts();
                self.gathering.prepare(backend, program, id)?;
                backend.read(id, content)?;
            }
            Place::OuterMomentum(index) => {
                self.engine.with_outer(|outer, engine| outer.fill(engine, index, content))?;
            }
        }
        let TensorInfo { name, dtype, .. } = &self.infos[index];
        let largest = if name.starts_with(WEIGHTS) { LARGEST_WEIGHT } else { f32::MAX };
        if are_within(largest, *dtype, content) {
            return Ok(());
        }
        self.broken = Some(name.clone());
        Err("its values are broken".into())
    }

    /// What was written, or which tensor is broken.
    pub fn checked<T>(self, written: Result<T, SaveError>) -> Result<T, TrainError> {
        let (backend, program) = self.engine.parts();
        shards::clear(backend, program)?;
        match self.broken {
            Some(tensor) => Err(TrainError::BrokenWeights { tensor }),
            None => Ok(written?),
        }
    }
}

/// The tensors of a checkpoint.
pub(crate) fn infos(engine: &Engine) -> Vec<TensorInfo> {
    tensors(engine).into_iter().map(|kept| kept.info).collect()
}

/// Bytes of the tensors of a checkpoint: nearly all of the file, without its document.
pub(crate) fn tensor_bytes(engine: &Engine) -> u64 {
    infos(engine).iter().filter_map(TensorInfo::bytes).sum()
}

/// Writes everything into a temporary file. The old file survives any failure; broken weights or
/// moments are one. [`Written::finish`] puts the new one in its place. `buffer` is from [`buffer`].
pub fn write(
    engine: &mut Engine,
    path: &Path,
    document: &Document,
    buffer: &mut [u8],
) -> Result<Written, TrainError> {
    let text = document.to_json()?;
    let mut contents = Contents::new(engine);
    let infos = contents.infos.clone();
    let fill = |index: usize, content: &mut [u8]| contents.fill(index, content);
    let written = checkpoint::write(path, &text, &infos, buffer, fill);
    contents.checked(written)
}

/// Size of the file that [`write()`] would write.
pub fn file_bytes(engine: &Engine, document: &Document, path: &Path) -> Result<u64, TrainError> {
    Ok(checkpoint::file_bytes(path, &document.to_json()?, &infos(engine))?)
}

/// Opens a checkpoint and reads its document.
pub fn open(path: &Path) -> Result<(Reader, Document), TrainError> {
    let reader = Reader::open(path)?;
    let document = Document::parse(path, reader.document())?;
    Ok((reader, document))
}

/// Reads a stored tensor into the beginning of the buffer, in the wanted type. One run may keep its
/// moments in 16 bits, and the run that resumes from it in 32. False if the types do not match.
fn read_as(
    reader: &dyn TensorSource,
    index: usize,
    wanted: Dtype,
    content: &mut [u8],
) -> Result<bool, TrainError> {
    let stored = reader.tensors()[index].dtype;
    match (stored, wanted) {
        (Dtype::BF16, Dtype::F32) => {
            // Read into the second half, then widen from the front: nothing is overwritten unread.
            let half = content.len() / 2;
            reader.read(index, &mut content[half..])?;
            for element in 0..half / 2 {
                let from = half + 2 * element;
                let [low, high] = [content[from], content[from + 1]];
                content[4 * element..4 * element + 4].copy_from_slice(&[0, 0, low, high]);
            }
        }
        (stored, wanted) if stored == wanted => reader.read(index, content)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Converts f32 to a 16-bit format, in place.
fn narrow(wanted: Dtype, content: &mut [u8]) {
    let round = if wanted == Dtype::F16 { half::to_f16 } else { half::to_bf16 };
    for element in 0..content.len() / 4 {
        let word = [0, 1, 2, 3].map(|byte| content[4 * element + byte]);
        let half = round(f32::from_le_bytes(word)).to_le_bytes();
        content[2 * element..2 * element + 2].copy_from_slice(&half);
    }
}

/// Loads a checkpoint into the engine. An engine that only samples has no moments. If the
/// checkpoint is a model alone, moments and step state stay as they are. `buffer` is from
/// [`buffer`]; nothing else of a tensor's size is allocated.
pub fn load(
    engine: &mut Engine,
    reader: &dyn TensorSource,
    path: &Path,
    buffer: &mut [u8],
) -> Result<(), TrainError> {
    match has_moments(reader) {
        true => load_some(engine, reader, path, buffer, |_| true),
        false => load_weights(engine, reader, path, buffer),
    }
}

/// Loads the weights of a checkpoint; moments and step state stay as they are.
pub fn load_weights(
    engine: &mut Engine,
    reader: &dyn TensorSource,
    path: &Path,
    buffer: &mut [u8],
) -> Result<(), TrainError> {
    load_some(engine, reader, path, buffer, |name| name.starts_with(WEIGHTS))
}

fn load_some(
    engine: &mut Engine,
    reader: &dyn TensorSource,
    path: &Path,
    buffer: &mut [u8],
    is_wanted: impl Fn(&str) -> bool,
) -> Result<(), TrainError> {
    for SavedTensor { info, id } in tensors(engine) {
        engine.step();
        if !is_wanted(&info.name) {
            continue;
        }
        let found = reader.find(&info.name).map(|index| (index, &reader.tensors()[index]));
        if found.is_none() && info.name.starts_with(outer::PREFIX) {
            continue; // a run that begins to train with an outer step
        }
        let (at, stored) = found.ok_or_else(|| {
            mismatch(path, format!("it has no tensor {}; it is not a complete run", info.name))
        })?;
        let [have, want] = [stored, &info].map(|tensor| {
            (
                tensor.bytes().unwrap_or(u64::MAX),
                format!("{} {:?}", tensor.dtype.name(), tensor.shape),
            )
        });
        let refused = || {
            let (have, want) = (&have.1, &want.1);
            mismatch(path, format!("its {} is {have}, but this run needs {want}", info.name))
        };
        if stored.shape != info.shape || have.0.max(want.0) > buffer.len() as u64 {
            return Err(refused());
        }
        let is_wide = stored.dtype == Dtype::F32;
        // A weight is narrowed where it is written, together with its copy.
        let format = match id {
            Place::Weights(_) if is_wide => Dtype::F32,
            _ => info.dtype,
        };
        let bytes = if format == stored.dtype { have.0 } else { want.0 } as usize;
        if is_wide && matches!(format, Dtype::BF16 | Dtype::F16) {
            reader.read(at, &mut buffer[..have.0 as usize])?;
            narrow(format, &mut buffer[..have.0 as usize]);
        } else if !read_as(reader, at, format, &mut buffer[..bytes])? {
            return Err(refused());
        }
        restore(engine, id, format, &buffer[..bytes])?;
    }
    engine.settle_loss_scale()
}

/// Puts what a checkpoint has of a tensor in its place.
fn restore(
    engine: &mut Engine,
    id: Place,
    format: Dtype,
    content: &[u8],
) -> Result<(), TrainError> {
    let (backend, program) = engine.parts();
    match id {
        Place::Weights(index) if format == Dtype::F32 => {
            weights::write_all(backend, program, &program.parameters[index], content)?;
        }
        Place::Weights(index) => backend.write(program.parameters[index].weight, content)?,
        Place::Tensor(id) => shards::write_at(backend, program, id, 0, content)?,
        Place::OuterMomentum(index) => {
            engine.with_outer(|outer, engine| outer.restore(engine, index, content))?;
        }
    }
    Ok(())
}
