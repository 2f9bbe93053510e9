//! Everything about a run that is known before its memory is planned: the checkpoint to resume
//! from, the data set, the model's sizes, the folder. All refusals happen here, before anything is
//! written; then [`Setup::claim`] takes the folder.

use crate::data_fingerprint::{DataFingerprint, Difference};
use crate::disk_room;
use crate::engine::Engine;
use crate::error::TrainError;
use crate::found;
use crate::runlog;
use crate::save::{self, Document, RunProgress, best_ckpt_path, best_path, last_path, newest_path};
use crate::save_ckpt;
use crate::saved_run::SavedRun;
use crate::set_aside::{is_same_file, set_aside};
use crate::settings_json;
use data::{BUILTIN, Dataset, Split};
use events::LogSink;
use model::{Dims, GPT2_ROWS};
use plan::ops::GeluKind;
use search::Cut;
use serde_json::Value;
use spec::{
    CheckpointFormat, Environment, Gelu, InitFrom, OptimizerState, Origin, RunSpec, Sampler,
    SettingNotice, Settings, resolve,
};
use std::path::{Path, PathBuf};
use tokenizer::{GPT2_IDS, Tokenizer};

/// Tokens of each split that are checked before the start. A wrong vocabulary shows in the first
/// thousands; reading this many takes well under a second.
const LOOKED_AT: u64 = 1 << 26;

/// Raised when kernels get other bits, so that a run from before says so when it resumes.
const GPU_KERNELS: u32 = 5;
const CPU_KERNELS: u32 = 2;

/// The program's version, and that of its kernels.
fn version(device: &str) -> String {
    let kernels = if device.starts_with("cuda") { GPU_KERNELS } else { CPU_KERNELS };
    format!("{}, kernels {kernels}", env!("CARGO_PKG_VERSION"))
}

/// A training run before it is planned.
pub struct Setup {
    /// Every key with its origin.
    pub settings: Settings,
    /// The same, typed and checked.
    pub spec: RunSpec,
    /// Lines about settings that have another effect than expected.
    pub notices: Vec<SettingNotice>,
    /// The data set.
    pub dataset: Dataset,
    /// Fingerprint of its files as they are now.
    data: Option<DataFingerprint>,
    /// The model's sizes.
    pub dims: Dims,
    /// The checkpoint to resume from.
    pub saved: Option<SavedRun>,
    /// The trained model that a new run starts from.
    pub pretrained: Option<SavedRun>,
}

impl Setup {
    /// Checks everything that can be wrong before the first step. `pretrained` is the model that
    /// `init_from` names, opened.
    pub fn new(
        mut settings: Settings,
        environment: &Environment,
        mut pretrained: Option<SavedRun>,
    ) -> Result<Setup, TrainError> {
        let environment = &with_model(environment, pretrained.as_ref());
        let (first, _) = resolve(&settings, environment)?;
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
        if let Some(model) = &mut pretrained {
            keep_model(&mut settings, &spec, model)?;
            model.crop(spec.block_size);
        }
        // Report an invalid model before a missing data set: no download fixes it.
        let mut dataset = open_dataset(&spec.dataset)
            .map_err(|missing| spec.dims(GPT2_ROWS).err().map_or(missing, TrainError::from))?;
        let dims = dims(&spec, &dataset, saved.as_ref())?;
        let data = DataFingerprint::of(&dataset)?;
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
        if saved.is_none() && !spec.eval_only {
            refuse_checkpoints(&out_dir)?;
        }
        if let Some(model) = &pretrained {
            notices.extend(said(model));
            notices.extend(other_text(model, &dataset));
        }
        Ok(Setup { settings, spec, notices, dataset, data, dims, saved, pretrained })
    }

