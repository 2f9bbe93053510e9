//! `fitgpt train TEXT`: makes settings for a text, a folder of texts or a data set. All refusals
//! happen before the text is prepared. A run that was started before is resumed.

mod data_set;
mod size;

use crate::device::Device;
use crate::invocation::{environment, program, settings};
use crate::numbers::grouped;
use crate::run_report::further;
use crate::{model_name, screen};
use data::known::DATA_SETS;
use data_set::{dataset_name, is_data_set, prepared, same_folder, stem_of};
use size::sized;
use spec::shell::quoted;
use spec::{CheckpointFormat, Command, Origin, RunSpec, Settings, SpecError, resolve};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use train::TrainError;
use train::save::{self, Document};
use train::setup::checkpoint_to_resume;

/// How long the run takes unless the user gives a time.
const USUAL_SECONDS: f64 = 600.0;

/// The arguments of `train TEXT`.
pub struct TextArguments<'a> {
    /// The text, folder or data set.
    pub path: &'a str,
    /// The keys.
    pub keys: &'a [String],
    /// The value of `--time`.
    pub seconds: Option<f64>,
}

/// The result of `train TEXT`.
pub enum OwnText {
    /// A run to start or resume, with its device if it is already open.
    Run(Box<Settings>, Option<Device>),
    /// The run is finished; the commands that continue it were printed.
    Finished,
    /// Interrupted before training began.
    Interrupted,
}

/// The index and path of the argument that names a text, if there is one: neither a key nor a
/// config file. A data set may be named without `data/`.
pub fn path_among(arguments: &[String]) -> Result<Option<(usize, String)>, SpecError> {
    let is_path = |argument: &&String| {
        let config = argument.ends_with(".py") || argument.ends_with(".toml");
        !argument.starts_with('-') && !argument.contains('=') && !config
    };
    let found = arguments.iter().enumerate().find(|(_, argument)| is_path(argument));
    let Some((index, argument)) = found else {
        return Ok(None);
    };
    let in_data = Path::new("data").join(argument);
    match (Path::new(argument).exists(), is_data_set(&in_data)) {
        (true, _) => Ok(Some((index, argument.clone()))),
        (false, true) => Ok(Some((index, in_data.to_string_lossy().into_owned()))),
        (false, false) => Err(SpecError::Conflict { what: missing(argument) }),
    }
}

/// The message for a text that does not exist.
fn missing(argument: &str) -> String {
    let shown: String = argument.chars().take(60).collect();
    let is_known = DATA_SETS.iter().any(|known| known.name == argument);
    match is_known || argument.starts_with("http") {
        true => format!(
            "'{shown}' is not here yet: get it with `fitgpt prepare {shown} --out data/NAME`, \
             then train with `fitgpt train data/NAME`"
        ),
        false => format!(
            "'{shown}' does not exist; give a text file, a folder of text or a data set, a config \
             that ends in .py or .toml, or --key=value"
        ),
    }
}

/// Makes settings for the text.
pub fn settings_for(
    request: &TextArguments<'_>,
    stop: &Arc<AtomicBool>,
) -> Result<OwnText, TrainError> {
    let start = Instant::now();
    let path = request.path;
    let folder = match is_data_set(Path::new(path)) {
        true => PathBuf::from(path),
        false => Path::new("data").join(stem_of(path)),
    };
    let mut settings = typed(request, &folder)?;
    let (run, _) = resolve(&settings, &environment())?;
    if run.checkpoint_format == CheckpointFormat::Ckpt {
        let what = "a ckpt.pt keeps no settings, so a run that was sized for a text could not \
                    resume from it: leave out checkpoint_format and use `export --to ckpt` \
                    afterwards";
        return Err(SpecError::Conflict { what: what.to_string() }.into());
    }
    let is_begun = save::last_path(Path::new(&run.out_dir)).exists();
    if is_begun || Path::new(&run.out_dir).is_file() {
        settings.set("init_from", "resume".to_string().into(), Origin::Sized)?;
        if request.seconds.is_some() {
            screen::notice("--time is ignored: the run was sized when it started");
        }
        return resumed(path, &folder, settings);
    }
    let device = Device::find(run.device, settings.asks_for_gpu())?;
    if !is_data_set(Path::new(path)) && !prepared(path, &folder, stop)? {
        return Ok(OwnText::Interrupted);
    }
    let seconds = request.seconds.unwrap_or(USUAL_SECONDS);
    sized(&folder, &mut settings, &device, (seconds, start))?;
    match stop.load(Ordering::Relaxed) {
        true => Ok(OwnText::Interrupted),
        false => Ok(OwnText::Run(Box::new(settings), Some(device))),
    }
}

