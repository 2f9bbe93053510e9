//! A run on disk: weights, moments and step state by name, and one document that says where the run
//! stands. Written before every evaluation; read back, it continues bit for bit.

use crate::document::mismatch;
pub use crate::document::{Document, Progress};
use crate::engine::Engine;
use crate::error::TrainError;
use crate::host::{are_within, room};
use checkpoint::{Dtype, Reader, TensorInfo};
use plan::{TensorId, half};
use search::HostBytes;
use std::path::{Path, PathBuf};

/// A weight beyond this has a square that is no f32: layer norms make zeros of it, so that its loss
/// may be a number, but its gradients are none. Sound weights are smaller by many powers of ten.
const LARGEST_WEIGHT: f32 = (1u64 << 62) as f32;

/// The file of the newest state.
pub fn last_path(out_dir: &Path) -> PathBuf {
    out_dir.join("last.safetensors")
}

/// The file of the best state.
pub fn best_path(out_dir: &Path) -> PathBuf {
    out_dir.join("best.safetensors")
}

/// A tensor of a checkpoint.
struct Kept {
    info: TensorInfo,
    id: TensorId,
    /// Its copy in the compute format, which a checkpoint does not keep.
    copy: Option<TensorId>,
}

/// How a checkpoint calls a format.
fn stored_dtype(dtype: plan::Dtype) -> Dtype {
    match dtype {
        plan::Dtype::F32 => Dtype::F32,
        plan::Dtype::Bf16 => Dtype::BF16,
        plan::Dtype::F16 => Dtype::F16,
        plan::Dtype::I32 => Dtype::I32,
        plan::Dtype::U32 => Dtype::U32,
    }
}

/// Every tensor of a checkpoint. The names' prefixes are roles; gradients are zero between
/// iterations and are not kept.
fn tensors(engine: &Engine) -> Vec<Kept> {
    let (program, schedule) = (engine.program(), &engine.plan().schedule);
    let mut all = Vec::new();
    let mut add = |name: String, id: TensorId, copy: Option<TensorId>| {
        let tensor = schedule.tensors.get(id);
        let info = TensorInfo::new(name, stored_dtype(tensor.dtype), tensor.shape.dims());
        all.push(Kept { info, id, copy });
    };
    for row in &program.parameters {
        let name = &row.param.name;
        let copy = Some(row.compute).filter(|&id| id != row.weight);
        add(format!("weights/{name}"), row.weight, copy);
        for &(kind, id) in &row.state {
            add(format!("{kind}/{name}"), id, None);
        }
    }
    add("state".to_string(), program.state, None);
    all
}

/// Room for the largest tensor: what [`save`] needs, to be had before the run starts.
pub fn buffer(host: &HostBytes) -> Result<Vec<u8>, TrainError> {
    room(host.checkpoint_tensor.get(), "saving")
}

/// Saves everything; the old file survives any failure, also when the weights or moments are
/// spoilt: then nothing is saved. `buffer` is from [`buffer`].
pub fn save(
    engine: &mut Engine,
    path: &Path,
    document: &Document,
    buffer: &mut [u8],
) -> Result<(), TrainError> {
    let (infos, ids): (Vec<TensorInfo>, Vec<TensorId>) =
        tensors(engine).into_iter().map(|kept| (kept.info, kept.id)).unzip();
    let text = document.to_json()?;
    let backend = engine.backend();
    let mut spoilt = None;
    let fill = |index: usize, content: &mut [u8]| {
        backend.read(ids[index], content)?;
        let TensorInfo { name, dtype, .. } = &infos[index];
        let largest = if name.starts_with("weights/") { LARGEST_WEIGHT } else { f32::MAX };
        if are_within(largest, *dtype, content) {
            return Ok(());
        }
        spoilt = Some(name.clone());
        Err(Box::<dyn std::error::Error + Send + Sync>::from("its numbers are spoilt"))
    };
    let saved = checkpoint::save(path, &text, &infos, buffer, fill);
    match spoilt {
        Some(tensor) => Err(TrainError::Spoilt { tensor }),
        None => Ok(saved.map(drop)?),
    }
}

