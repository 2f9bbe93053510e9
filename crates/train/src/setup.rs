//! From settings to everything that is known before memory is planned: the checkpoint to go on
//! from, the data set, the model's sizes, the folder. What can be refused is refused here, before
//! anything is written; [`Setup::claim`] then takes the folder.

use crate::data_marks::{DataMarks, Difference};
use crate::disk_room;
use crate::engine::Engine;
use crate::error::TrainError;
use crate::runlog;
use crate::save::{self, Document, Progress, best_path, last_path};
use crate::settings_json;
use checkpoint::Reader;
use data::{BUILTIN, Dataset, GPT2_IDS, Split, Tokenizer};
use events::LogSink;
use model::{Dims, GPT2_ROWS};
use search::Cut;
use serde_json::Value;
use spec::{Environment, InitFrom, Notice, OptimizerState, RunSpec, Sampler, Settings, resolve};
use std::path::{Path, PathBuf};

/// Tokens of each half that are looked at before the start: a wrong vocabulary shows in the first
/// thousands, and this many take well under a second.
const LOOKED_AT: u64 = 1 << 26;

/// A checkpoint that was found.
pub struct Saved {
    /// Its file.
    pub path: PathBuf,
    /// Its tensors, until they are loaded.
    reader: Option<Reader>,
    /// What it says of the run.
    pub document: Document,
}

impl Saved {
    fn open(path: PathBuf) -> Result<Saved, TrainError> {
        let (reader, document) = save::open(&path)?;
        Ok(Saved { path, reader: Some(reader), document })
    }

    /// Whether its file still is the one that was opened.
    fn is_as_it_was(&self) -> Result<bool, TrainError> {
        let now = Reader::open(&self.path)?;
        Ok(self.reader.as_ref().is_some_and(|then| then.document() == now.document()))
    }

    /// Fills the engine, once, and closes the file: an open one keeps its room on the disk after a
    /// save has replaced it. `buffer` is from [`save::buffer`].
    pub fn load(&mut self, engine: &mut Engine, buffer: &mut [u8]) -> Result<(), TrainError> {
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => Reader::open(&self.path)?,
        };
        save::load(engine, &reader, &self.path, buffer)
    }

    /// Why this run may give other bits than the one that was saved, if it may.
    pub fn other_bits(&self, now: &Document) -> Option<String> {
        let saved = &self.document;
        let pairs = [
            ("version", &saved.version, &now.version),
            ("device", &saved.device, &now.device),
            ("plan", &saved.steps_hash, &now.steps_hash),
        ];
        if let Some((what, old, new)) = pairs.into_iter().find(|(_, old, new)| old != new) {
            return Some(format!(
                "the {what} is {new}, the run was saved with {old}: it goes on, but its bits may \
                 differ"
            ));
        }
        (saved.choices != now.choices).then(|| {
            "products are computed by other algorithms than when the run was saved: it goes on, \
             but its bits may differ"
                .to_string()
        })
    }
}

/// A training run before it is planned.
pub struct Setup {
    /// Every key with its origin.
    pub settings: Settings,
    /// Every key with its meaning.
    pub spec: RunSpec,
    /// What works differently from what was typed.
    pub notices: Vec<Notice>,
    /// The text.
    pub dataset: Dataset,
    /// Its files as they are now.
    data: Option<DataMarks>,
    /// The model's sizes.
    pub dims: Dims,
    /// What it goes on from.
    pub saved: Option<Saved>,
}

impl Setup {
    /// Checks everything that can be wrong before the first step.
    pub fn new(mut settings: Settings, environment: &Environment) -> Result<Setup, TrainError> {
        let (first, _) = resolve(&settings, environment)?;
        refuse_openai(&first)?;
        let resumed = resume(&mut settings, &first)?;
        let (mut spec, mut notices) = resolve(&settings, environment)?;
        let out_dir = PathBuf::from(&spec.out_dir);
        let mut saved = None;
        if let Some((found, unused)) = resumed {
            keep_format(&mut spec, &found.document);
            notices.extend(unused);
            notices.extend(changes(&settings, &found.document.config));
            saved = Some(found);
        }
        // An impossible model is told before a missing data set: no download mends it.
        let mut dataset = open_dataset(&spec.dataset)
            .map_err(|missing| spec.dims(GPT2_ROWS).err().map_or(missing, TrainError::from))?;
        let dims = dims(&spec, &dataset, saved.as_ref())?;
        let data = DataMarks::of(&dataset)?;
        if let Some(saved) = &saved {
            notices.extend(compare_data(&spec, (&dataset, data.as_ref()), saved)?);
        }
        dataset.split(Split::Train).check_block_size(spec.block_size)?;
        dataset.split(Split::Val).check_block_size(match spec.sampler {
            Sampler::Fitgpt => spec.eval_block_size,
            Sampler::Nanogpt => spec.block_size,
        })?;
        dataset.set_vocab_size(u32::try_from(dims.vocab_size).unwrap_or(u32::MAX));
        for split in [Split::Train, Split::Val] {
            dataset.split(split).check_ids(LOOKED_AT)?;
        }
        if saved.is_none() {
            refuse_checkpoints(&out_dir)?;
        }
        Ok(Setup { settings, spec, notices, dataset, data, dims, saved })
    }

