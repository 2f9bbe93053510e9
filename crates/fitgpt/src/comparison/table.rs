//! The table of runs: how far each came, its losses and its speed.

use super::{COLOURS, NOTHING, shortened};
use crate::numbers::{duration, grouped, short};
use crate::screen;
use console::{Style, measure_text_width};
use events::Reason;
use plots::compare::RunLog;

/// Longest name of a run, in characters: a third of the width, within these.
const NAME: std::ops::RangeInclusive<usize> = 12..=32;

/// The facts about a run, with their headings.
fn facts(log: &RunLog) -> [(&'static str, String); 8] {
    let best = log.best();
    let known = |text: Option<String>| text.unwrap_or(NOTHING.to_string());
    [
        ("iterations", grouped(log.iterations)),
        ("tokens", known(log.tokens.map(short))),
        ("time", known(log.seconds.map(duration))),
        ("best val loss", known(best.map(|(_, loss)| format!("{loss:.4}")))),
        ("at", known(best.map(|(iter, _)| grouped(iter)))),
        ("last loss", known(log.last_loss().map(|loss| format!("{loss:.4}")))),
        ("tok/s", known(log.tokens_per_second().map(short))),
        ("end", end_word(log.end).to_string()),
    ]
}

fn end_word(end: Option<Reason>) -> &'static str {
    match end {
        Some(Reason::Finished) => "finished",
        Some(Reason::Interrupted) => "interrupted",
        Some(Reason::Diverged) => "diverged",
        Some(Reason::Error) => "error",
        // It still trains, or it was killed: the log cannot tell.
        None => "open",
    }
}

/// One row for each run. Columns for which there is no room follow in further tables; where not
/// even one has room beside the names, each run is a block.
pub fn text(runs: &[(String, RunLog)], width: usize, has_letters: bool) -> String {
    let longest = (width / 3).clamp(*NAME.start(), *NAME.end());
    let names: Vec<String> = runs.iter().map(|(name, _)| shortened(name, longest)).collect();
    let rows = runs.iter().map(|(_, log)| facts(log)).collect();
    let table = Table { names, rows, has_letters };
    match table.groups(width) {
        Some(groups) => {
            let parts: Vec<String> = groups.iter().map(|columns| table.part(columns)).collect();
            parts.join("\n")
        }
        None => table.blocks(),
    }
}

struct Table {
    names: Vec<String>,
    rows: Vec<[(&'static str, String); 8]>,
    /// Whether letters tell the runs apart, because there are no colours.
    has_letters: bool,
}

impl Table {
    /// Columns that fit beside the names, in their order. None if there is one that does not.
    fn groups(&self, width: usize) -> Option<Vec<Vec<usize>>> {
        let room = width.checked_sub(2 + self.name_width())?;
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let mut used = usize::MAX;
        for column in 0..8 {
            let needed = self.width(column) + 2;
            match groups.last_mut() {
                Some(group) if used + needed <= room => group.push(column),
                _ if needed > room => return None,
                _ => {
                    used = 0;
                    groups.push(vec![column]);
                }
            }
            used += needed;
        }
        Some(groups)
    }

    fn name_width(&self) -> usize {
        self.names.iter().map(|name| measure_text_width(name)).max().unwrap_or(0).max(3)
    }

    fn width(&self, column: usize) -> usize {
        let wide = |(heading, value): &(&str, String)| heading.len().max(measure_text_width(value));
        self.rows.iter().map(|row| wide(&row[column])).max().unwrap_or(0)
    }

    /// The run's colour, or its letter in the chart.
    fn mark(&self, index: usize) -> String {
        let style = Style::new().color256(COLOURS[index % COLOURS.len()]);
        let letter = char::from(b'a' + (index % 26) as u8).to_string();
        if self.has_letters { letter } else { style.apply_to("━").to_string() }
    }

    fn part(&self, columns: &[usize]) -> String {
        let name_width = self.name_width();
        let aligned = |value: &str, column: usize| {
            " ".repeat((self.width(column) + 2).saturating_sub(measure_text_width(value))) + value
        };
        let mut text = String::new();
        if let Some(row) = self.rows.first() {
            let headings: String = columns.iter().map(|&at| aligned(row[at].0, at)).collect();
            text +=
                &format!("{}\n", screen::strong(&format!("  {:<name_width$}{headings}", "run")));
        }
        for (index, (name, row)) in self.names.iter().zip(&self.rows).enumerate() {
            let space = " ".repeat(name_width.saturating_sub(measure_text_width(name)));
            let values: String = columns.iter().map(|&at| aligned(&row[at].1, at)).collect();
            text += &format!("{} {name}{space}{values}\n", self.mark(index));
        }
        text
    }

    fn blocks(&self) -> String {
        let mut text = String::new();
        for (index, (name, row)) in self.names.iter().zip(&self.rows).enumerate() {
            text += &format!("{} {}\n", self.mark(index), screen::strong(name));
            for (heading, value) in row {
                text += &format!("  {heading:<14}{value}\n");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every fact is there at every width, and no line is longer.
    #[test]
    fn a_narrow_terminal_gets_the_table_in_parts() {
        let runs: Vec<(String, RunLog)> =
            (0..6).map(|at| (format!("a/folder/out-{at}"), RunLog::default())).collect();
        let headings: Vec<&str> = facts(&runs[0].1).iter().map(|(heading, _)| *heading).collect();
        for (width, parts) in [(120, 1), (80, 2), (60, 2), (45, 3)] {
            let text = text(&runs, width, true);
            let text = console::strip_ansi_codes(&text);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
            assert_eq!(text.lines().filter(|line| line.starts_with("  run ")).count(), parts);
            assert!(headings.iter().all(|heading| text.contains(heading)), "{text}");
            assert!(text.contains("\nf a/folder/out-5 ") || width < 60, "{text}");
        }
        assert!(text(&runs, 20, true).contains("  iterations    0\n"), "blocks");
    }
}