    /// Checks that the disk has room for the run's checkpoints.
    pub fn check_room(&self, engine: &Engine, document: &Document) -> Result<(), TrainError> {
        let (spec, out_dir) = (&self.spec, Path::new(&self.spec.out_dir));
        if spec.eval_only || document.progress.iteration > spec.max_iters {
            return Ok(()); // it writes no checkpoints
        }
        let newest = newest_path(spec);
        let bytes = match spec.checkpoint_format {
            CheckpointFormat::Native => save::file_bytes(engine, document, &newest)?,
            CheckpointFormat::Ckpt => save_ckpt::file_bytes(engine, document, spec, &newest)?,
        };
        let is_newest = |saved: &SavedRun| is_same_file(&saved.path, &newest);
        let replaced = self.saved.as_ref().is_some_and(is_newest).then_some(&*newest);
        let best = match (spec.checkpoint_format, spec.always_save_checkpoint) {
            (CheckpointFormat::Native, _) => Some(best_path(out_dir)),
            (CheckpointFormat::Ckpt, false) => Some(best_ckpt_path(out_dir)),
            (CheckpointFormat::Ckpt, true) => None,
        };
        let best = best.as_deref();
        disk_room::check(out_dir, bytes, disk_room::Kept { newest: &newest, replaced, best })
    }

    /// Creates the folder if it is missing, and opens its log, which keeps other processes out.
    /// This is the first thing that a run writes, after all refusals. An evaluation of other
    /// weights in a run's folder writes nothing there: it gets no log.
    pub fn claim(&self) -> Result<Option<LogSink>, TrainError> {
        let out_dir = Path::new(&self.spec.out_dir);
        if self.spec.eval_only && self.saved.is_none() && found::is_run(out_dir) {
            return Ok(None);
        }
        data::disk::make_folder(out_dir).map_err(|error| TrainError::Io {
            path: out_dir.to_path_buf(),
            doing: "create the folder",
            error,
            advice: "give another --out_dir",
        })?;
        let log = runlog::open(out_dir)?;
        // From here on no other process writes here; one may have done so since the first checks.
        match &self.saved {
            None => refuse_checkpoints(out_dir)?,
            Some(saved) if saved.is_as_it_was()? => {
                if !self.spec.eval_only {
                    set_aside(&saved.path, &newest_path(&self.spec))?;
                }
            }
            Some(_) => return Err(TrainError::OutDirBusy { path: out_dir.to_path_buf() }),
        }
        Ok(Some(log))
    }

    /// What the data are, for comparison with other ranks.
    pub fn data_facts(&self) -> Vec<(String, String)> {
        self.data.as_ref().map_or(Vec::new(), DataFingerprint::facts)
    }

    /// Where a resumed run continues, for comparison with other ranks: their folders may differ.
    pub fn resumed_facts(&self) -> Vec<(String, String)> {
        let Some(saved) = &self.saved else { return Vec::new() };
        let RunProgress { iteration, best_val_loss, tokens, .. } = self.progress();
        let what = format!(
            "iteration {iteration}, best loss {best_val_loss}, {} tokens, plan {}",
            tokens.unwrap_or(0),
            saved.document.steps_hash
        );
        vec![("the checkpoint".to_string(), what)]
    }

    /// The document of this run's checkpoints, when it starts or resumes.
    pub fn document(&self, plan: Option<Cut>, steps_hash: String, device: String) -> Document {
        let saved = self.saved.as_ref().map(|saved| &saved.document);
        Document {
            progress: self.progress(),
            config: settings_json::to_json(&self.settings),
            dims: self.dims,
            tokenizer: self.dataset.tokenizer().ok(),
            data: self.data.clone(),
            feed: saved.map_or(Value::Null, |document| document.feed.clone()),
            plan,
            steps_hash,
            choices: Vec::new(),
            threads: None,
            version: version(&device),
            device,
        }
    }
}

