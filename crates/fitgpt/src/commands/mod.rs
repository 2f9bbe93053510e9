//! The table of commands: finds the one that was typed and refuses flags that it does not have.

mod train;
mod plan;
mod sample;
mod eval;
mod export;
mod compare;
mod ui;
mod prepare;
mod data;
mod doctor;
mod devices;
mod bench;
mod completions;
mod man;

use crate::flags::Flag;
use crate::screen::{show, show_json};
use crate::ui::playground;
use crate::{completion, help, screen, version};
use ::train::TrainError;
use spec::nearest::nearest;
use spec::{Key, SpecError, Values};

/// The exit code of an interrupted run.
const INTERRUPTED: u8 = 130;

/// The word with which the completion scripts call.
const COMPLETE: &str = "__complete";

/// One row of the table: everything that help, `docs/commands.md` and shell completion show.
pub struct Command {
    /// As it is typed.
    pub name: &'static str,
    /// One line for the overview.
    pub about: &'static str,
    /// Paragraphs that open its help.
    pub text: &'static [&'static str],
    /// The forms of its command line.
    pub usage: &'static [Line],
    /// Command lines to copy.
    pub examples: &'static [Line],
    /// Paragraphs after the examples.
    pub notes: &'static [&'static str],
    /// Whether help lists the known data sets.
    pub lists_data_sets: bool,
    /// The arguments that are neither flags nor keys; empty if there are none.
    pub arguments: &'static [Values],
    /// Its flags.
    pub flags: &'static [Flag],
    /// Paragraphs after the flags.
    pub closing: &'static [&'static str],
    /// Whose keys it accepts; none if it accepts no keys.
    pub keys: Option<spec::Command>,
    run: fn(&[String]) -> Result<u8, TrainError>,
}

/// A command line and a remark, which may be empty.
pub struct Line {
    /// What is typed.
    pub typed: &'static str,
    /// What it does.
    pub remark: &'static str,
}

const fn line(typed: &'static str, remark: &'static str) -> Line {
    Line { typed, remark }
}

/// All commands, in the order of help.
pub static COMMANDS: [&Command; 14] = [
    &train::COMMAND,
    &plan::COMMAND,
    &doctor::COMMAND,
    &sample::COMMAND,
    &eval::COMMAND,
    &export::COMMAND,
    &compare::COMMAND,
    &ui::COMMAND,
    &prepare::COMMAND,
    &data::COMMAND,
    &devices::COMMAND,
    &bench::COMMAND,
    &completions::COMMAND,
    &man::COMMAND,
];

/// Runs the command that the arguments name and returns the exit code.
pub fn run(arguments: &[String]) -> Result<u8, TrainError> {
    let wants_help = |argument: &String| matches!(argument.as_str(), "-h" | "--help");
    match arguments.split_first() {
        None => {
            show(&help::overview(screen::width()))?;
            Ok(2)
        }
        Some((first, rest)) if wants_help(first) || first == "help" => {
            show(&match rest.first() {
                Some(name) => help::of_command(find(name)?, screen::width()),
                None => help::overview(screen::width()),
            })?;
            Ok(0)
        }
        Some((first, rest)) if first == "--version" || first == "-V" => {
            match rest {
                [] => show(&version::line())?,
                [json] if json == "--json" => show_json(&version::document()?)?,
                [other, ..] => {
                    let shown: String = other.chars().take(40).collect();
                    let what = format!("--version takes --json or nothing, not '{shown}'");
                    return Err(SpecError::Conflict { what }.into());
                }
            }
            Ok(0)
        }
        // What the completion scripts call. It comes before the flags, because it completes them.
        Some((first, rest)) if first == COMPLETE => {
            show(&completion::lines(&completion::offers(rest)))?;
            Ok(0)
        }
        // What the page starts as a child.
        Some((first, rest)) if first == playground::PLAYGROUND => playground::run(rest),
        Some((first, rest)) => {
            let command = find(first)?;
            if rest.iter().any(wants_help) {
                show(&help::of_command(command, screen::width()))?;
                return Ok(0);
            }
            check(command, rest)?;
            (command.run)(rest)
        }
    }
}

fn find(name: &str) -> Result<&'static Command, SpecError> {
    let found = COMMANDS.iter().find(|command| command.name == name);
    found.copied().ok_or_else(|| {
        let names = COMMANDS.map(|command| command.name);
        let meant = nearest(name, names.into_iter()).map(|name| format!("did you mean {name}? "));
        let (meant, names) = (meant.unwrap_or_default(), names.join(", "));
        let shown: String = name.chars().take(40).collect();
        let what = format!("unknown command '{shown}'; {meant}commands: {names} (fitgpt --help)");
        SpecError::Conflict { what }
    })
}

