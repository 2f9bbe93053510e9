//! What `fitgpt compare` prints: the table of runs, the settings that differ, the chart; and the
//! same as a document.

use crate::numbers::{duration, grouped, short};
use crate::screen;
use console::Style;
use events::Reason;
use plots::compare::{By, Cell, Chart, Curve, RunLog, has_faint, terminal};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// The version of the document.
const SCHEMA: &str = "fitgpt.compare/1";

/// Colours of the runs in a terminal; after the last they repeat.
const COLOURS: [u8; 8] = [33, 208, 36, 170, 178, 99, 37, 245];

/// Most columns and rows of a chart.
const WIDEST: usize = 120;
const ROWS: usize = 18;

/// Longest name of a run in the table, and longest value of a setting.
const NAME: usize = 32;
const VALUE: usize = 24;

/// Keys that say nothing about the result.
const UNIMPORTANT: [&str; 6] =
    ["out_dir", "wandb_run_name", "wandb_log", "tensorboard", "csv", "trackio"];

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
        let mut text = table(self.runs, width, has_letters);
        text += &differences_text(self.runs);
        if self.chart.is_empty(self.by) {
            let by = self.by.word();
            return text + &format!("\nNothing to plot by {by} yet.\n");
        }
        text += &format!("\n{}\n", screen::strong(&self.title()));
        let columns = width.min(WIDEST);
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

/// One row for each run; where that is too wide, one block.
fn table(runs: &[(String, RunLog)], width: usize, has_letters: bool) -> String {
    let mark = |index: usize| {
        let style = Style::new().color256(COLOURS[index % COLOURS.len()]);
        let letter = char::from(b'a' + (index % 26) as u8).to_string();
        if has_letters { letter } else { style.apply_to("━").to_string() }
    };
    let names: Vec<String> = runs.iter().map(|(name, _)| shortened(name, NAME)).collect();
    let rows: Vec<[(&str, String); 8]> = runs.iter().map(|(_, log)| facts(log)).collect();
    let wide = |text: &str| console::measure_text_width(text);
    let name_width = names.iter().map(|name| wide(name)).max().unwrap_or(0).max(3);
    let columns: Vec<usize> = (0..8)
        .map(|at| rows.iter().map(|row| wide(&row[at].1).max(wide(row[at].0))).max().unwrap_or(0))
        .collect();
    let needed = 2 + name_width + columns.iter().map(|column| column + 2).sum::<usize>();
    let mut text = String::new();
    if needed > width {
        for (index, (name, row)) in names.iter().zip(&rows).enumerate() {
            text += &format!("{} {}\n", mark(index), screen::strong(name));
            for (heading, value) in row {
                text += &format!("  {heading:<14}{value}\n");
            }
        }
        return text;
    }
    let padded = |value: &str, column: usize| " ".repeat(column + 2 - wide(value)) + value;
    if let Some(row) = rows.first() {
        let mut heading = format!("  {:<name_width$}", "run");
        for (at, (name, _)) in row.iter().enumerate() {
            heading += &padded(name, columns[at]);
        }
        text += &format!("{}\n", screen::strong(&heading));
    }
    for (index, (name, row)) in names.iter().zip(&rows).enumerate() {
        text += &format!("{} {name}{}", mark(index), " ".repeat(name_width - wide(name)));
        for (at, (_, value)) in row.iter().enumerate() {
            text += &padded(value, columns[at]);
        }
        text.push('\n');
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

/// Keys whose values differ between the runs, with the values in their order.
fn differences(runs: &[(String, RunLog)]) -> Vec<(&str, Vec<Value>)> {
    let mut keys: Vec<&str> = Vec::new();
    for (_, log) in runs {
        let new = log.config.keys().map(String::as_str).filter(|key| !UNIMPORTANT.contains(key));
        let new: Vec<&str> = new.filter(|key| !keys.contains(key)).collect();
        keys.extend(new);
    }
    let values = |key: &str| -> Vec<Value> {
        runs.iter().map(|(_, log)| log.config.get(key).cloned().unwrap_or_default()).collect()
    };
    let all = keys.into_iter().map(|key| (key, values(key)));
    all.filter(|(_, values)| values.windows(2).any(|pair| pair[0] != pair[1])).collect()
}

fn differences_text(runs: &[(String, RunLog)]) -> String {
    let found = differences(runs);
    let widest = found.iter().map(|(key, _)| key.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for (key, values) in &found {
        let value = |value: &Value| match value {
            Value::Null => NOTHING.to_string(),
            Value::String(text) => shortened(text, VALUE),
            other => shortened(&other.to_string(), VALUE),
        };
        let values: Vec<String> = values.iter().map(value).collect();
        let indent = widest + 4;
        let room = screen::wrap_width().saturating_sub(indent).max(20);
        let values = screen::wrapped(&values.join(" | "), indent, room);
        text += &format!("  {key:<widest$}  {values}\n");
    }
    match found.is_empty() {
        true => text,
        false => format!("\n{}\n{text}", screen::strong("settings that differ")),
    }
}

/// The document: the same facts, and the curves.
pub fn document(runs: &[(String, RunLog)], paths: &[PathBuf]) -> Value {
    let rows: Vec<Value> = runs
        .iter()
        .zip(paths)
        .map(|((name, log), path)| {
            let curves =
                log.curves.iter().map(|(metric, curve)| (metric.to_string(), points(curve)));
            json!({
                "name": name,
                "log": path.display().to_string(),
                "iterations": log.iterations,
                "tokens": log.tokens,
                "seconds": log.seconds,
                "best": log.best().map(|(iter, loss)| json!({"iter": iter, "val_loss": loss})),
                "last_loss": log.last_loss(),
                "tokens_per_second": log.tokens_per_second(),
                "end": log.end,
                "resumed": log.resumed,
                "unreadable_lines": log.unreadable,
                "config": log.config,
                "curves": curves.collect::<Map<String, Value>>(),
            })
        })
        .collect();
    let different: Map<String, Value> = differences(runs)
        .into_iter()
        .map(|(key, values)| (key.to_string(), Value::Array(values)))
        .collect();
    json!({"schema": SCHEMA, "runs": rows, "differences": different})
}

fn points(curve: &Curve) -> Value {
    // What is not known is NaN, which JSON writes as null.
    let column = |of: fn(&plots::compare::At) -> Value| -> Vec<Value> {
        curve.points().map(|at| of(&at)).collect()
    };
    json!({
        "points_in_each": curve.each(),
        "iter": column(|at| at.iter.into()),
        "tokens": column(|at| at.tokens.into()),
        "seconds": column(|at| at.seconds.into()),
        "value": column(|at| at.value.into()),
    })
}
