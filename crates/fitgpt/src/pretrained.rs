//! The trained model that `init_from` names, and models of the Hugging Face hub, which are
//! downloaded once.

use crate::interrupt::nothing_to_save;
use crate::model_name;
use crate::numbers::duration;
use crate::preparation::size;
use crate::screen;
use ::hub::{Cache, Client, HubError, ModelFolder, ModelRepo, Watch};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use interop::hf;
use spec::{Environment, InitFrom, Pretrained, PretrainedModel, Settings};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use train::TrainError;
use train::found;
use train::saved_run::SavedRun;

/// Pause between two lines in a pipe.
const PAUSE: Duration = Duration::from_secs(5);

/// Below this many columns there is no room for a bar next to its message.
const NARROW: usize = 70;

/// Opens the model that `init_from` names; none if it names none.
pub fn open(settings: &Settings) -> Result<Option<SavedRun>, TrainError> {
    match named(settings) {
        Some(Pretrained { name, .. }) => Ok(Some(found::open(&path_of_key(&name)?)?)),
        None => Ok(None),
    }
}

/// The path of the model that `init_from` names.
fn path_of_key(name: &str) -> Result<PathBuf, TrainError> {
    model_name::path_of(name, InitFrom::WORDS).map_err(|error| match error {
        TrainError::NoCheckpoint { name, what } => {
            TrainError::NoCheckpoint { name: format!("init_from='{name}'"), what }
        }
        other => other,
    })
}

/// The environment, with what the files of `init_from`'s model say. OpenAI's models are known; of
/// others at most `config.json` is downloaded.
pub fn sizes(settings: &Settings, environment: Environment) -> Result<Environment, TrainError> {
    let Some(Pretrained { name, model: known }) = named(settings) else {
        return Ok(environment);
    };
    let pretrained = if model_name::is_of_hub(&name) {
        match (cached_config(&name)?, known) {
            (Some(path), _) => config(&path)?,
            (None, Some(known)) => known,
            (None, None) => config(&downloaded_config(&name)?)?,
        }
    } else {
        let path = path_of_key(&name)?;
        match hf::is_folder(&path) && !found::is_run(&path) {
            true => config(&path.join(hf::CONFIG))?,
            false => found::open(&path)?.pretrained(),
        }
    };
    Ok(Environment { pretrained: Some(pretrained), ..environment })
}

/// The model that `init_from` names.
fn named(settings: &Settings) -> Option<Pretrained> {
    let setting = settings.get("init_from")?;
    InitFrom::of(&setting.value.plain()).pretrained().cloned()
}

fn config(path: &Path) -> Result<PretrainedModel, TrainError> {
    let config = hf::Config::read(path)?;
    Ok(PretrainedModel { dims: config.dims, gelu: train::saved_run::gelu_kind(config.gelu) })
}

fn cached_config(name: &str) -> Result<Option<PathBuf>, TrainError> {
    let cache = Cache::from_environment().map_err(failed)?;
    Ok(ModelRepo::new(name).ok().and_then(|repo| cache.config(&repo)))
}

/// The folder of a model of the hub: from the cache, or downloaded.
pub fn from_hub(name: &str) -> Result<PathBuf, TrainError> {
    // Another kind of model is refused before its weights are downloaded.
    config(&downloaded_config(name)?)?;
    let model = downloaded(name, |client, cache, repo, watch| client.model(cache, repo, watch))?;
    let ModelFolder { path, commit, is_new } = model;
    if is_new {
        let commit = short(&commit);
        screen::note(&format!("{name} at {commit}: downloaded to {}", path.display()));
    }
    Ok(path)
}

/// The `config.json` of a model of the hub.
fn downloaded_config(name: &str) -> Result<PathBuf, TrainError> {
    downloaded(name, |client, cache, repo, watch| client.model_config(cache, repo, watch))
}

/// Does something with a model of the hub. Nothing is lost if a signal ends the process meanwhile:
/// the next download resumes.
fn downloaded<T>(
    name: &str,
    work: impl FnOnce(&Client, &Cache, &ModelRepo, &mut dyn Watch) -> ::hub::Result<T>,
) -> Result<T, TrainError> {
    let repo = ModelRepo::new(name).map_err(failed)?;
    let cache = Cache::from_environment().map_err(failed)?;
    let client = Client::from_environment(Default::default());
    let mut shown = Shown::new(name);
    let done = nothing_to_save(|| work(&client, &cache, &repo, &mut shown));
    shown.bar.finish_and_clear();
    done.map_err(failed)
}

fn failed(error: HubError) -> TrainError {
    TrainError::Text { what: error.to_string() }
}

/// The start of a commit's name.
fn short(commit: &str) -> String {
    commit.chars().take(12).collect()
}

/// Shows a download on standard error: a bar on a terminal, an occasional line in a pipe.
struct Shown {
    name: String,
    bar: ProgressBar,
    file: String,
    whole: Option<u64>,
    /// When the file began, and the bytes that were there already.
    began: Option<(Instant, u64)>,
    last_line: Instant,
}

impl Shown {
    fn new(name: &str) -> Shown {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
        let template = match screen::width() < NARROW {
            true => "{percent}%  {msg}",
            false => "{wide_bar:.cyan} {percent}%  {msg}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("━╸ "));
        }
        let (name, file) = (name.to_owned(), String::new());
        Shown { name, bar, file, whole: None, began: None, last_line: Instant::now() }
    }

    fn words(&self, bytes: u64) -> String {
        let Some((at, before)) = self.began else {
            return self.file.clone();
        };
        let seconds = at.elapsed().as_secs_f64().max(1e-3);
        let rate = bytes.saturating_sub(before) as f64 / seconds;
        let left = self.whole.map(|whole| whole.saturating_sub(bytes) as f64);
        let left = match left {
            Some(left) if rate > 0.0 && seconds > 1.0 => {
                format!("  {} left", duration(left / rate))
            }
            _ => String::new(),
        };
        format!("{}  {}  {:.1} MB/s{left}", self.file, size(bytes), rate / 1e6)
    }
}

impl Watch for Shown {
    fn note(&mut self, line: &str) {
        self.bar.suspend(|| screen::note(line));
    }

    fn begin(&mut self, file: &str, bytes: Option<u64>) {
        (self.file, self.whole, self.began) = (file.to_owned(), bytes, None);
        self.bar.set_length(bytes.unwrap_or(0));
        if bytes.is_some_and(|bytes| bytes > 50_000_000) {
            let (name, whole) = (self.name.clone(), size(bytes.unwrap_or(0)));
            self.note(&format!(
                "downloading {name}: {file}, {whole}; Ctrl-C keeps what has arrived, and the same \
                 command resumes"
            ));
        }
    }

    fn progress(&mut self, bytes: u64) {
        self.began.get_or_insert((Instant::now(), bytes));
        if !self.bar.is_hidden() {
            self.bar.set_position(bytes);
            self.bar.set_message(self.words(bytes));
        } else if self.last_line.elapsed() >= PAUSE {
            self.last_line = Instant::now();
            let share = self.whole.filter(|whole| *whole > 0).map(|whole| 100 * bytes / whole);
            let share = share.map_or_else(String::new, |share| format!("{share}%  "));
            screen::note(&format!("{share}{}", self.words(bytes)));
        }
    }
}
