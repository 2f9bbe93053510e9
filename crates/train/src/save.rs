//! A run on disk: weights, moments and step state by name, and one document that says where the run
//! stands. Written before every evaluation; read back, it continues bit for bit.

use crate::data_marks::DataMarks;
use crate::engine::Engine;
use crate::error::TrainError;
use crate::host::{are_within, room};
use crate::plan_json;
use checkpoint::{Dtype, Reader, TensorInfo, bounded_json};
use data::{CharTokenizer, Tokenizer};
use model::Dims;
use plan::{TensorId, half};
use search::{Cut, HostBytes};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// What a document's values may take beyond its size: the largest are a place in nanoGPT's stream,
/// of some hundred numbers and one for each sequence of a micro-batch.
const VALUES_LIMIT: usize = 24 << 20;

/// A weight beyond this has a square that is no f32: layer norms make zeros of it, so that its loss
/// may be a number, but its gradients are none. Sound weights are smaller by many powers of ten.
const LARGEST_WEIGHT: f32 = (1u64 << 62) as f32;

/// Where a run stands between two iterations.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// The next iteration.
    pub iteration: u64,
    /// Best validation loss so far.
    pub best_val_loss: f64,
}

/// What a checkpoint says besides its tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Where the run stands.
    pub progress: Progress,
    /// All keys with their values.
    pub config: Value,
    /// The model's sizes, which a run never changes.
    pub dims: Dims,
    /// How ids become text; none where the data set does not say.
    pub tokenizer: Option<Tokenizer>,
    /// The files it is trained on; none without files, and in checkpoints of older versions.
    pub data: Option<DataMarks>,
    /// The batch stream's position.
    pub feed: Value,
    /// How an iteration is cut, where the run trains.
    pub plan: Option<Cut>,
    /// Hash of the steps that train: the same steps on the same kind of device, by the same
    /// version, continue bit for bit.
    pub steps_hash: String,
    /// What the backend chose beside the plan: algorithms of products, by shape.
    pub choices: Vec<(String, String)>,
    /// Kind of the device.
    pub device: String,
    /// Threads that computed, where that is the host's processor.
    pub threads: Option<u64>,
    /// Of this program, when it was saved.
    pub version: String,
}

impl Document {
    fn to_json(&self) -> String {
        let Progress { iteration, best_val_loss } = self.progress;
        json!({
            "iteration": iteration,
            "best_val_loss_bits": best_val_loss.to_bits().to_string(),
            "config": self.config,
            "model": dims_to_json(&self.dims),
            "tokenizer": tokenizer_to_json(self.tokenizer.as_ref()),
            "data": DataMarks::to_json(self.data.as_ref()),
            "feed": self.feed,
            "plan": plan_json::to_json(self.plan.as_ref()),
            "steps_hash": self.steps_hash,
            "choices": choices_to_json(&self.choices),
            "device": self.device,
            "threads": self.threads,
            "version": self.version,
        })
        .to_string()
    }

