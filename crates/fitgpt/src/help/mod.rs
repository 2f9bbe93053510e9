//! Help, generated from the tables of commands, flags and keys: for the terminal, and as the page
//! `docs/commands.md`.

pub mod man;
#[cfg(test)]
mod page;

use crate::commands::{COMMANDS, Command, Line};
use crate::screen::wrapped;
use data::known::DATA_SETS;
use spec::documents;

/// The fewest columns that help is laid out for.
const NARROWEST: usize = 40;
/// The column where the text of a flag, of a key and of a data set begins.
const FLAGS: usize = 23;
const KEYS: usize = 36;
const NAMES: usize = 20;
/// Indentation of text below its lead, and of the further lines of a command.
const BELOW: usize = 6;
/// The fewest columns for text to the right of its lead; with fewer it goes below.
const ROOM: usize = 26;

/// The list of commands.
pub fn overview(width: usize) -> String {
    let width = width.max(NARROWEST);
    let version = env!("CARGO_PKG_VERSION");
    let mut text = paragraph(
        &format!(
            "fitgpt {version}: trains GPT-2-class models within a memory budget, planned to the \
             byte before the first step"
        ),
        width,
    );
    let usage = "fitgpt <command> [config.py|config.toml ...] [--key=value ...]";
    text += &format!("\n{}\n\n", broken(usage, width, ""));
    let column = COMMANDS.map(|command| command.name.len()).into_iter().max().unwrap_or(0) + 4;
    for command in COMMANDS {
        text += &row(&format!("  {}", command.name), command.about, column, width);
    }
    text.push('\n');
    text += &paragraph(
        "fitgpt help <command> or fitgpt <command> --help shows its arguments, flags and keys. \
         fitgpt --version [--json] shows the version and what was found on this machine.",
        width,
    );
    let codes = man::EXIT_CODES.map(|(code, meaning)| format!("{code} {meaning}")).join(", ");
    text += &paragraph(&format!("Exit codes: {codes}."), width);
    text
}

/// The text of `fitgpt COMMAND --help`.
pub fn of_command(command: &Command, width: usize) -> String {
    let width = width.max(NARROWEST);
    let mut text = own_part(command, width);
    if let Some(keys) = command.keys {
        for (title, keys) in documents::groups(keys) {
            text += &format!("\n{title}:\n");
            for (typed, meaning) in keys {
                text += &row(&format!("  {typed}"), &meaning, KEYS, width);
            }
        }
    }
    text
}

/// The help of a command without the keys.
fn own_part(command: &Command, width: usize) -> String {
    let mut parts = vec![command.text.iter().map(|text| paragraph(text, width)).collect()];
    parts.push(lines(command.usage, width, ""));
    parts.push(lines(command.examples, width, " \\"));
    parts.push(command.notes.iter().map(|text| paragraph(text, width)).collect());
    if command.lists_data_sets {
        let rows =
            DATA_SETS.iter().map(|set| row(&format!("  {}", set.name), set.about, NAMES, width));
        parts.push(format!("data sets:\n{}", rows.collect::<String>()));
    }
    if !command.flags.is_empty() {
        let flags = command.flags.iter();
        let rows = flags.map(|flag| row(&format!("  {}", flag.typed()), &flag.doc(), FLAGS, width));
        parts.push(format!("flags:\n{}", rows.collect::<String>()));
    }
    parts.push(command.closing.iter().map(|text| paragraph(text, width)).collect());
    parts.retain(|part: &String| !part.is_empty());
    parts.join("\n")
}

fn paragraph(text: &str, width: usize) -> String {
    wrapped(text, 0, width) + "\n"
}

/// A lead and its text: to the right in its own column, or below if there is no room.
fn row(lead: &str, text: &str, column: usize, width: usize) -> String {
    let narrow = width < column + ROOM;
    let column = if narrow { BELOW } else { column };
    let mut shown = String::new();
    let body = wrapped(text, 0, width - column);
    let mut body = body.lines();
    if !narrow && lead.chars().count() + 2 <= column {
        shown += &format!("{lead:<column$}{}\n", body.next().unwrap_or_default());
    } else {
        shown += &(broken(lead, width, "") + "\n");
    }
    for line in body {
        shown += &format!("{:column$}{line}\n", "");
    }
    shown
}

/// Command lines with their remarks in one column; a remark without room there goes below.
fn lines(lines: &[Line], width: usize, joint: &str) -> String {
    let leads = lines.iter().map(|line| 2 + line.typed.chars().count());
    let column = leads.map(|length| length + 2).filter(|length| length + ROOM <= width).max();
    let column = column.unwrap_or(BELOW);
    let shown = lines.iter().map(|line| {
        let lead = format!("  {}", line.typed);
        let fits = lead.chars().count() + 2 <= column;
        match line.remark.is_empty() {
            false if fits => row(&lead, line.remark, column, width),
            false => {
                let remark = wrapped(line.remark, 0, width - BELOW);
                let remark = remark.lines().map(|line| format!("{:BELOW$}{line}\n", ""));
                broken(&lead, width, joint) + "\n" + &remark.collect::<String>()
            }
            true => broken(&lead, width, joint) + "\n",
        }
    });
    shown.collect()
}

/// Breaks a command line between arguments; all lines but the last end with `joint`.
fn broken(line: &str, width: usize, joint: &str) -> String {
    let first = line.len() - line.trim_start().len();
    let mut lines = vec![" ".repeat(first)];
    let mut quoted = false;
    let gap = |c: char| {
        quoted ^= c == '\'';
        c == ' ' && !quoted
    };
    for (index, word) in line.trim_start().split(gap).enumerate() {
        let last = lines.len() - 1;
        let taken = lines[last].chars().count() + 1 + word.chars().count();
        if index == 0 {
            lines[last] += word;
        } else if taken + joint.chars().count() > width {
            lines[last] += joint;
            lines.push(" ".repeat(BELOW) + word);
        } else {
            lines[last] += &format!(" {word}");
        }
    }
    lines.join("\n")
}
