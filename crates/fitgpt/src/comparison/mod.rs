//! What `fitgpt compare` prints: the table of runs, the settings that differ, the chart; and the
//! same as a document.

mod differences;
mod document;
mod table;

pub use document::document;

use crate::screen;
use console::Style;
use plots::compare::{By, Cell, Chart, RunLog, has_faint, terminal};

/// Colours of the runs in a terminal; after the last they repeat.
const COLOURS: [u8; 8] = [33, 208, 36, 170, 178, 99, 37, 245];

/// Most columns and rows of a chart.
const WIDEST: usize = 120;
const ROWS: usize = 18;

/// What is shown where nothing is known.
const NOTHING: &str = "-";

/// Runs with a log in this folder, in order of their names.
pub fn runs_here() -> Vec<String> {
    let entries = std::fs::read_dir(".").into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| entry.path().join("log.jsonl").is_file())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// Runs to be compared on the console.
pub struct Comparison<'a> {
    /// Their names and logs.
    pub runs: &'a [(String, RunLog)],
    /// Their curves.
    pub chart: &'a Chart,
    /// What the chart is drawn over.
    pub by: By,
}

impl Comparison<'_> {
    /// The text.
    pub fn text(&self) -> String {
        let width = screen::width();
        let has_colours = console::colors_enabled();
        let has_letters = self.runs.len() > 1 && !has_colours;
        let mut text = table::text(self.runs, width, has_letters);
        text += &differences::text(self.runs, width);
        if self.chart.is_empty(self.by) {
            let (title, by) = (&self.chart.title, self.by.word());
            return text + &format!("\nNo {title} to plot by {by} yet.\n");
        }
        let columns = width.min(WIDEST);
        text += &format!("\n{}\n", screen::strong(&screen::wrapped(&self.title(), 2, columns)));
        for row in terminal(self.chart, self.by, columns, ROWS, has_letters) {
            text += painted(&row).trim_end();
            text.push('\n');
        }
        text
    }

    fn title(&self) -> String {
        let note = self.chart.note(has_faint(self.chart));
        let title = &self.chart.title;
        if note.is_empty() { title.clone() } else { format!("{title} ({})", note.join("; ")) }
    }
}

/// A row of the chart, with colours where they are wanted.
fn painted(row: &[Cell]) -> String {
    let mut text = String::new();
    for part in row.chunk_by(|a, b| (a.series, a.is_faint) == (b.series, b.is_faint)) {
        let characters: String = part.iter().map(|cell| cell.text).collect();
        match part[0].series {
            Some(series) => {
                let style = Style::new().color256(COLOURS[series % COLOURS.len()]);
                let style = if part[0].is_faint { style.dim() } else { style };
                text += &style.apply_to(characters).to_string();
            }
            None => text += &characters,
        }
    }
    text
}

/// The end of a long name: folders differ there.
fn shortened(name: &str, most: usize) -> String {
    let count = name.chars().count();
    match count <= most {
        true => name.to_string(),
        false => format!("…{}", name.chars().skip(count - most + 1).collect::<String>()),
    }
}