impl Setup {
    /// The run's progress. The loss to beat is that of `best`, which a better state would replace:
    /// the checkpoint that the run resumes from may be older.
    fn progress(&self) -> RunProgress {
        let Some(SavedRun { document, .. }) = &self.saved else {
            return RunProgress::START;
        };
        let best = best_path(Path::new(&self.spec.out_dir));
        let is_kept = self.spec.checkpoint_format == CheckpointFormat::Native && best.exists();
        let best_val_loss = match is_kept.then(|| save::open(&best)) {
            Some(Ok((_, held))) if is_same_run(&held, document) => held.progress.best_val_loss,
            // A damaged file may be replaced by anything. A file that cannot be read right now may
            // be readable later.
            Some(Err(TrainError::Read(error))) if error.is_damage() => f64::INFINITY,
            Some(Err(_)) => document.progress.best_val_loss,
            Some(Ok(_)) | None => document.progress.best_val_loss,
        };
        let tokens = document.tokens_seen();
        RunProgress { best_val_loss, tokens, ..document.progress }
    }
}

/// Whether the losses of two checkpoints are comparable: the same model sizes and data set.
fn is_same_run(one: &Document, other: &Document) -> bool {
    one.dims == other.dims
        && one.tokenizer == other.tokenizer
        && one.config.get("dataset") == other.config.get("dataset")
}

/// Text generation before it is planned.
pub struct SampleSetup {
    /// The settings, typed and checked.
    pub spec: RunSpec,
    /// Lines about settings that have another effect than expected.
    pub notices: Vec<SettingNotice>,
    /// The model's sizes.
    pub dims: Dims,
    /// Converts between text and ids.
    pub tokenizer: Tokenizer,
    /// The checkpoint with the model.
    pub saved: SavedRun,
}

impl SampleSetup {
    /// Finds the model: `pretrained`, which `init_from` names, else in `out_dir`. That is a
    /// checkpoint's file, or a folder: then its best checkpoint is used, or its last one if there
    /// is no best.
    pub fn new(
        mut settings: Settings,
        environment: &Environment,
        pretrained: Option<SavedRun>,
    ) -> Result<SampleSetup, TrainError> {
        let environment = &with_model(environment, pretrained.as_ref());
        let (first, _) = resolve(&settings, environment)?;
        let saved = match pretrained {
            Some(model) => model,
            None => found::open(Path::new(&first.out_dir))?,
        };
        settings_json::fill_in(&mut settings, &saved.document.config, saved.whose())?;
        let (spec, mut notices) = resolve(&settings, environment)?;
        notices.extend(said(&saved));
        let dims = saved.document.dims;
        let tokenizer = saved.tokenizer()?;
        Ok(SampleSetup { spec, notices, dims, tokenizer, saved })
    }
}

/// If the settings ask to resume: fills in the checkpoint's settings and returns its document, with
/// notices about given settings that are not used.
pub fn checkpoint_to_resume(
    settings: &mut Settings,
    environment: &Environment,
) -> Result<Option<(Document, Vec<SettingNotice>)>, TrainError> {
    let (first, _) = resolve(settings, environment)?;
    let resumed = resume(settings, &first)?;
    Ok(resumed.map(|(saved, unused)| (saved.document, unused)))
}

/// The checkpoint to resume from, if the settings ask for one: `out_dir`'s last one, or the file
/// that `out_dir` names; then the run resumes in that file's folder. Fills in its settings.
fn resume(
    settings: &mut Settings,
    first: &RunSpec,
) -> Result<Option<(SavedRun, Vec<SettingNotice>)>, TrainError> {
    if first.init_from != InitFrom::Resume {
        return Ok(None);
    }
    let out_dir = Path::new(&first.out_dir);
    let mut saved = found::open_to_resume(out_dir)?;
    let mut notices = said(&saved);
    let config = &saved.document.config;
    notices.extend(settings_json::fill_in(settings, config, saved.whose())?);
    if saved.is_foreign()
        && let Some(&spec::Value::Int(block_size)) = settings.get("block_size").map(|it| &it.value)
    {
        saved.crop(u64::try_from(block_size).unwrap_or(0).max(1));
    }
    if out_dir.is_file()
        && let (Some(folder), Some(setting)) = (out_dir.parent(), settings.get("out_dir"))
    {
        let folder = if folder == Path::new("") { Path::new(".") } else { folder };
        let origin = setting.origin.clone();
        settings.set("out_dir", folder.to_string_lossy().into_owned().into(), origin)?;
    }
    Ok(Some((saved, notices)))
}

