//! The settings that differ between runs.

use super::{NOTHING, shortened};
use crate::screen;
use console::measure_text_width;
use plots::compare::RunLog;
use serde_json::Value;

/// Keys that say nothing about the result.
const UNIMPORTANT: [&str; 6] =
    ["out_dir", "wandb_run_name", "wandb_log", "tensorboard", "csv", "trackio"];

const INIT_FROM: &str = "init_from";

/// Longest name of a run and longest value of a setting.
const LONGEST: usize = 24;

const TITLE: &str = "settings that differ";

/// Keys whose values differ between the runs, with the values in their order.
pub fn differences(runs: &[(String, RunLog)]) -> Vec<(&str, Vec<Value>)> {
    let mut keys: Vec<&str> = Vec::new();
    for (_, log) in runs {
        let new = log.config.keys().map(String::as_str).filter(|key| !UNIMPORTANT.contains(key));
        let new: Vec<&str> = new.filter(|key| !keys.contains(key)).collect();
        keys.extend(new);
    }
    let values = |key: &str| -> Vec<Value> {
        runs.iter().map(|(_, log)| log.config.get(key).cloned().unwrap_or_default()).collect()
    };
    let is_different = |(key, values): &(&str, Vec<Value>)| {
        // The beginning of a log may be lost, and with it what the run began with.
        let known = values.iter().filter(|value| *key != INIT_FROM || !value.is_null());
        let known: Vec<&Value> = known.collect();
        known.windows(2).any(|pair| pair[0] != pair[1])
    };
    keys.into_iter().map(|key| (key, values(key))).filter(is_different).collect()
}

/// A row for each key and a column for each run; where that is too wide, each value with the runs
/// that have it.
pub fn text(runs: &[(String, RunLog)], width: usize) -> String {
    let shown = |value: &Value| match value {
        Value::Null => NOTHING.to_string(),
        Value::String(text) if text.is_empty() => "''".to_string(),
        Value::String(text) => shortened(text, LONGEST),
        other => shortened(&other.to_string(), LONGEST),
    };
    let rows: Vec<Row<'_>> = differences(runs)
        .into_iter()
        .map(|(key, values)| Row { key, values: values.iter().map(shown).collect() })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let names: Vec<String> = runs.iter().map(|(name, _)| shortened(name, LONGEST)).collect();
    let text = columns(&names, &rows, width).unwrap_or_else(|| values(&names, &rows, width));
    format!("\n{text}")
}

/// A key, and its value in each run.
struct Row<'a> {
    key: &'a str,
    values: Vec<String>,
}

/// None if there is not enough room.
fn columns(names: &[String], rows: &[Row<'_>], width: usize) -> Option<String> {
    let keys = rows.iter().map(|row| row.key.len() + 2).max().unwrap_or(0).max(TITLE.len());
    let wide = |at: usize| {
        let values = rows.iter().map(|row| measure_text_width(&row.values[at]));
        values.max().unwrap_or(0).max(measure_text_width(&names[at]))
    };
    let widths: Vec<usize> = (0..names.len()).map(wide).collect();
    if keys + widths.iter().map(|column| column + 2).sum::<usize>() > width {
        return None;
    }
    let aligned = |values: &[String]| -> String {
        let space = |value: &str, width: usize| width + 2 - measure_text_width(value);
        let cells = values.iter().zip(&widths);
        cells.map(|(value, width)| " ".repeat(space(value, *width)) + value).collect()
    };
    let mut text = screen::strong(&format!("{TITLE:<keys$}{}", aligned(names))) + "\n";
    for row in rows {
        text += &format!("{:<keys$}{}\n", format!("  {}", row.key), aligned(&row.values));
    }
    Some(text)
}

fn values(names: &[String], rows: &[Row<'_>], width: usize) -> String {
    let mut text = screen::strong(TITLE) + "\n";
    for row in rows {
        text += &format!("  {}\n", row.key);
        let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
        for (value, name) in row.values.iter().zip(names) {
            match groups.iter_mut().find(|(found, _)| found == value) {
                Some((_, runs)) => runs.push(name),
                None => groups.push((value, vec![name])),
            }
        }
        let widest = groups.iter().map(|(value, _)| measure_text_width(value)).max().unwrap_or(0);
        for (value, runs) in groups {
            let space = " ".repeat(widest - measure_text_width(value) + 2);
            let line = format!("    {value}{space}{}", runs.join(", "));
            text += &(wrapped_list(&line, widest + 6, width) + "\n");
        }
    }
    text
}

/// Wraps a list at its commas; all lines but the first are indented.
fn wrapped_list(line: &str, indent: usize, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for part in line.split_inclusive(", ") {
        match lines.last_mut() {
            Some(last)
                if measure_text_width(last) + measure_text_width(part.trim_end()) <= width =>
            {
                *last += part;
            }
            Some(_) => lines.push(" ".repeat(indent) + part),
            None => lines.push(part.to_string()),
        }
    }
    let trimmed: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
    trimmed.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use plots::compare::RunLog;
    use serde_json::json;

    fn runs(count: usize) -> Vec<(String, RunLog)> {
        let run = |index: usize| {
            let mut log = RunLog::default();
            let rate = [0.003, 0.001][index % 2];
            let config = json!({"learning_rate": rate, "batch_size": 12, "out_dir": index});
            log.config = config.as_object().cloned().unwrap();
            (format!("out-{index}"), log)
        };
        (0..count).map(run).collect()
    }

    #[test]
    fn two_runs_are_columns() {
        let want = "\nsettings that differ  out-0  out-1\n  learning_rate       0.003  0.001\n";
        assert_eq!(console::strip_ansi_codes(&text(&runs(2), 80)), want);
        assert_eq!(text(&runs(1), 80), "");
    }

    /// Every value is there once, with the runs that have it, and no line is too long.
    #[test]
    fn many_runs_are_grouped_by_value() {
        for width in [40, 60, 80] {
            let text = text(&runs(12), width);
            let text = console::strip_ansi_codes(&text);
            assert!(text.lines().all(|line| line.len() <= width), "{text}");
            assert_eq!((text.matches("0.003").count(), text.matches("out-").count()), (1, 12));
            assert!(text.contains("\n    0.001  out-1, out-3, "), "{text}");
        }
    }

    /// A resumed run whose beginning is lost does not say what it began with.
    #[test]
    fn an_unknown_beginning_is_no_difference() {
        let mut runs = runs(3);
        runs[0].1.config.insert("init_from".to_string(), json!("scratch"));
        runs[1].1.config.insert("init_from".to_string(), json!("scratch"));
        assert!(!differences(&runs).iter().any(|(key, _)| *key == "init_from"));
        runs[2].1.config.insert("init_from".to_string(), json!("gpt2"));
        assert!(differences(&runs).iter().any(|(key, _)| *key == "init_from"));
    }
}