    fn parse(path: &Path, text: &str) -> Result<Document, TrainError> {
        let bad = |what: &str| {
            mismatch(path, format!("its document has no valid {what}; use another checkpoint"))
        };
        let mut json = bounded_json::parse(text.as_bytes(), VALUES_LIMIT + text.len())
            .map_err(|error| mismatch(path, format!("its document cannot be read: {error}")))?;
        // Taken out, not copied: they may be large.
        let mut part = |key: &str| json.get_mut(key).map(Value::take);
        let (config, feed) = (part("config"), part("feed"));
        let word = |key: &str| json.get(key).and_then(Value::as_str).map(str::to_string);
        let bits = word("best_val_loss_bits").and_then(|bits| bits.parse::<u64>().ok());
        let iteration = json.get("iteration").and_then(Value::as_u64);
        let config = config.filter(Value::is_object);
        let dims = dims_from_json(json.get("model")).ok_or_else(|| bad("model"))?;
        let fits = |found: &Option<Tokenizer>| {
            found.as_ref().is_none_or(|found| u64::from(found.vocab_size()) <= dims.vocab_size)
        };
        let tokenizer = tokenizer_from_json(json.get("tokenizer")).filter(fits);
        Ok(Document {
            progress: Progress {
                iteration: iteration.ok_or_else(|| bad("iteration"))?,
                best_val_loss: f64::from_bits(bits.ok_or_else(|| bad("best loss"))?),
            },
            config: config.ok_or_else(|| bad("config"))?,
            dims,
            tokenizer: tokenizer.ok_or_else(|| bad("tokenizer"))?,
            data: DataMarks::from_json(json.get("data")),
            feed: feed.ok_or_else(|| bad("batch stream"))?,
            plan: json.get("plan").and_then(plan_json::from_json).ok_or_else(|| bad("plan"))?,
            steps_hash: word("steps_hash").ok_or_else(|| bad("hash of its steps"))?,
            choices: choices_from_json(json.get("choices")),
            device: word("device").ok_or_else(|| bad("device"))?,
            threads: json.get("threads").and_then(Value::as_u64),
            version: word("version").ok_or_else(|| bad("version"))?,
        })
    }
}

fn choices_to_json(choices: &[(String, String)]) -> Value {
    choices.iter().map(|(name, choice)| (name.clone(), json!(choice))).collect()
}

/// None where there are none: then the backend chooses anew.
fn choices_from_json(json: Option<&Value>) -> Vec<(String, String)> {
    let fields = json.and_then(Value::as_object).into_iter().flatten();
    fields.filter_map(|(name, choice)| Some((name.clone(), choice.as_str()?.into()))).collect()
}

fn dims_to_json(dims: &Dims) -> Value {
    json!({
        "n_layer": dims.n_layer,
        "n_head": dims.n_head,
        "n_embd": dims.n_embd,
        "block_size": dims.block_size,
        "vocab_size": dims.vocab_size,
        "bias": dims.bias,
    })
}

fn dims_from_json(json: Option<&Value>) -> Option<Dims> {
    let size = |key: &str| json?.get(key)?.as_u64();
    let dims = Dims {
        n_layer: size("n_layer")?,
        n_head: size("n_head")?,
        n_embd: size("n_embd")?,
        block_size: size("block_size")?,
        vocab_size: size("vocab_size")?,
        bias: json?.get("bias")?.as_bool()?,
    };
    dims.checked().ok()
}

/// `"gpt2"`, the characters in the order of their ids, or null. A sample then needs no data set.
fn tokenizer_to_json(tokenizer: Option<&Tokenizer>) -> Value {
    match tokenizer {
        Some(Tokenizer::Gpt2) => json!("gpt2"),
        Some(Tokenizer::Char(table)) => {
            json!({ "characters": String::from_iter(table.characters()) })
        }
        None => Value::Null,
    }
}

fn tokenizer_from_json(json: Option<&Value>) -> Option<Option<Tokenizer>> {
    match json? {
        Value::Null => Some(None),
        Value::String(name) if name == "gpt2" => Some(Some(Tokenizer::Gpt2)),
        other => {
            let characters = other.get("characters")?.as_str()?.chars().collect();
            Some(Some(Tokenizer::Char(CharTokenizer::new(characters)?)))
        }
    }
}

fn mismatch(path: &Path, what: String) -> TrainError {
    TrainError::Mismatch { path: path.to_path_buf(), what }
}

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
    let saved = checkpoint::save(path, &document.to_json(), &infos, buffer, fill);
    match spoilt {
        Some(tensor) => Err(TrainError::Spoilt { tensor }),
        None => Ok(saved.map(drop)?),
    }
}

/// Size of the file that [`save`] would write.
pub fn file_bytes(engine: &Engine, document: &Document, path: &Path) -> Result<u64, TrainError> {
    let infos: Vec<TensorInfo> = tensors(engine).into_iter().map(|kept| kept.info).collect();
    Ok(checkpoint::file_bytes(path, &document.to_json(), &infos)?)
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
