//! Texts generated from the table of keys: `--help`, the config dump of a run, `docs/keys.md`.

use crate::keys::{Command, Group, KEYS, Key};
use crate::preset::{PRESET, PresetValue};
use crate::settings::{Origin, Settings};
use crate::value::Value;

/// The keys of a command for its help: for each group its title and, for each key, how it is typed
/// (with its default) and what it means.
pub fn groups(command: Command) -> Vec<(&'static str, Vec<(String, String)>)> {
    let row = |key: &Key| {
        let typed = format!("--{}={}", key.name, key.default_for(command));
        (typed, key.meaning_for(command))
    };
    let rows = |group: Group| {
        let keys = of_group(group).filter(|key| key.used_by(command)).map(row);
        (group.title(), keys.collect::<Vec<_>>())
    };
    Group::ALL.into_iter().map(rows).filter(|(_, keys)| !keys.is_empty()).collect()
}

fn of_group(group: Group) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |key| key.group == group)
}

/// All keys of a command with their current values, as a config file; comments give the origins.
pub fn dump(settings: &Settings) -> String {
    let mut text = String::new();
    for setting in settings.iter().filter(|setting| setting.key.used_by(settings.command())) {
        let line = format!("{} = {}", setting.key.name, setting.value);
        text += &match &setting.origin {
            Origin::Default => line,
            origin => format!("{line} # {}", one_line(&origin.to_string())),
        };
        text.push('\n');
    }
    text
}

/// A path may contain line feeds, which would end the comment.
fn one_line(text: &str) -> String {
    text.replace(char::is_control, "?")
}

/// The page `docs/keys.md`.
pub fn page() -> String {
    let mut text = String::from(INTRODUCTION);
    for group in Group::ALL {
        text += &format!("\n## {}\n\n| key | type | default | meaning |\n", group.title());
        text += "|---|---|---|---|\n";
        for key in of_group(group) {
            text += &row(key);
        }
    }
    text += PRESET_INTRODUCTION;
    for (name, row) in PRESET {
        let value = match row {
            PresetValue::Is(literal) => Value::from(literal).to_string(),
            PresetValue::Like(other) => other.to_string(),
        };
        text += &format!("    {name} = {value}\n");
    }
    text
}

fn row(key: &Key) -> String {
    let mut default = format!("`{}`", Value::from(key.default));
    if let Some(literal) = key.sample_default {
        default += &format!("; for sample `{}`", Value::from(literal));
    }
    let uses = match (key.train, key.sample) {
        (true, true) => "; also sample",
        (false, true) => "; sample only",
        _ => "",
    };
    let (name, kind, meaning) = (key.name, key.kind.name(), key.values.explained(key.doc));
    format!("| `{name}` | {kind} | {default} | {meaning}{uses} |\n")
}

const INTRODUCTION: &str = "\
# Keys

Generated from `crates/spec/src/keys.rs`; after a change there,
`UPDATE_SNAPSHOTS=1 cargo test -p fitgpt-spec` rewrites this page.

Keys are set in config files (nanoGPT's `.py`, read without running Python, or flat `.toml`) and on
the command line as `--key=value`, from left to right; later wins:

    fitgpt train config/train_shakespeare_char.py --batch_size=32 --dropout=0

A `.py` file consists of assignments. Their values may use numbers, strings, `True`, `False`,
arithmetic (`+ - * / // % **`, brackets), strings joined by `+`, f-strings, other keys, variables
of your own that begin with `_`, `str()`, `int()`, `float()` and `time.time()`. Anything else is an
error with file and line. Unknown keys are errors everywhere.
";

const PRESET_INTRODUCTION: &str = "
## The built-in preset

If neither a config file nor `dataset` nor `init_from` is given, `train` uses these values for the
keys that are not given:

";
