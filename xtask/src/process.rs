//! Finds the workspace and starts other programs; the error type of all tasks.

use serde_json::Value;
use std::fmt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Why a task did not succeed; the variant decides the exit code.
#[derive(Debug)]
pub enum Failure {
    /// The command line is invalid: exit code 2, with the usage text.
    Usage(String),
    /// The task ran and found a problem: exit code 1.
    Task(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(message) | Failure::Task(message) => f.write_str(message),
        }
    }
}

/// Refuses arguments of a task that takes none.
pub fn expect_no_arguments(task: &str, args: &[String]) -> Result<(), Failure> {
    match args.first() {
        None => Ok(()),
        Some(arg) => Err(Failure::Usage(format!("{task} takes no argument, but got '{arg}'"))),
    }
}

/// The folder that holds the workspace's `Cargo.toml`; `$FITGPT_ROOT` where this program was copied
/// to another machine.
///
/// Cargo's variable is read when we run, because a binary built in another checkout may be reused.
pub fn workspace_root() -> PathBuf {
    if let Some(root) = std::env::var_os("FITGPT_ROOT") {
        return PathBuf::from(root);
    }
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    xtask.parent().map(PathBuf::from).unwrap_or(xtask)
}

/// Where cargo puts what it builds.
pub fn target_folder() -> PathBuf {
    let given = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    workspace_root().join(given.unwrap_or_else(|| PathBuf::from("target")))
}

/// The cargo that started us, set to run in the workspace root.
pub fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(workspace_root());
    command
}

/// The Python to use when the command line names none: `$FITGPT_PYTHON`, else `python3`.
pub fn default_python() -> String {
    std::env::var("FITGPT_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

/// Runs a program whose output goes straight to the terminal.
pub fn run(command: &mut Command) -> Result<(), Failure> {
    let status = command.status().map_err(|error| not_started(command, &error))?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::Task(format!("{}: {status}", shown(command))))
}

/// Runs a program and gives back its standard output; its standard error goes to the terminal.
pub fn capture(command: &mut Command) -> Result<String, Failure> {
    let output =
        command.stderr(Stdio::inherit()).output().map_err(|error| not_started(command, &error))?;
    if !output.status.success() {
        return Err(Failure::Task(format!("{}: {}", shown(command), output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The output of a program; none if it cannot be run or fails.
pub fn ask(command: &mut Command) -> Option<String> {
    let output = command.stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then_some(text)
}

/// The command as typed in a shell, without its environment.
pub fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// The executable of a target, from cargo's messages.
pub fn executable(messages: &str, target: &str) -> Option<PathBuf> {
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut named = artifacts.filter(|message| message["target"]["name"] == target);
    named.find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

fn not_started(command: &Command, error: &std::io::Error) -> Failure {
    Failure::Task(format!("{}: could not be started: {error}", shown(command)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_holds_this_package() {
        assert!(workspace_root().join("xtask/src/process.rs").is_file());
    }

    #[test]
    fn failures_name_the_command() {
        for (program, want) in [("false", "false x: exit status: 1"), ("/no/such", "/no/such x: ")]
        {
            let failure = run(Command::new(program).arg("x")).unwrap_err().to_string();
            assert!(failure.starts_with(want), "{failure}");
        }
    }

    #[test]
    fn executables_are_found_in_cargos_messages() {
        let messages = "noise\n\
            {\"target\":{\"name\":\"it\"},\"executable\":null}\n\
            {\"target\":{\"name\":\"it\"},\"executable\":\"/t/it\"}\n";
        assert_eq!(executable(messages, "it"), Some(PathBuf::from("/t/it")));
        assert_eq!(executable(messages, "other"), None);
    }

    #[test]
    fn output_is_captured_or_absent() {
        assert_eq!(capture(Command::new("echo").arg("yes")).unwrap(), "yes\n");
        assert_eq!(ask(&mut Command::new("false")), None);
    }
}
