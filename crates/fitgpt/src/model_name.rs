//! Which model a name means, and which name a command was given. `sample`, `eval`, `export` and
//! `train --init_from` all find their model here.

use crate::{pretrained, screen};
use ::hub::ModelRepo;
use interop::hf;
use spec::shell::quoted;
use spec::{Gpt2, InitFrom, Origin, Setting, Settings, SpecError};
use std::path::{Path, PathBuf};
use train::TrainError;
use train::found;
use train::nearby;
use train::saved_run::SavedRun;

/// Most characters of a name in a message.
const LONGEST: usize = 200;

/// The path of the model that a name means: a file or folder here, else a model of the hub, which
/// is downloaded once. `words` are further names that could be meant, for the message.
pub fn path_of(name: &str, words: &[&str]) -> Result<PathBuf, TrainError> {
    if name.is_empty() {
        let what = "the name of the model is empty".to_owned();
        return Err(SpecError::Conflict { what }.into());
    }
    if is_here(name) {
        return Ok(name.into());
    }
    if !is_of_hub(name) {
        let what = nearby::explanation(Path::new(name), words);
        return Err(TrainError::NoCheckpoint { name: shown(name), what });
    }
    let of_owner = Gpt2::of(name).is_none();
    pretrained::from_hub(name).map_err(|error| match error {
        TrainError::Text { what } if of_owner => {
            let meant = nearby::meant(Path::new(name), &[]);
            let meant = meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
            let what = format!("there is no file or folder {} here{meant}; {what}", shown(name));
            TrainError::Text { what }
        }
        other => other,
    })
}

/// Whether a name can only be one of the hub's: nothing here has it, and it is one of OpenAI's
/// models or `owner/name` without such a folder `owner`.
pub fn is_of_hub(name: &str) -> bool {
    let is_file = |model: &str| [".safetensors", ".pt"].iter().any(|end| model.ends_with(end));
    let is_pair = || match name.split_once('/') {
        Some((owner, model)) => {
            !owner.starts_with('~')
                && !is_file(model)
                && !Path::new(owner).exists()
                && ModelRepo::new(name).is_ok()
        }
        None => false,
    };
    !is_here(name) && (Gpt2::of(name).is_some() || is_pair())
}

/// Whether a name is that of a file or folder. OpenAI's names mean the hub, unless the folder of
/// that name holds a model.
fn is_here(name: &str) -> bool {
    let path = Path::new(name);
    match Gpt2::of(name) {
        Some(_) => hf::is_folder(path) || found::is_run(path),
        None => path.exists(),
    }
}

/// The name of a model among the arguments of a command.
pub struct Named {
    /// The name, if there is one.
    pub name: Option<String>,
    /// The other arguments.
    pub rest: Vec<String>,
}

impl Named {
    /// Takes the name out of the arguments; config files and keys remain.
    pub fn among(arguments: &[String]) -> Result<Named, SpecError> {
        let (names, rest): (Vec<&String>, Vec<&String>) =
            arguments.iter().partition(|argument| is_name(argument));
        // `--key value` is a mistake of its own, which reading the settings explains.
        let is_bare = |argument: &String| argument.starts_with("--") && !argument.contains('=');
        if let [first, second, ..] = names[..]
            && !arguments.iter().any(is_bare)
        {
            return Err(two(&format!("'{}'", shown(first)), &format!("'{}'", shown(second))));
        }
        let name = names.first().map(|name| name.to_string());
        Ok(Named { name, rest: rest.into_iter().cloned().collect() })
    }

    /// Opens the model: the one that is named, else that of `init_from`, else that of `out_dir`,
    /// else the newest run's. `command` is for messages.
    pub fn open(&self, settings: &mut Settings, command: &str) -> Result<SavedRun, TrainError> {
        if let Some(name) = &self.name {
            check_alone(name, settings)?;
            return found::open(&path_of(name, Gpt2::WORDS)?);
        }
        if let Some(model) = pretrained::open(settings)? {
            return Ok(model);
        }
        let out_dir = settings.get("out_dir");
        let given = out_dir.filter(|out_dir| out_dir.is_given()).map(|given| given.value.plain());
        if let Some(out_dir) = given {
            return found::open(Path::new(&out_dir));
        }
        let Some(newest) = nearby::runs(Path::new("")).into_iter().next() else {
            let what = format!(
                "there is no run in this folder: train a model with `fitgpt train`, or name one: \
                 fitgpt {command} CHECKPOINT|OUT_DIR"
            );
            return Err(TrainError::Text { what });
        };
        let shown = newest.display();
        screen::note(&format!(
            "note: using {shown}, the newest run in this folder (`{command} OUT_DIR` uses another)"
        ));
        settings.set("out_dir", newest.to_string_lossy().into_owned().into(), Origin::Newest)?;
        found::open(&newest)
    }
}

/// Whether an argument names a model. A folder may have an equals sign in its name.
fn is_name(argument: &str) -> bool {
    let is_config = argument.ends_with(".py") || argument.ends_with(".toml");
    let is_key =
        argument.starts_with('-') || argument.contains('=') && !Path::new(argument).exists();
    !is_config && !is_key
}

/// Refuses a key of the command line that names another model. One in a config file does not
/// count: the argument is more specific.
fn check_alone(name: &str, settings: &Settings) -> Result<(), SpecError> {
    let typed = |key: &str| -> Option<&Setting> {
        settings.get(key).filter(|setting| matches!(setting.origin, Origin::Argument { .. }))
    };
    let resumes = |setting: &&Setting| InitFrom::of(&setting.value.plain()) == InitFrom::Resume;
    match typed("init_from").filter(|setting| !resumes(setting)).or(typed("out_dir")) {
        None => Ok(()),
        Some(other) => {
            let key = format!("--{}={}", other.key.name, shown(&other.value.plain()));
            Err(two(&format!("'{}'", shown(name)), &key))
        }
    }
}

fn two(first: &str, second: &str) -> SpecError {
    SpecError::Conflict { what: format!("{first} and {second} name two models: give one of them") }
}

/// How a path is typed as the name of a model.
pub fn typed(path: &str) -> String {
    match is_name(path) {
        true => quoted(path),
        false if path.starts_with('-') => quoted(&format!("./{path}")),
        false => quoted(&format!("--out_dir={path}")),
    }
}

/// The first characters of a name, which may have any length.
fn shown(name: &str) -> String {
    name.chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_name_could_be() {
        for name in ["gpt2", "gpt2-xl", "owner/name", "Owner-1/na.me_2"] {
            assert!(is_of_hub(name), "{name}");
        }
        // Tests run in the crate's folder, which has `src`.
        for name in [
            "",
            "gpt3",
            "src",
            "src/none",
            "./none",
            "/none",
            "../a",
            "~/a",
            "a/",
            "a/b/c",
            "a//b",
            "runs/best.safetensors",
            "out/ckpt.pt",
        ] {
            assert!(!is_of_hub(name), "{name}");
        }
    }

    #[test]
    fn names_are_told_from_keys_and_configs() {
        for (argument, want) in [
            ("out", true),
            ("out/best.safetensors", true),
            ("a.py", false),
            ("a.toml", false),
            ("--out_dir=x", false),
            ("-x", false),
            ("lr=1", false),
        ] {
            assert_eq!(is_name(argument), want, "{argument}");
        }
        assert_eq!(typed("out a"), "'out a'");
        assert_eq!(typed("-x"), "./-x");
        assert_eq!(typed("a.py"), "--out_dir=a.py");
    }
}
