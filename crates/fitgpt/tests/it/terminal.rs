//! What a person at a terminal sees, through a pseudo-terminal made by `script`: a bar, colours
//! unless they are not wanted, lines that fit. Skipped where there is no `script`.

use crate::fixture::{TINY, TempDir};
use requires::{Need, absent};

/// What the run sends to a terminal of this width.
fn seen(dir: &TempDir, columns: u32, no_color: bool, out_dir: &str) -> Option<String> {
    let run = dir.command(&[&["train", out_dir], TINY].concat());
    let words = std::iter::once(run.get_program()).chain(run.get_args());
    let words: Vec<String> = words.map(|word| format!("'{}'", word.to_string_lossy())).collect();
    let line = format!("stty cols {columns} rows 40; {}", words.join(" "));
    let mut command = std::process::Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).current_dir(&dir.0).env("TERM", "xterm");
    command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
    if no_color {
        command.env("NO_COLOR", "1");
    }
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.contains("tokens per iteration").then_some(text)
}

/// Text without escape sequences, line by line.
fn plain(text: &str) -> Vec<String> {
    let mut out = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\x1b' => {
                characters.by_ref().find(|c| c.is_ascii_alphabetic());
            }
            '\r' => out.push('\n'),
            other => out.push(other),
        }
    }
    out.lines().map(str::to_string).collect()
}

#[test]
fn a_bar_and_lines_that_fit() {
    let dir = TempDir::new("terminal");
    for columns in [80, 120] {
        let out_dir = format!("--out_dir=out-{columns}");
        let Some(text) = seen(&dir, columns, false, &out_dir) else {
            return absent(Need::Script, "there is no script here");
        };
        assert!(text.contains('━') || text.contains('╸'), "a bar: {text}");
        assert!(text.contains("\x1b[1m"), "bold: {text}");
        let lines = plain(&text);
        for line in &lines {
            // Lines above the bar are filled up to the edge, then the bar follows.
            let row: String = line.chars().take(columns as usize).collect();
            let whole = row.trim_end();
            let rest = line.chars().skip(columns as usize).collect::<String>();
            assert!(!whole.starts_with("iter ") || whole.ends_with(" left"), "{line:?}");
            let is_bar = rest.is_empty() || rest.contains("/31  ") || rest.trim().is_empty();
            assert!(is_bar, "{columns} columns: {line:?}");
        }
        let has_rate = lines.iter().any(|line| line.starts_with("iter 5:") && line.contains("lr "));
        assert_eq!(has_rate, columns == 120);
    }
}

/// In a narrow window each line of the run keeps what matters most, and none is folded.
#[test]
fn progress_fits_forty_columns() {
    let dir = TempDir::new("terminal-narrow");
    let Some(text) = seen(&dir, 40, false, "--out_dir=out") else {
        return absent(Need::Script, "there is no script here");
    };
    let lines = plain(&text);
    let from = lines.iter().position(|line| line.starts_with("step 0")).unwrap();
    let to = lines.iter().position(|line| line.contains(" iterations, ")).unwrap();
    for line in &lines[from..to] {
        // A line above the bar is filled up to the edge; what follows it is the bar's own line.
        let rest: String = line.chars().skip(40).collect();
        let is_bar = rest.trim().is_empty() || rest.contains("/31  ");
        assert!(is_bar && rest.trim_end().chars().count() <= 40, "{line:?}");
    }
    let iter = lines.iter().find(|line| line.starts_with("iter 5:")).unwrap();
    assert!(iter.contains("loss ") && iter.contains(" left"), "{iter:?}");
}

#[test]
fn no_color_means_no_colours() {
    let dir = TempDir::new("terminal-plain");
    let Some(text) = seen(&dir, 80, true, "--out_dir=out") else {
        return absent(Need::Script, "there is no script here");
    };
    let colours = text.split("\x1b[").skip(1).filter(|part| {
        let digits: String = part.chars().take_while(|c| c.is_ascii_digit() || *c == ';').collect();
        part[digits.len()..].starts_with('m') && digits != "0" && !digits.is_empty()
    });
    assert_eq!(colours.count(), 0, "{text:?}");
}
