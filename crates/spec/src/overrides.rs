//! nanoGPT's command line: arguments are applied from left to right, the last one wins.
//! `--key=value` sets a key; an argument without `=` and leading dashes is a config file.

use crate::error::{SpecError, shown};
use crate::keys::Key;
use crate::py_file::{self, Names};
use crate::settings::{Origin, Settings, World};
use crate::toml_file;
use crate::value::Value;

/// A larger file is not a config file.
const LONGEST_FILE: usize = 1 << 20;

/// Applies all arguments.
pub fn apply(
    settings: &mut Settings,
    arguments: &[String],
    world: &World<'_>,
) -> Result<(), SpecError> {
    for (index, argument) in (1..).zip(arguments) {
        match (argument.strip_prefix("--"), argument.split_once('=')) {
            (Some(pair), Some(_)) => key_value(settings, pair, index)?,
            (Some(name), None) => return Err(no_value(argument, name, index)),
            (None, Some((name, value))) => {
                let name = name.trim_start_matches('-');
                return Err(no_dashes(argument, name, value, index));
            }
            (None, None) => file(settings, argument, index, world)?,
        }
    }
    Ok(())
}

fn key_value(settings: &mut Settings, pair: &str, index: usize) -> Result<(), SpecError> {
    let (name, text) = pair.split_once('=').unwrap_or((pair, ""));
    let (at, command) = (Origin::Argument { index }, settings.command());
    match Key::find(name) {
        Some(key) if !key.used_by(command) => {
            Err(SpecError::OtherCommand { name: key.name, at, command })
        }
        _ => settings.set_text(name, text, at),
    }
}

fn no_value(given: &str, name: &str, index: usize) -> SpecError {
    let instead = match (Key::find(name), Key::nearest(name)) {
        (Some(key), _) => {
            format!("write --{name}=value, e.g. --{name}={}", Value::from(key.default))
        }
        (None, Some(nearest)) => {
            format!("keys are written --key=value; did you mean --{nearest}=…?")
        }
        (None, None) => "keys are written --key=value; --help lists them".to_string(),
    };
    SpecError::Argument { given: given.to_string(), index, instead }
}

fn no_dashes(given: &str, name: &str, value: &str, index: usize) -> SpecError {
    let instead = match Key::find(name).map(|key| key.name).or_else(|| Key::nearest(name)) {
        Some(name) => format!("write --{name}={}", shown(value)),
        None => "keys are written --key=value, and a config file has no = in its path".to_string(),
    };
    SpecError::Argument { given: given.to_string(), index, instead }
}

fn file(
    settings: &mut Settings,
    path: &str,
    index: usize,
    world: &World<'_>,
) -> Result<(), SpecError> {
    let is_python = path.ends_with(".py");
    if !is_python && !path.ends_with(".toml") {
        let instead =
            "a config file ends in .py or .toml, a key is written --key=value; `train` also \
             accepts a text file or a folder"
                .to_string();
        return Err(SpecError::Argument { given: path.to_string(), index, instead });
    }
    let bytes = (world.read)(path).map_err(|error| SpecError::Unreadable {
        path: path.to_string(),
        problem: error.to_string(),
    })?;
    if bytes.len() > LONGEST_FILE {
        let (bytes, limit) = (bytes.len() as u64, LONGEST_FILE as u64);
        return Err(SpecError::TooLong { path: path.to_string(), bytes, limit });
    }
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let ends = bytes[..error.valid_up_to()].iter().filter(|&&byte| byte == b'\n').count();
        SpecError::NotText { path: path.to_string(), line: ends as u32 + 1 }
    })?;
    settings.add_file(path);
    if is_python {
        let mut names = InFile { settings, path };
        py_file::evaluate(path, text, world.unix_time, &mut names)
    } else {
        for assignment in toml_file::read(path, text)? {
            let origin = Origin::File { path: path.to_string(), line: assignment.line };
            settings.set(&assignment.name, assignment.value, origin)?;
        }
        Ok(())
    }
}

/// The settings as a `.py` file sees them: the values set so far, by files and arguments.
struct InFile<'a> {
    settings: &'a mut Settings,
    path: &'a str,
}

impl Names for InFile<'_> {
    fn get(&self, name: &str) -> Option<Value> {
        self.settings.get(name).map(|setting| setting.value.clone())
    }

    fn set(&mut self, name: &str, value: Value, line: u32) -> Result<(), SpecError> {
        let origin = Origin::File { path: self.path.to_string(), line };
        self.settings.set(name, value, origin)
    }
}
