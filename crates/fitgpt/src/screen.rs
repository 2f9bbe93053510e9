//! Standard output and error as a person sees them: width, colours where they are wanted, and
//! writes that never fail the program (a closed pipe is no reason to lose a run).

use console::{Style, Term};
use std::io::{IsTerminal, Write};

/// Columns where nobody says.
const WIDTH: usize = 100;

/// Columns of the terminal; of a file or a pipe, a common width.
pub fn width() -> usize {
    let columns = Term::stdout().size_checked().map(|(_, columns)| usize::from(columns));
    columns.unwrap_or(WIDTH)
}

/// Whether somebody watches.
pub fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Text to standard output as it is.
pub fn out(text: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
}

/// A line to standard output.
pub fn line(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// A line to standard error.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// The last line of a program that failed, one line whatever names are in it.
pub fn error(text: &str) {
    let label = Style::new().for_stderr().red().bold().apply_to("error:");
    note(&format!("{label} {}", text.replace(char::is_control, " ")));
}

/// Something to know, on standard output between the lines of a run.
pub fn notice(text: &str) {
    line(&format!("{} {text}", Style::new().yellow().apply_to("note:")));
}

/// What the eye should find.
pub fn strong(text: &str) -> String {
    Style::new().bold().apply_to(text).to_string()
}

/// What it may pass over.
pub fn faint(text: &str) -> String {
    Style::new().dim().apply_to(text).to_string()
}

/// A colour for bars.
pub fn coloured(text: &str) -> String {
    Style::new().cyan().apply_to(text).to_string()
}