/// The sizes of the model that a run resumes with; the planner's choices for it stay.
pub fn resumed_dims(spec: &mut RunSpec, document: &Document) -> Result<Dims, TrainError> {
    keep_format(spec, document);
    let stored = document.dims;
    check_sizes(spec, &stored, &last_path(Path::new(&spec.out_dir)))?;
    Ok(stored)
}

/// Notices about given settings that differ from those the run was saved with.
fn changes(settings: &Settings, config: &Value) -> Vec<SettingNotice> {
    let said = settings_json::given(settings);
    let changed = said.into_iter().filter_map(|(key, new)| {
        let old = config.get(key).filter(|old| !is_same_value(old, &new))?;
        Some(SettingNotice {
            key,
            text: format!("{key} was {old} when the run was saved, now it is {new}"),
        })
    });
    changed.collect()
}

/// Whether two values of a setting are the same. nanoGPT's configs write 0 for 0.0.
fn is_same_value(one: &Value, other: &Value) -> bool {
    one == other || one.as_f64().is_some_and(|number| other.as_f64() == Some(number))
}

/// What is to be said about a checkpoint.
pub(crate) fn said(saved: &SavedRun) -> Vec<SettingNotice> {
    let notice = |text: &String| SettingNotice { key: "init_from", text: text.clone() };
    saved.notices.iter().map(notice).collect()
}

/// The environment, with what the files of a trained model say.
pub(crate) fn with_model(environment: &Environment, model: Option<&SavedRun>) -> Environment {
    let pretrained = model.map(SavedRun::pretrained).or(environment.pretrained);
    Environment { pretrained, ..environment.clone() }
}

/// Puts what a trained model fixes into the settings, so that a checkpoint of the new run has it.
fn keep_model(settings: &mut Settings, spec: &RunSpec, model: &SavedRun) -> Result<(), TrainError> {
    let Dims { n_layer, n_head, n_embd, bias, .. } = model.document.dims;
    let sizes = [("n_layer", n_layer), ("n_head", n_head), ("n_embd", n_embd)];
    for (key, size) in sizes.into_iter().chain([("block_size", spec.block_size)]) {
        let size = spec::Value::Int(size as i64);
        // What was asked for remains an override: it is shown as one.
        if settings.get(key).is_none_or(|setting| setting.value != size) {
            settings.set(key, size, Origin::Checkpoint)?;
        }
    }
    settings.set("bias", spec::Value::Bool(bias), Origin::Checkpoint)?;
    let gelu = match spec.gelu_kind() {
        GeluKind::Erf => Gelu::Erf,
        GeluKind::Tanh => Gelu::Tanh,
    };
    Ok(settings.set("gelu", gelu.word().to_owned().into(), Origin::Checkpoint)?)
}

/// The notice about a data set whose ids mean other text than the model's.
fn other_text(model: &SavedRun, dataset: &Dataset) -> Option<SettingNotice> {
    let (own, found) = (model.tokenizer().ok()?, dataset.tokenizer().ok()?);
    let text = format!(
        "data set '{}' maps ids to other text than the model: it starts without knowing this text",
        dataset.name()
    );
    (own != found).then_some(SettingNotice { key: "dataset", text })
}

/// The planner chose the moments' format when the run started; it stays.
fn keep_format(spec: &mut RunSpec, document: &Document) {
    if let (OptimizerState::Auto, Some(plan)) = (spec.optimizer_state, &document.plan) {
        spec.optimizer_state = match plan.state_options.format {
            plan::Dtype::Bf16 => OptimizerState::Bfloat16,
            _ => OptimizerState::Float32,
        };
    }
}

