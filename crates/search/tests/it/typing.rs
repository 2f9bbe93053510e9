//! Runs as a user asks for them: typed arguments, and the files of `config/`.

use spec::{Command, Environment, RunSpec, Settings, SpecError, World, resolve};
use std::path::Path;

/// The run of `train` that arguments lead to; files are found from the project's root.
pub fn run_of(arguments: &[&str]) -> Result<RunSpec, SpecError> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| std::fs::read(root.join(path));
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    let world = World { read: &read, unix_time: 0.0 };
    let settings = Settings::read(Command::Train, &arguments, &world)?;
    Ok(resolve(&settings, &Environment::default())?.0)
}

/// The run of a file of `config/`.
pub fn config(name: &str) -> RunSpec {
    let path = format!("config/{name}.py");
    run_of(&[&path]).unwrap_or_else(|error| panic!("{error}"))
}