    /// Whether the run's checkpoints have room where they are to be written; `document` says where
    /// it stands.
    pub fn check_room(&self, engine: &Engine, document: &Document) -> Result<(), TrainError> {
        let (spec, out_dir) = (&self.spec, Path::new(&self.spec.out_dir));
        if spec.eval_only || document.progress.iteration > spec.max_iters {
            return Ok(()); // it writes none
        }
        let last = last_path(out_dir);
        let bytes = save::file_bytes(engine, document, &last)?;
        let is_last = |saved: &Saved| is_same_file(&saved.path, &last);
        disk_room::check(out_dir, bytes, self.saved.as_ref().is_some_and(is_last))
    }

    /// Makes the folder where it is missing and opens its log, which keeps other processes out: the
    /// first thing that a run writes, when nothing can be refused any more.
    pub fn claim(&self) -> Result<LogSink, TrainError> {
        let out_dir = Path::new(&self.spec.out_dir);
        data::disk::make_folder(out_dir).map_err(|error| TrainError::Io {
            path: out_dir.to_path_buf(),
            doing: "make the folder",
            error,
            advice: "give another --out_dir",
        })?;
        let log = runlog::open(out_dir)?;
        // Now nobody else writes here; somebody may have since the checks above.
        match &self.saved {
            None => refuse_checkpoints(out_dir)?,
            Some(saved) if saved.is_as_it_was()? => {
                set_aside(&saved.path, out_dir, self.spec.eval_only)?;
            }
            Some(_) => return Err(TrainError::OutDirBusy { path: out_dir.to_path_buf() }),
        }
        Ok(log)
    }

    /// What checkpoints of this run say, at its beginning or where it goes on.
    pub fn document(&self, plan: Option<Cut>, steps_hash: String, device: String) -> Document {
        let saved = self.saved.as_ref().map(|saved| &saved.document);
        Document {
            progress: self.progress(),
            config: settings_json::to_json(&self.settings),
            dims: self.dims,
            tokenizer: self.dataset.tokenizer(),
            data: self.data.clone(),
            feed: saved.map_or(Value::Null, |document| document.feed.clone()),
            plan,
            steps_hash,
            choices: Vec::new(),
            device,
            threads: None,
            version: env!("CARGO_PKG_VERSION").to_string(),
        }
    }
}

impl Setup {
    /// Where the run stands. The loss to beat is the one of the file that would be replaced: the
    /// checkpoint that the run goes on from may be older.
    fn progress(&self) -> Progress {
        let Some(Saved { document, .. }) = &self.saved else {
            return Progress { iteration: 0, best_val_loss: f64::INFINITY };
        };
        let best = best_path(Path::new(&self.spec.out_dir));
        let best_val_loss = match best.exists().then(|| save::open(&best)) {
            Some(Ok((_, held))) if is_same_run(&held, document) => held.progress.best_val_loss,
            // Damaged for good: anything is better. One that cannot be read now may be tomorrow.
            Some(Err(TrainError::Read(error))) if error.is_damage() => f64::INFINITY,
            Some(Err(_)) => document.progress.best_val_loss,
            Some(Ok(_)) | None => document.progress.best_val_loss,
        };
        Progress { best_val_loss, ..document.progress }
    }
}

/// Whether losses of two checkpoints can be compared: one model on one text.
fn is_same_run(one: &Document, other: &Document) -> bool {
    one.dims == other.dims
        && one.tokenizer == other.tokenizer
        && one.config.get("dataset") == other.config.get("dataset")
}

/// Text generation before it is planned.
pub struct SampleSetup {
    /// Every key with its meaning.
    pub spec: RunSpec,
    /// What works differently from what was typed.
    pub notices: Vec<Notice>,
    /// The model's sizes.
    pub dims: Dims,
    /// Ids and text.
    pub tokenizer: Tokenizer,
    /// The model.
    pub saved: Saved,
}