/// Size of the file that [`save`] would write.
pub fn file_bytes(engine: &Engine, document: &Document, path: &Path) -> Result<u64, TrainError> {
    let infos: Vec<TensorInfo> = tensors(engine).into_iter().map(|kept| kept.info).collect();
    Ok(checkpoint::file_bytes(path, &document.to_json()?, &infos)?)
}

/// Opens a checkpoint and reads its document.
pub fn open(path: &Path) -> Result<(Reader, Document), TrainError> {
    let reader = Reader::open(path)?;
    let document = Document::parse(path, reader.document())?;
    Ok((reader, document))
}

/// Reads a stored tensor and leaves it in the wanted type at the buffer's beginning: moments may be
/// kept in 16 bits by one run and in 32 by the one that goes on from it.
fn read_as(
    reader: &Reader,
    index: usize,
    wanted: Dtype,
    content: &mut [u8],
) -> Result<bool, TrainError> {
    let stored = reader.tensors()[index].dtype;
    match (stored, wanted) {
        (Dtype::BF16, Dtype::F32) => {
            // Read into the second half and spread from the front: no number is overwritten unread.
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

/// The same where the stored numbers are wider than the wanted ones.
fn read_narrower(
    reader: &Reader,
    index: usize,
    wanted: plan::Dtype,
    content: &mut [u8],
) -> Result<(), TrainError> {
    reader.read(index, content)?;
    narrow(wanted, content);
    Ok(())
}

/// Turns f32 at the buffer's beginning into a 16-bit format, in place.
fn narrow(wanted: plan::Dtype, content: &mut [u8]) {
    let round = if wanted == plan::Dtype::F16 { half::to_f16 } else { half::to_bf16 };
    for element in 0..content.len() / 4 {
        let word = [0, 1, 2, 3].map(|byte| content[4 * element + byte]);
        let half = round(f32::from_le_bytes(word)).to_le_bytes();
        content[2 * element..2 * element + 2].copy_from_slice(&half);
    }
}

/// Fills the engine from a checkpoint. Moments may be missing on both sides (sampling). `buffer` is
/// from [`buffer`]: nothing else of a tensor's size is needed.
pub fn load(
    engine: &mut Engine,
    reader: &Reader,
    path: &Path,
    buffer: &mut [u8],
) -> Result<(), TrainError> {
    for Kept { info, id, copy } in tensors(engine) {
        let found = reader.find(&info.name).map(|index| (index, &reader.tensors()[index]));
        let (index, stored) = found.ok_or_else(|| {
            mismatch(path, format!("it has no tensor {}; it is not a whole run", info.name))
        })?;
        let [have, want] = [stored, &info].map(|tensor| {
            (
                tensor.bytes().unwrap_or(u64::MAX),
                format!("{} {:?}", tensor.dtype.name(), tensor.shape),
            )
        });
        let refused = || {
            let (have, want) = (&have.1, &want.1);
            mismatch(path, format!("{} is {have} in it, this run needs {want}", info.name))
        };
        if stored.shape != info.shape || have.0.max(want.0) > buffer.len() as u64 {
            return Err(refused());
        }
        let wanted = want.0 as usize;
        let format = engine.plan().schedule.tensors.get(id).dtype;
        if stored.dtype == Dtype::F32 && matches!(info.dtype, Dtype::BF16 | Dtype::F16) {
            read_narrower(reader, index, format, &mut buffer[..have.0 as usize])?;
        } else if !read_as(reader, index, info.dtype, &mut buffer[..wanted])? {
            return Err(refused());
        }
        engine.backend().write(id, &buffer[..wanted])?;
        if let Some(copy) = copy {
            let format = engine.plan().schedule.tensors.get(copy).dtype;
            narrow(format, &mut buffer[..wanted]);
            engine.backend().write(copy, &buffer[..wanted / 2])?;
        }
    }
    engine.settle_loss_scale()
}
