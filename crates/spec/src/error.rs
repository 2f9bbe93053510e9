//! Everything that can be wrong with settings. Each message is one line: the value that was given,
//! where it was given, and what to do next.

use crate::heads::Pair;
use crate::keys::{Command, Key, Kind};
use crate::settings::Origin;
use crate::value::Value;
use model::DimsError;
use std::fmt;

/// Why settings cannot become a run.
#[derive(Clone, Debug, PartialEq)]
pub enum SpecError {
    /// A config file cannot be read.
    Unreadable {
        /// As it was typed.
        path: String,
        /// What the system says.
        problem: String,
    },
    /// A file is too large to be a config file.
    TooLong {
        /// As it was typed.
        path: String,
        /// Its size.
        bytes: u64,
        /// The largest accepted.
        limit: u64,
    },
    /// A config file is not text.
    NotText {
        /// As it was typed.
        path: String,
        /// The line where it stops being UTF-8.
        line: u32,
    },
    /// An argument is neither `--key=value` nor a config file.
    Argument {
        /// As it was typed.
        given: String,
        /// Counted from 1.
        index: usize,
        /// The correct form.
        instead: String,
    },
    /// A `.py` file holds something that we do not evaluate.
    Python {
        /// As it was typed.
        path: String,
        /// Counted from 1.
        line: u32,
        /// What it is.
        what: String,
    },
    /// A `.toml` file is malformed or not flat.
    Toml {
        /// As it was typed.
        path: String,
        /// Counted from 1.
        line: u32,
        /// What it is.
        what: String,
    },
    /// No such key.
    UnknownKey {
        /// As it was typed.
        name: String,
        /// Where.
        at: Origin,
        /// The key that was probably meant.
        nearest: Option<&'static str>,
    },
    /// A key that the command does not use.
    OtherCommand {
        /// The key.
        name: &'static str,
        /// Where.
        at: Origin,
        /// The command that was typed.
        command: Command,
    },
    /// A value of the wrong type.
    WrongType {
        /// The key.
        key: &'static Key,
        /// What was given.
        given: Value,
        /// Where.
        at: Origin,
    },
    /// A value outside its range.
    OutOfRange {
        /// The key.
        name: &'static str,
        /// What was given.
        given: Value,
        /// Where.
        at: Origin,
        /// What is needed and the next move.
        needs: String,
    },
    /// A word that the key does not accept.
    UnknownWord {
        /// The key.
        key: &'static Key,
        /// What was given.
        given: Value,
        /// Where.
        at: Origin,
    },
    /// Two settings that exclude each other, or whose product overflows.
    Conflict {
        /// The whole message.
        what: String,
    },
    /// `n_embd` is not a multiple of `n_head`.
    Heads {
        /// Width.
        n_embd: u64,
        /// Heads.
        n_head: u64,
        /// Pairs that work, best first.
        nearest: Vec<Pair>,
    },
    /// The sizes are not those of a valid model.
    Dims(DimsError),
}

impl fmt::Display for SpecError {
    /// Always one line: control characters become spaces.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Message(self).to_string().replace(char::is_control, " "))
    }
}

/// A message shows at most this many characters of a name or value.
const SHOWN: usize = 60;

/// The beginning of a text that the user typed, short enough for a message.
pub(crate) fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}

/// The message, which may still contain control characters.
struct Message<'a>(&'a SpecError);