/// Refuses a flag that the command does not have. Anything that looks like a key is left to the
/// parser of settings, which has a better message.
fn check(command: &Command, arguments: &[String]) -> Result<(), SpecError> {
    let refuse = |given: &str, why: String| {
        let shown: String = given.chars().take(40).collect();
        let what = format!("{} has no flag '{shown}'; {why}", command.name);
        Err(SpecError::Conflict { what })
    };
    for argument in arguments.iter().filter(|argument| argument.starts_with("--")) {
        let name = argument.split('=').next().unwrap_or(argument);
        let key = &name[2..];
        match command.flags.iter().find(|flag| flag.name == name) {
            Some(flag) => check_form(command, flag, arguments)?,
            None if command.keys.is_some() && Key::find(key).is_some() => {}
            None => {
                let flags = command.flags.iter().map(|flag| &flag.name[2..]);
                let keys = spec::KEYS.iter().filter(|_| command.keys.is_some()).map(|key| key.name);
                let names = flags.chain(["help"]).chain(keys);
                match nearest(key, names).filter(|near| Key::find(near).is_none()) {
                    Some(near) => return refuse(argument, format!("did you mean --{near}?")),
                    None => {
                        unlike_any(command, name).map_or(Ok(()), |why| refuse(argument, why))?
                    }
                }
            }
        }
    }
    Ok(())
}

/// The message for a flag that resembles none of the command's flags.
fn unlike_any(command: &Command, name: &str) -> Option<String> {
    let has = |other: &&&Command| other.flags.iter().any(|flag| flag.name == name);
    let others: Vec<&str> = COMMANDS.iter().filter(has).map(|other| other.name).collect();
    let own = || command.flags.iter().map(|flag| flag.name).collect::<Vec<_>>().join(", ");
    if name == "--out_dir" && ["export", "compare"].contains(&command.name) {
        return Some(format!("give the folder alone: fitgpt {} OUT_DIR", command.name));
    }
    match (others.is_empty(), command.keys) {
        (false, _) => Some(format!("it is a flag of {}", others.join(", "))),
        (true, Some(_)) => None,
        (true, None) => Some(format!("it has {}", own())),
    }
}

/// Refuses a flag that belongs to another form of the command (`data head`, not `data stats`).
fn check_form(command: &Command, flag: &Flag, arguments: &[String]) -> Result<(), SpecError> {
    let words = command.arguments.first().map_or(&[][..], |values| values.words());
    let form = arguments.iter().find(|argument| words.contains(&argument.as_str()));
    match (flag.only, form) {
        (Some(only), Some(form)) if only != form => {
            let what = format!("{} is a flag of `{} {only}`", flag.name, command.name);
            Err(SpecError::Conflict { what })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::FlagSet;

    /// Every flag of the row is in the table of the command's struct, and the parser accepts it.
    fn accepts<F: FlagSet>(command: &Command) {
        assert_eq!(command.flags, F::TABLE, "{}", command.name);
        for flag in command.flags {
            let attached = flag.value.map(|_| format!("{}=x", flag.name));
            let attached = [attached.unwrap_or(flag.name.to_string())];
            let apart: Vec<String> = flag.typed().split(' ').map(str::to_string).collect();
            for arguments in [&attached[..], &apart] {
                assert!(check(command, arguments).is_ok(), "{arguments:?}");
                let (_, rest) = F::read(arguments).unwrap();
                assert!(rest.is_empty(), "{arguments:?}");
            }
        }
    }

    #[test]
    fn every_flag_of_a_row_is_accepted() {
        accepts::<train::Flags>(&train::COMMAND);
        accepts::<plan::Flags>(&plan::COMMAND);
        accepts::<doctor::Flags>(&doctor::COMMAND);
        accepts::<prepare::Flags>(&prepare::COMMAND);
        accepts::<data::Flags>(&data::COMMAND);
        accepts::<devices::Flags>(&devices::COMMAND);
        accepts::<bench::Flags>(&bench::COMMAND);
        accepts::<sample::Flags>(&sample::COMMAND);
        accepts::<eval::Flags>(&eval::COMMAND);
        accepts::<export::Flags>(&export::COMMAND);
        accepts::<man::Flags>(&man::COMMAND);
        accepts::<ui::Flags>(&ui::COMMAND);
    }

    #[test]
    fn a_row_is_written_as_help_shows_it() {
        for command in COMMANDS {
            for flag in command.flags {
                let doc = flag.doc();
                assert!(!doc.is_empty() && !doc.ends_with('.') && !doc.contains('|'), "{doc}");
                assert!(flag.name.starts_with("--"), "{}", flag.name);
                let obsolete = flag.value.map(|value| value.values.obsolete(&doc).len());
                assert_eq!(obsolete.unwrap_or(0), 0, "{}: {doc}", flag.name);
            }
            for line in command.usage {
                let start = format!("fitgpt {}", command.name);
                assert!(line.typed.starts_with(&start), "{}", line.typed);
            }
        }
    }
}
