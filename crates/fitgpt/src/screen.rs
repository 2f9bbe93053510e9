//! Standard output and error: width, colours if they are wanted, and writes that never fail the
//! program (a closed pipe must not end a run).

use console::{Style, Term};
use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use train::TrainError;

/// Columns if there is no terminal.
const WIDTH: usize = 100;

/// Columns of the terminal; for a file or a pipe, a common width.
pub fn width() -> usize {
    let columns = Term::stdout().size_checked().map(|(_, columns)| usize::from(columns));
    columns.unwrap_or(WIDTH)
}

/// Columns to wrap sentences at; in a pipe they are not wrapped, so that programs get whole lines.
pub fn wrap_width() -> usize {
    if is_terminal() { width() } else { usize::MAX }
}

/// Whether standard output is a terminal.
pub fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Whether standard input is a terminal.
pub fn is_input_terminal() -> bool {
    std::io::stdin().is_terminal()
}

/// Writes a text to standard output unchanged.
pub fn out(text: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
}

/// Writes a result to standard output. A reader that closes the pipe is not a failure.
pub fn show(text: &str) -> Result<(), TrainError> {
    show_bytes(text.as_bytes())
}

/// Writes a result that is not text to standard output.
pub fn show_bytes(bytes: &[u8]) -> Result<(), TrainError> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(TrainError::Output(error)),
        _ => Ok(()),
    }
}

/// Writes a JSON document to standard output.
pub fn show_json(document: &serde_json::Value) -> Result<(), TrainError> {
    show(&format!("{document:#}\n"))
}

/// Set on every rank but the first: the first one speaks for all.
static SILENT: AtomicBool = AtomicBool::new(false);

/// Prints nothing from now on, except errors.
pub fn silence() {
    SILENT.store(true, Ordering::Relaxed);
}

/// Whether [`silence`] was called.
pub fn is_silent() -> bool {
    SILENT.load(Ordering::Relaxed)
}

/// Prints a line to standard output.
pub fn line(text: &str) {
    if !is_silent() {
        let _ = writeln!(std::io::stdout().lock(), "{text}");
    }
}

/// Prints a line to standard error.
pub fn note(text: &str) {
    if !is_silent() {
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }
}

/// What comes before an error: which of several ranks has it.
static SPEAKER: OnceLock<String> = OnceLock::new();

/// From now on, errors say that this rank has them.
pub fn speak_as(who: String) {
    let _ = SPEAKER.set(who);
}

/// Prints the error of a failed program: always one line, whatever names it contains.
pub fn error(text: &str) {
    match SPEAKER.get() {
        Some(who) => error_of_all(&format!("{who}: {text}")),
        None => error_of_all(text),
    }
}

/// Prints an error that says itself which rank it is about.
pub fn error_of_all(text: &str) {
    let label = Style::new().for_stderr().red().bold().apply_to("error:");
    let line = format!("{label} {}\n", text.replace(char::is_control, " "));
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// Prints a notice to standard output, between the lines of a run.
pub fn notice(text: &str) {
    let text = wrapped(&format!("note: {text}"), 6, wrap_width());
    let text = text.strip_prefix("note:").unwrap_or(&text);
    line(&format!("{}{text}", Style::new().yellow().apply_to("note:")));
}

/// Bold text.
pub fn strong(text: &str) -> String {
    Style::new().bold().apply_to(text).to_string()
}

/// Dimmed text.
pub fn faint(text: &str) -> String {
    Style::new().dim().apply_to(text).to_string()
}

/// Text in the colour of bars.
pub fn coloured(text: &str) -> String {
    Style::new().cyan().apply_to(text).to_string()
}

/// Wraps a text at `width` columns; all lines but the first are indented. Words that are longer
/// than a line are not broken, except between the characters of Chinese and Japanese.
pub fn wrapped(text: &str, indent: usize, width: usize) -> String {
    let first = text.len() - text.trim_start().len();
    let text = UNITS.iter().fold(text.to_string(), |text, unit| {
        text.replace(&format!(" {unit}"), &format!("{TOGETHER}{unit}"))
    });
    let is_gap = |c: char| c.is_whitespace() && c != TOGETHER;
    let words = text.split(is_gap).filter(|word| !word.is_empty());
    let mut lines = vec![" ".repeat(first)];
    for (index, word) in words.enumerate() {
        for (at, part) in parts(word).into_iter().enumerate() {
            let last = lines.len() - 1;
            let gap = if index > 0 && at == 0 { " " } else { "" };
            let taken = console::measure_text_width(&lines[last]) + gap.len();
            let begins = index == 0 && at == 0;
            match taken + console::measure_text_width(part) > width && !begins {
                true => lines.push(" ".repeat(indent) + part),
                false => lines[last] += &format!("{gap}{part}"),
            }
        }
    }
    lines.join("\n").replace(TOGETHER, " ")
}

/// Parts of a word between which a line may end: before wide characters, but not before a closing
/// mark or after an opening one.
fn parts(word: &str) -> Vec<&str> {
    const CLOSING: &str = "。、，；：！？）」』】％ー～";
    const OPENING: &str = "（「『【";
    let is_wide = |c: char| console::measure_text_width(c.encode_utf8(&mut [0; 4])) > 1;
    let mut found = Vec::new();
    let (mut start, mut before) = (0, None);
    for (at, c) in word.char_indices() {
        let breaks = is_wide(c) || before.is_some_and(is_wide);
        let held = CLOSING.contains(c) || before.is_some_and(|before| OPENING.contains(before));
        if before.is_some() && breaks && !held {
            found.push(&word[start..at]);
            start = at;
        }
        before = Some(c);
    }
    found.push(&word[start..]);
    found
}

/// Units that stay on the same line as their number.
const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "tok/s"];

/// A non-breaking space.
const TOGETHER: char = '\u{a0}';

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn words_are_wrapped_and_kept() {
        assert_eq!(wrapped("  a bc def", 2, 80), "  a bc def");
        assert_eq!(wrapped("aa bb cc dd", 1, 5), "aa bb\n cc\n dd");
        assert_eq!(wrapped("longer than that", 0, 3), "longer\nthan\nthat");
        assert_eq!(wrapped("it takes 1.50 MiB, and more", 0, 16), "it takes\n1.50 MiB, and\nmore");
    }

    #[test]
    fn chinese_and_japanese_are_broken_between_characters() {
        let lines = wrapped("显存占用明细（估算）：不足", 2, 10);
        assert_eq!(lines, "显存占用明\n  细（估\n  算）：不\n  足");
        assert_eq!(wrapped("batch_sizeを小さく", 0, 12), "batch_sizeを\n小さく");
    }
}