impl fmt::Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            SpecError::Unreadable { path, problem } => {
                write!(f, "cannot read the config file '{path}': {problem}; correct the path")
            }
            SpecError::TooLong { path, bytes, limit } => write!(
                f,
                "{path}: {bytes} bytes, but a config file has at most {limit}; is it another file?"
            ),
            SpecError::NotText { path, line } => {
                write!(f, "{path}:{line}: not UTF-8 text; is it a config file?")
            }
            SpecError::Argument { given, index, instead } => {
                write!(f, "argument {index} ({}): {instead}", shown(given))
            }
            SpecError::Python { path, line, what } | SpecError::Toml { path, line, what } => {
                write!(f, "{path}:{line}: {what}")
            }
            SpecError::UnknownKey { name, at, nearest } => unknown_key(f, name, at, *nearest),
            SpecError::OtherCommand { name, at, command } => {
                let (this, other) = match command {
                    Command::Train => ("train", "sample"),
                    Command::Sample => ("sample", "train"),
                };
                write!(f, "{at}: {name} is a key of {other}, and {this} does not use it; remove it")
            }
            SpecError::WrongType { key, given, at } => wrong_type(f, key, given, at),
            SpecError::OutOfRange { name, given, at, needs } => {
                write!(f, "{name}={} ({at}): {needs}", shown(&given.to_string()))
            }
            SpecError::UnknownWord { key, given, at } => {
                let (given, allowed) = (shown(&given.to_string()), key.values.listed());
                write!(f, "{}={given} ({at}): choose {allowed}", key.name)
            }
            SpecError::Conflict { what } => f.write_str(what),
            SpecError::Heads { n_embd, n_head, nearest } => heads(f, *n_embd, *n_head, nearest),
            SpecError::Dims(error) => error.fmt(f),
        }
    }
}

fn unknown_key(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    at: &Origin,
    nearest: Option<&str>,
) -> fmt::Result {
    write!(f, "{at}: unknown key '{}'; ", shown(name))?;
    match (nearest, at) {
        (Some(nearest), Origin::Argument { .. }) => write!(f, "did you mean --{nearest}?"),
        (Some(nearest), _) => write!(f, "did you mean {nearest}?"),
        (None, Origin::File { path, .. }) if path.ends_with(".py") => {
            f.write_str("--help lists the keys; a name of your own must begin with _")
        }
        (None, _) => f.write_str("--help lists the keys"),
    }
}

fn wrong_type(f: &mut fmt::Formatter<'_>, key: &Key, given: &Value, at: &Origin) -> fmt::Result {
    let (name, needs) = (key.name, key.kind.needs());
    let typed = shown(&given.to_string());
    write!(f, "{at}: {name}={typed} is {}; {name} needs {needs}", given.type_name())?;
    let example = example(key, given);
    match at {
        Origin::Argument { .. } => write!(f, ", e.g. --{name}={}", example.plain()),
        Origin::File { path, .. } if path.ends_with(".toml") => {
            write!(f, ", e.g. {name} = {}", toml_text(&example))
        }
        _ => write!(f, ", e.g. {name} = {example}"),
    }
}

/// The given value converted to the right type if the conversion is obvious, else the default.
fn example(key: &Key, given: &Value) -> Value {
    match (key.kind, given) {
        (Kind::Int, Value::Float(number)) if number.fract() == 0.0 && number.abs() < 1e15 => {
            Value::Int(*number as i64)
        }
        (Kind::Bool | Kind::BoolOrStr, Value::Int(number)) => Value::Bool(*number != 0),
        (Kind::Str, other) if key.values.words().is_empty() => Value::Str(other.plain()),
        (Kind::IntOrStr, _) => Value::Str("11.69GiB".into()),
        _ => key.default.into(),
    }
}

fn toml_text(value: &Value) -> String {
    match value {
        Value::Bool(flag) => flag.to_string(),
        other => other.to_string(),
    }
}

fn heads(f: &mut fmt::Formatter<'_>, n_embd: u64, n_head: u64, nearest: &[Pair]) -> fmt::Result {
    write!(f, "n_embd={n_embd} cannot be divided by n_head={n_head}")?;
    for (index, pair) in nearest.iter().enumerate() {
        let lead = if index == 0 { "; these work: " } else { ", " };
        f.write_str(lead)?;
        if pair.n_embd == n_embd {
            write!(f, "n_head={}", pair.n_head)?;
        } else {
            write!(f, "n_embd={}", pair.n_embd)?;
        }
        let unit = if index == 0 { " parameters" } else { "" };
        write!(f, " ({}{unit})", pair.size())?;
    }
    Ok(())
}

impl std::error::Error for SpecError {}

impl From<DimsError> for SpecError {
    fn from(error: DimsError) -> SpecError {
        SpecError::Dims(error)
    }
}
