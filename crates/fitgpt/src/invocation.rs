//! How this process was started: its arguments as settings, its environment, its own name.

use crate::device;
use spec::shell::quoted;
use spec::{Environment, World};
use std::io::Read;
use std::time::{SystemTime, UNIX_EPOCH};
use train::TrainError;

/// At most this much of a config file is read; the parser's own limit is lower.
const MOST_CONFIG_BYTES: u64 = 2 << 20;

/// Reads settings from the arguments after the command.
pub fn settings(
    command: spec::Command,
    arguments: &[String],
) -> Result<spec::Settings, TrainError> {
    device::check_memory()?;
    Ok(with_world(|world| spec::Settings::read(command, arguments, world))?)
}

/// Calls `work` with access to files and the clock.
pub fn with_world<T>(work: impl FnOnce(&World<'_>) -> T) -> T {
    let read = |path: &str| {
        let mut content = Vec::new();
        if !std::fs::metadata(path)?.is_file() {
            return Err(std::io::Error::other("it is not a regular file"));
        }
        std::fs::File::open(path)?.take(MOST_CONFIG_BYTES + 1).read_to_end(&mut content)?;
        if content.len() as u64 > MOST_CONFIG_BYTES {
            let what = format!("it has more than {MOST_CONFIG_BYTES} bytes: is it a config?");
            return Err(std::io::Error::other(what));
        }
        Ok(content)
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
    work(&World { read: &read, unix_time: now })
}

/// What the process finds around it.
pub fn environment() -> Environment {
    Environment { rank: plan::Rank::ONLY, cuda_devices: device::gpu_count(), pretrained: None }
}

/// How this program was started, for commands that we print for the user to copy.
pub fn program() -> String {
    if std::env::var_os("CARGO_MANIFEST_DIR").is_some() {
        return "cargo run --release --".to_string();
    }
    let typed = std::env::args_os().next().map(|name| name.to_string_lossy().into_owned());
    quoted(&typed.unwrap_or_else(|| "fitgpt".to_string()))
}