impl SampleSetup {
    /// Finds the model: `out_dir` is a folder, whose best checkpoint is taken and else its last
    /// one, or a checkpoint's file.
    pub fn new(
        mut settings: Settings,
        environment: &Environment,
    ) -> Result<SampleSetup, TrainError> {
        let (first, _) = resolve(&settings, environment)?;
        refuse_openai(&first)?;
        let saved = Saved::open(checkpoint_in(Path::new(&first.out_dir))?)?;
        settings_json::fill_in(&mut settings, &saved.document.config)?;
        let (spec, notices) = resolve(&settings, environment)?;
        let dims = saved.document.dims;
        let tokenizer = saved.document.tokenizer.clone().ok_or_else(|| TrainError::Mismatch {
            path: saved.path.clone(),
            what: "its data set had no characters in meta.pkl: no text can be made of its ids"
                .to_string(),
        })?;
        Ok(SampleSetup { spec, notices, dims, tokenizer, saved })
    }
}

/// Where settings ask to resume: fills in what the checkpoint says and gives its document, and what
/// of the settings is not used.
pub fn checkpoint_to_resume(
    settings: &mut Settings,
    environment: &Environment,
) -> Result<Option<(Document, Vec<Notice>)>, TrainError> {
    let (first, _) = resolve(settings, environment)?;
    let resumed = resume(settings, &first)?;
    Ok(resumed.map(|(saved, unused)| (saved.document, unused)))
}

/// The checkpoint to go on from, if settings ask for one: `out_dir`'s last one, or the file that
/// `out_dir` names, in whose folder the run then goes on. Fills in what it says.
fn resume(
    settings: &mut Settings,
    first: &RunSpec,
) -> Result<Option<(Saved, Vec<Notice>)>, TrainError> {
    if first.init_from != InitFrom::Resume {
        return Ok(None);
    }
    let out_dir = Path::new(&first.out_dir);
    let path = match out_dir.is_file() {
        true => out_dir.to_path_buf(),
        false => existing(last_path(out_dir), out_dir)?,
    };
    let saved = Saved::open(path)?;
    let unused = settings_json::fill_in(settings, &saved.document.config)?;
    if out_dir.is_file()
        && let (Some(folder), Some(setting)) = (out_dir.parent(), settings.get("out_dir"))
    {
        let folder = if folder == Path::new("") { Path::new(".") } else { folder };
        let origin = setting.origin.clone();
        settings.set("out_dir", folder.to_string_lossy().into_owned().into(), origin)?;
    }
    Ok(Some((saved, unused)))
}

