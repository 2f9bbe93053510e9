//! What a user types, with files that exist only here.

use fitgpt_spec::{
    Command, Environment, RunSpec, SettingNotice, Settings, SpecError, Value, World, resolve,
};
use std::io;

/// Seconds since 1970 in every test.
pub const NOW: f64 = 1731668389.25;

/// Settings from arguments and files.
pub fn read(
    command: Command,
    arguments: &[&str],
    files: &[(&str, &str)],
) -> Result<Settings, SpecError> {
    let read = |path: &str| {
        let found = files.iter().find(|(name, _)| *name == path);
        let missing = || io::Error::new(io::ErrorKind::NotFound, "no such file");
        found.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(missing)
    };
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    Settings::read(command, &arguments, &World { read: &read, unix_time: NOW })
}

/// Settings of `train`.
pub fn train(arguments: &[&str], files: &[(&str, &str)]) -> Settings {
    read(Command::Train, arguments, files).unwrap_or_else(|error| panic!("{error}"))
}

/// The message of what is refused while reading.
pub fn refused(arguments: &[&str], files: &[(&str, &str)]) -> String {
    read(Command::Train, arguments, files).unwrap_err().to_string()
}

/// The run that arguments lead to.
pub fn run_of(
    command: Command,
    arguments: &[&str],
) -> Result<(RunSpec, Vec<SettingNotice>), SpecError> {
    resolve(&read(command, arguments, &[])?, &Environment::default())
}

/// The spelling of a key's value.
pub fn value(settings: &Settings, key: &str) -> String {
    settings.get(key).map(|setting| setting.value.to_string()).unwrap_or_default()
}

/// Keys whose value is not the default, as `key=value`, in the order of the table.
pub fn changed(settings: &Settings) -> Vec<String> {
    let default = |name: &str| {
        let key = fitgpt_spec::Key::find(name).unwrap();
        key.default_for(settings.command())
    };
    let differs = |name: &str, value: &Value| *value != default(name);
    let settings = settings.iter().filter(|s| differs(s.key.name, &s.value));
    settings.map(|s| format!("{}={}", s.key.name, s.value)).collect()
}
