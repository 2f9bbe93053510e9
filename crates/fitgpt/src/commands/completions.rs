//! `fitgpt completions`: prints the script that makes a shell complete commands, flags and keys.

use super::line;
use crate::completion::scripts::Shell;
use crate::screen::show;
use ::train::TrainError;
use spec::{SpecError, Values};

/// The command's row.
pub static COMMAND: super::Command = super::Command {
    name: "completions",
    about: "print the script that lets your shell complete fitgpt's commands and keys",
    text: &[
        "Prints a completion script for bash, zsh, fish or PowerShell. The shell then completes \
         commands, flags, keys and their values, card names, data sets and paths. The pip package \
         installs the scripts of the first three beside itself; shells find them there only if \
         the environment's share folder is one they search, as with a system-wide install.",
    ],
    usage: &[line("fitgpt completions SHELL", "")],
    examples: &[
        line("source <(fitgpt completions bash)", "in ~/.bashrc"),
        line("source <(fitgpt completions zsh)", "in ~/.zshrc, after compinit"),
        line("fitgpt completions fish > ~/.config/fish/completions/fitgpt.fish", ""),
        line("fitgpt completions powershell | Out-String | Invoke-Expression", "in $PROFILE"),
    ],
    notes: &[],
    lists_data_sets: false,
    arguments: &[Values::Words(Shell::WORDS)],
    flags: &[],
    closing: &[],
    keys: None,
    run,
};

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<u8, TrainError> {
    let shells = Shell::WORDS.join(", ");
    let refuse = |what: String| Err(SpecError::Conflict { what }.into());
    match arguments {
        [] => refuse(format!("name a shell: {shells}")),
        [name] => match Shell::of(name) {
            Some(shell) => show(shell.script()).map(|()| 0),
            None => {
                let shown: String = name.chars().take(40).collect();
                refuse(format!("unknown shell '{shown}'; choose one of {shells}"))
            }
        },
        _ => refuse(format!("name one shell: {shells}")),
    }
}