/// Opens `data/<name>`; an absolute path stays as it is, like in nanoGPT.
fn open_dataset(name: &str) -> Result<Dataset, TrainError> {
    if name == BUILTIN {
        return Ok(Dataset::builtin());
    }
    Ok(Dataset::open(&Path::new("data").join(name))?)
}

/// Notices about data files that differ from those the run was saved with. Changed files are an
/// error unless the user accepts them. Another data set's name is intended: `changes` reports it.
fn compare_data(
    spec: &RunSpec,
    (dataset, now): (&Dataset, Option<&DataFingerprint>),
    saved: &SavedRun,
) -> Result<Vec<SettingNotice>, TrainError> {
    let data = &saved.document.data;
    let (Some(then), Some(now), true) = (data, now, is_same_dataset(spec, saved)) else {
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
        notices.push(SettingNotice { key: "dataset", text });
    }
    Ok(notices)
}

/// Whether the run was saved with a data set of this name.
fn is_same_dataset(spec: &RunSpec, saved: &SavedRun) -> bool {
    saved.document.config.get("dataset").and_then(Value::as_str) == Some(&spec.dataset)
}

/// The model's sizes: those of the checkpoint, which settings and data set must match; without one,
/// from the settings and the data set's vocabulary.
fn dims(spec: &RunSpec, dataset: &Dataset, saved: Option<&SavedRun>) -> Result<Dims, TrainError> {
    let own = dataset.meta().map(|meta| u64::from(meta.vocab_size));
    let Some(saved) = saved else {
        return Ok(spec.dims(own.unwrap_or(GPT2_ROWS))?);
    };
    let stored = saved.document.dims;
    let (rows, name) = (stored.vocab_size, dataset.name());
    // nanoGPT never compares them; a model may have more rows than ids.
    let fits = match own {
        None => rows >= u64::from(GPT2_IDS),
        Some(own) if saved.is_foreign() => rows >= own,
        // A run that began with another model's weights keeps that model's rows.
        Some(own) if is_same_dataset(spec, saved) => rows >= own,
        Some(own) => rows == own,
    };
    let tokenizers = (&saved.document.tokenizer, dataset.tokenizer());
    if let (Some(stored), Ok(found)) = tokenizers
        && *stored != found
        && fits
    {
        let what = format!(
            "data set '{name}' maps its {rows} ids to other text than the model was trained \
             with: resume with the data set it was trained on"
        );
        return Err(TrainError::Mismatch { path: saved.path.clone(), what });
    }
    if !fits {
        let own = own.unwrap_or(GPT2_IDS.into());
        let what = format!(
            "the model has a vocabulary of {rows}, data set '{name}' has {own}: resume with the \
             data set it was trained on"
        );
        return Err(TrainError::Mismatch { path: saved.path.clone(), what });
    }
    check_sizes(spec, &stored, &saved.path)?;
    Ok(stored)
}

/// Keys cannot change the sizes of an existing model.
fn check_sizes(spec: &RunSpec, stored: &Dims, path: &Path) -> Result<(), TrainError> {
    let asked = Dims { block_size: stored.block_size, ..spec.dims(stored.vocab_size)? };
    if asked != *stored {
        let what = format!(
            "the model has n_layer={} n_head={} n_embd={} bias={}, which keys cannot change; \
             you asked for n_layer={} n_head={} n_embd={} bias={}: leave these keys out",
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

/// Refuses a folder with checkpoints: a new run must not overwrite them.
fn refuse_checkpoints(out_dir: &Path) -> Result<(), TrainError> {
    let there = |path: PathBuf| path.symlink_metadata().is_ok();
    if found::files(out_dir).into_iter().any(there) {
        return Err(TrainError::OutDirInUse { path: out_dir.to_path_buf() });
    }
    Ok(())
}
