//! The page `docs/commands.md`, generated from the same tables as `--help`, and tests of both.

use super::{lines, of_command, overview};
use crate::commands::{COMMANDS, Command, Line};
use crate::completion::scripts::Shell;
use data::known::DATA_SETS;
use std::path::Path;

const INTRODUCTION: &str = "\
# Commands

Generated from the tables in `crates/fitgpt/src/commands`; after a change there,
`UPDATE_SNAPSHOTS=1 cargo test -p fitgpt --bins` rewrites this page.

`fitgpt help COMMAND` and `fitgpt COMMAND --help` show the same in the terminal. A flag is written
`--flag value` or `--flag=value`, a key `--key=value`.

| command | what it does |
|---|---|
";

/// Columns of a command line and its remark.
const WIDTH: usize = 100;

fn page() -> String {
    let mut text = String::from(INTRODUCTION);
    for command in COMMANDS {
        text += &format!("| [`{0}`](#{0}) | {1} |\n", command.name, command.about);
    }
    text + &COMMANDS.iter().map(|command| section(command)).collect::<String>()
}

fn section(command: &Command) -> String {
    let mut text = format!("\n## {}\n\n", command.name);
    let paragraphs =
        |all: &[&str]| all.iter().map(|text| format!("{text}\n\n")).collect::<String>();
    text += &paragraphs(command.text);
    text += &block(command.usage);
    text += &block(command.examples);
    text += &paragraphs(command.notes);
    if command.lists_data_sets {
        text += "| data set | what it is |\n|---|---|\n";
        for set in DATA_SETS {
            text += &format!("| `{}` | {} |\n", set.name, set.about);
        }
        text.push('\n');
    }
    if !command.flags.is_empty() {
        text += "| flag | meaning |\n|---|---|\n";
        for flag in command.flags {
            text += &format!("| `{}` | {} |\n", flag.typed(), flag.doc());
        }
        text.push('\n');
    }
    text += &paragraphs(command.closing);
    if let Some(keys) = command.keys {
        text += &format!("Its keys are those of `{}`: [keys](keys.md).\n", keys.name());
    }
    text.trim_end().to_string() + "\n"
}

fn block(all: &[Line]) -> String {
    format!("```\n{}```\n\n", lines(all, WIDTH, " \\").replace("\n  ", "\n").trim_start())
}

fn kept(path: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let first = kept.lines().zip(text.lines()).position(|(kept, text)| kept != text);
    assert!(
        kept == text,
        "{} differs from the tables of commands (first in line {:?}); \
         UPDATE_SNAPSHOTS=1 cargo test -p fitgpt --bins rewrites it",
        path.display(),
        first.map(|line| line + 1)
    );
}

#[test]
fn the_page_of_commands_is_the_tables() {
    kept("docs/commands.md", &page());
}

/// What the wheel installs beside the program. It is kept in the tree, so that `pip wheel .` needs
/// no program that was built before.
#[test]
fn the_shared_files_of_the_wheel_are_as_kept() {
    const SHARE: &str = "packaging/fitgpt.data/data/share";
    for page in super::man::pages() {
        kept(&format!("{SHARE}/man/man1/{}", page.file), &page.text);
    }
    for (shell, file) in [
        (Shell::Bash, "bash-completion/completions/fitgpt"),
        (Shell::Zsh, "zsh/site-functions/_fitgpt"),
        (Shell::Fish, "fish/vendor_completions.d/fitgpt.fish"),
    ] {
        kept(&format!("{SHARE}/{file}"), shell.script());
    }
}

/// As a terminal of 80 columns shows it, without keys: they are in `docs/keys.md`.
#[test]
fn help_of_every_command_is_as_kept() {
    let mut text = overview(80);
    for command in COMMANDS {
        text += &format!("\n$ fitgpt {} --help\n{}", command.name, super::own_part(command, 80));
    }
    kept("crates/fitgpt/tests/golden/help.txt", &text);
}

#[test]
fn help_fits_the_window() {
    for width in [40, 60, 80, 120] {
        let all = COMMANDS.iter().map(|command| of_command(command, width));
        for line in all.chain([overview(width)]).collect::<String>().lines() {
            let fits = line.chars().count() <= width;
            // A word that is longer than the window is not broken.
            let single = line.trim_start().trim_end_matches(" \\").split(' ').count() == 1;
            assert!((fits || single) && line == line.trim_end(), "{width}: {line}");
        }
    }
}

#[test]
fn help_lists_each_flag_and_each_key_of_the_command_once() {
    for command in COMMANDS {
        let help = of_command(command, 80);
        let times = |lead: &str| help.lines().filter(|line| line.starts_with(lead)).count();
        for flag in command.flags {
            assert_eq!(times(&format!("  {}", flag.typed())), 1, "{}", flag.name);
        }
        for key in spec::KEYS {
            let used = command.keys.is_some_and(|keys| key.used_by(keys));
            assert_eq!(times(&format!("  --{}=", key.name)), usize::from(used), "{}", key.name);
        }
    }
}

#[test]
fn a_command_line_is_cut_between_arguments() {
    let line = "  fitgpt plan a.py --gpu 'RTX 4070' --json";
    let want = "  fitgpt plan a.py \\\n      --gpu 'RTX 4070' \\\n      --json";
    assert_eq!(super::broken(line, 25, " \\"), want);
    assert_eq!(super::broken(line, 80, " \\"), line);
}