/// Reads the keys as settings of a run on this folder. Keys that contradict it are refused.
fn typed(request: &TextArguments<'_>, folder: &Path) -> Result<Settings, TrainError> {
    let TextArguments { path, keys, .. } = request;
    let conflict = |what: String| Err(SpecError::Conflict { what }.into());
    for key in *keys {
        if key.starts_with('-') && !key.contains('=') {
            settings(Command::Train, std::slice::from_ref(key))?; // its error gives the right form
        }
        if !key.starts_with('-') {
            return conflict(format!(
                "'{path}' and '{key}': give one text or folder, or config files, not both; to use \
                 a config with your text, run `fitgpt prepare` and pass --dataset=NAME"
            ));
        }
        if key.starts_with("--dataset=") || key.starts_with("--init_from=") {
            return conflict(format!("'{path}' is the text to train on: leave out {key}"));
        }
    }
    let dataset = format!("--dataset={}", dataset_name(folder));
    let mut settings = settings(Command::Train, &[*keys, &[dataset]].concat())?;
    if settings.get("out_dir").is_some_and(|out_dir| !out_dir.is_given()) {
        settings.set("out_dir", format!("out-{}", stem_of(path)).into(), Origin::Sized)?;
    }
    Ok(settings)
}

/// Resumes a run that was started before, or reports that it is finished.
fn resumed(path: &str, folder: &Path, settings: Settings) -> Result<OwnText, TrainError> {
    let mut filled = settings.clone();
    let Some((document, unused)) = checkpoint_to_resume(&mut filled, &environment())? else {
        return Ok(OwnText::Run(Box::new(settings), None));
    };
    let (run, _) = resolve(&filled, &environment())?;
    let stored = document.config["dataset"].as_str().unwrap_or_default();
    if !same_folder(&Path::new("data").join(stored), folder) {
        let (out_dir, folder) = (&run.out_dir, folder.display());
        let what = format!(
            "{out_dir} holds a run on the data set '{stored}', not on {folder}: give another \
             --out_dir"
        );
        return Err(SpecError::Conflict { what }.into());
    }
    if document.progress.iteration <= run.max_iters {
        return Ok(OwnText::Run(Box::new(settings), None));
    }
    unused.iter().for_each(|notice| screen::notice(&notice.to_string()));
    tell_finished(path, &run, &document);
    Ok(OwnText::Finished)
}

fn tell_finished(path: &str, run: &RunSpec, document: &Document) {
    let (program, path) = (program(), quoted(path));
    let out_dir = model_name::typed(&run.out_dir);
    screen::line(&format!(
        "{}: this run is finished ({} iterations, best validation loss {:.4}).",
        run.out_dir,
        grouped(document.progress.iteration),
        document.progress.best_val_loss
    ));
    screen::line(&format!("Generate text with:\n  {program} sample {out_dir}"));
    screen::line(&format!("Train further with:\n  {program} train {path} {}", further(run)));
    let again = quoted(&format!("--out_dir={}-2", run.out_dir));
    screen::line(&format!("Start over with:\n  {program} train {path} {again}"));
}