/// A run that goes on from another checkpoint than its folder's last one will replace that one: it
/// is kept under the number of its iteration.
fn set_aside(from: &Path, out_dir: &Path, eval_only: bool) -> Result<(), TrainError> {
    let last = last_path(out_dir);
    if eval_only || is_same_file(from, &last) || !last.exists() {
        return Ok(());
    }
    let iteration = save::open(&last)?.1.progress.iteration;
    let name = |copy: u32| match copy {
        1 => format!("last-{iteration}.safetensors"),
        copy => format!("last-{iteration}-{copy}.safetensors"),
    };
    let free = (1..).map(|copy| out_dir.join(name(copy))).find(|path| !path.exists());
    let Some(kept) = free else {
        return Ok(()); // there is always a number left
    };
    std::fs::hard_link(&last, &kept).or_else(|_| std::fs::copy(&last, &kept).map(|_| ())).map_err(
        |error| TrainError::Io {
            path: kept,
            doing: "keep the newer checkpoint",
            error,
            advice: "make room, or copy the checkpoint to another folder and resume there",
        },
    )
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// The sizes of the model that a run goes on with; what the planner chose for it stays.
pub fn resumed_dims(spec: &mut RunSpec, document: &Document) -> Result<Dims, TrainError> {
    keep_format(spec, document);
    let stored = document.dims;
    check_sizes(spec, &stored, &last_path(Path::new(&spec.out_dir)))?;
    Ok(stored)
}

/// What was given and is not what the run was saved with.
fn changes(settings: &Settings, config: &Value) -> Vec<Notice> {
    let said = settings_json::given(settings);
    let changed = said.into_iter().filter_map(|(key, new)| {
        let old = config.get(key).filter(|old| **old != new)?;
        Some(Notice {
            key,
            text: format!("{key} was {old} when the run was saved, now it is {new}"),
        })
    });
    changed.collect()
}

fn refuse_openai(spec: &RunSpec) -> Result<(), TrainError> {
    match spec.init_from {
        InitFrom::Gpt2(name) => Err(TrainError::NotYet {
            what: format!(
                "init_from='{}': this version cannot read OpenAI's weights yet; train a model \
                 of your own, or 'resume' one",
                name.word()
            ),
        }),
        InitFrom::Scratch | InitFrom::Resume => Ok(()),
    }
}

/// What the planner was free to choose at the start stays with the run.
fn keep_format(spec: &mut RunSpec, document: &Document) {
    if let (OptimizerState::Auto, Some(plan)) = (spec.optimizer_state, &document.plan) {
        spec.optimizer_state = match plan.state_options.moments {
            plan::Dtype::Bf16 => OptimizerState::Bfloat16,
            _ => OptimizerState::Float32,
        };
    }
}

/// `data/<name>`, and like nanoGPT an absolute path as it is.
fn open_dataset(name: &str) -> Result<Dataset, TrainError> {
    if name == BUILTIN {
        return Ok(Dataset::builtin());
    }
    Ok(Dataset::open(&Path::new("data").join(name))?)
}

/// What is to be said of data that is not what the run was saved with; an error where it would
/// train on it unawares. A data set of another name was meant, and `changes` says so.
fn compare_data(
    spec: &RunSpec,
    (dataset, now): (&Dataset, Option<&DataMarks>),
    saved: &Saved,
) -> Result<Vec<Notice>, TrainError> {
    let Document { data, config, .. } = &saved.document;
    let same_name = config.get("dataset").and_then(Value::as_str) == Some(&spec.dataset);
    let (Some(then), Some(now), true) = (data, now, same_name) else {
        return Ok(Vec::new());
    };
    let mut notices = Vec::new();
    for difference in then.differences(now, dataset.folder())? {
        let text = match difference {
            Difference::Grown(text) => text,
            Difference::Changed(text) if spec.accept_changed_data || spec.eval_only => text,
            Difference::Changed(text) => {
                let what = format!(
                    "this run was trained on other data: {text}; restore the old file, or add \
                     --accept_changed_data=True to resume with this one"
                );
                return Err(TrainError::Mismatch { path: saved.path.clone(), what });
            }
        };
        notices.push(Notice { key: "dataset", text });
    }
    Ok(notices)
}

/// The sizes of the model: the checkpoint's where there is one, which settings and data set must
/// fit, else from the settings and the data set's vocabulary.
fn dims(spec: &RunSpec, dataset: &Dataset, saved: Option<&Saved>) -> Result<Dims, TrainError> {
    let own = dataset.meta().map(|meta| u64::from(meta.vocab_size));
    let Some(saved) = saved else {
        return Ok(spec.dims(own.unwrap_or(GPT2_ROWS))?);
    };
    let stored = saved.document.dims;
    let (rows, name) = (stored.vocab_size, dataset.name());
    let fits = own.map_or(rows >= u64::from(GPT2_IDS), |own| own == rows);
    let tokenizers = (&saved.document.tokenizer, dataset.tokenizer());
    if let (Some(stored), Some(found)) = tokenizers
        && *stored != found
        && fits
    {
        let what = format!(
            "data set '{name}' gives its {rows} ids other characters than the model learnt: go on \
             with the data set it was trained on"
        );
        return Err(TrainError::Mismatch { path: saved.path.clone(), what });
    }
    if !fits {
        let own = own.unwrap_or(GPT2_IDS.into());
        let what = format!(
            "the model has a vocabulary of {rows}, data set '{name}' has {own}: go on with the \
             data set it was trained on"
        );
        return Err(TrainError::Mismatch { path: saved.path.clone(), what });
    }
    check_sizes(spec, &stored, &saved.path)?;
    Ok(stored)
}

/// No key changes the size of a model that exists.
fn check_sizes(spec: &RunSpec, stored: &Dims, path: &Path) -> Result<(), TrainError> {
    let asked = Dims { block_size: stored.block_size, ..spec.dims(stored.vocab_size)? };
    if asked != *stored {
        let what = format!(
            "the model is n_layer={} n_head={} n_embd={} bias={}, which no key changes; asked for \
             was n_layer={} n_head={} n_embd={} bias={}: leave these keys out",
            stored.n_layer,
            stored.n_head,
            stored.n_embd,
            stored.bias,
            asked.n_layer,
            asked.n_head,
            asked.n_embd,
            asked.bias
        );
        return Err(TrainError::Mismatch { path: path.to_path_buf(), what });
    }
    Ok(())
}

/// A new run does not touch another's checkpoints.
fn refuse_checkpoints(out_dir: &Path) -> Result<(), TrainError> {
    let there = |path: PathBuf| path.symlink_metadata().is_ok();
    if there(last_path(out_dir)) || there(best_path(out_dir)) {
        return Err(TrainError::OutDirInUse { path: out_dir.to_path_buf() });
    }
    Ok(())
}

fn existing(path: PathBuf, out_dir: &Path) -> Result<PathBuf, TrainError> {
    let none = || TrainError::NoCheckpoint { path: out_dir.to_path_buf() };
    if path.exists() { Ok(path) } else { Err(none()) }
}

fn checkpoint_in(out_dir: &Path) -> Result<PathBuf, TrainError> {
    if out_dir.is_file() {
        return Ok(out_dir.to_path_buf());
    }
    existing(best_path(out_dir), out_dir).or_else(|_| existing(last_path(out_dir), out_dir))
}
