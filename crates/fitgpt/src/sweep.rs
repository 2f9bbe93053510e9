//! `fitgpt plan --sweep key=a,b,c`: the same run with one key changed, side by side.

use crate::commands::plan::{Case, show_json};
use crate::flags::Given;
use crate::numbers::{duration, short};
use crate::plan_report::{PlanReport, document, sentence};
use crate::screen;
use plan::Bytes;
use serde_json::{Value, json};
use spec::{KEYS, Pair, SpecError};
use train::TrainError;

/// Widest head that kernels have.
const WIDEST_HEAD: u64 = 128;

/// Most values of a sweep.
const MOST: usize = 64;

/// One value's outcome.
struct Row {
    /// The settings of this row, as typed.
    settings: Vec<(String, String)>,
    case: Option<Case>,
    plan: Result<Box<PlanReport>, TrainError>,
}

/// Plans every value and shows the table; 3 when none of them fits.
pub fn run(flags: &Given, wanted: &str) -> Result<u8, TrainError> {
    let bad = || SpecError::Conflict {
        what: format!("--sweep '{wanted}': write key=a,b,c, e.g. --sweep n_embd=576,512,448"),
    };
    let (key, values) = wanted.split_once('=').ok_or_else(bad)?;
    let key = key.trim().trim_start_matches("--");
    let values: Vec<&str> = values.split(',').map(str::trim).filter(|v| !v.is_empty()).collect();
    if key.is_empty() || values.is_empty() || values.len() > MOST {
        return Err(bad().into());
    }
    let refuse = |what: String| Err(SpecError::Conflict { what }.into());
    for flag in ["--svg", "--measure"] {
        if flags.has(flag) {
            return refuse(format!("{flag} is for one plan: leave out --sweep"));
        }
    }
    let fixed = [("vram", "--vram"), ("device", "--gpu"), ("device", "--vram")];
    if let Some((_, flag)) = fixed.iter().find(|(swept, flag)| *swept == key && flags.has(flag)) {
        return refuse(format!(
            "--sweep {key}=…: {flag} says what {key} is; leave one of them out"
        ));
    }
    if !KEYS.iter().any(|known| known.name == key) {
        // Told as any unknown key is, with the nearest one.
        case(flags, &[(key.to_string(), values[0].to_string())])?;
    }
    let rows: Vec<Row> = values.iter().map(|value| row(flags, key, value)).collect();
    if flags.has("--json") {
        let all: Vec<Value> = rows.iter().map(as_json).collect();
        show_json(&json!({ "schema": document::SCHEMA, "sweep": all }))?;
    } else {
        if let Some(first) = rows.iter().find_map(|row| row.case.as_ref()) {
            first.introduce();
        }
        table(key, &rows);
    }
    Ok(if rows.iter().any(|row| row.plan.is_ok()) { 0 } else { 3 })
}

/// One value; where the heads do not divide the width, with heads that do.
fn row(flags: &Given, key: &str, value: &str) -> Row {
    let mut settings = vec![(key.to_string(), value.to_string())];
    let mut found = case(flags, &settings);
    if let (Err(TrainError::Spec(SpecError::Heads { n_embd, nearest, .. })), "n_embd") =
        (&found, key)
    {
        let usable = |pair: &&Pair| pair.n_embd == *n_embd && n_embd / pair.n_head <= WIDEST_HEAD;
        if let Some(pair) = nearest.iter().find(usable) {
            settings.push(("n_head".to_string(), pair.n_head.to_string()));
            found = case(flags, &settings);
        }
    }
    match found {
        Err(error) => Row { settings, case: None, plan: Err(error) },
        Ok(case) => {
            let plan = case.plan().map(Box::new);
            Row { settings, case: Some(case), plan }
        }
    }
}

fn case(flags: &Given, settings: &[(String, String)]) -> Result<Case, TrainError> {
    let typed = settings.iter().map(|(key, value)| format!("--{key}={value}"));
    let arguments: Vec<String> = flags.rest.iter().cloned().chain(typed).collect();
    Case::new(flags, &arguments)
}

fn as_json(row: &Row) -> Value {
    let mut document = match (&row.plan, &row.case) {
        (Ok(report), _) => document::of(report),
        (Err(TrainError::Spec(SpecError::DoesNotFit(refusal))), Some(case)) => {
            document::of_refusal(&case.run, &case.machine, refusal, case.named)
        }
        (Err(error), _) => json!({ "fits": false, "error": error.to_string() }),
    };
    let settings = row.settings.iter().map(|(key, value)| (key.clone(), json!(value)));
    document["settings"] = Value::Object(settings.collect());
    document
}

fn table(key: &str, rows: &[Row]) {
    let head = [key, "params", "memory", "slices", "chunk", "recompute", "tok/s", "whole run"];
    let cells: Vec<Vec<String>> = rows.iter().map(cells).collect();
    let width = |column: usize| {
        let all = cells.iter().map(|row| row[column].chars().count());
        all.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |row: &[String]| {
        let padded = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    screen::line(&screen::strong(&line(&head.map(String::from))));
    for row in &cells {
        screen::line(&line(row));
    }
    let cases: Vec<&Case> = rows.iter().filter_map(|row| row.case.as_ref()).collect();
    if let Some(case) = cases.first() {
        let same = cases.iter().all(|other| other.machine.budget == case.machine.budget);
        let budget =
            if same { format!("budget {} on ", case.machine.budget) } else { String::new() };
        screen::line(&screen::faint(&format!("{budget}{}", case.machine.device.name)));
    }
}

fn cells(row: &Row) -> Vec<String> {
    let values: Vec<String> = row
        .settings
        .iter()
        .enumerate()
        .map(|(index, (key, value))| match index {
            0 => value.clone(),
            _ => format!("{key}={value}"),
        })
        .collect();
    let dims = row.case.as_ref().map(|case| case.dims);
    let parameters = dims.and_then(|dims| model::params::reported_parameters(&dims).ok());
    let parameters = parameters.map_or("-".to_string(), |n| format!("{:.1}M", n as f64 / 1e6));
    let none = || "-".to_string();
    let mut cells = vec![values.join(" "), parameters];
    match &row.plan {
        Ok(report) => {
            let choice = report.planned.choice.as_ref();
            let prediction = report.prediction.as_ref();
            let rate = prediction.and_then(|prediction| prediction.tokens_per_second);
            cells.extend([
                Bytes::new(report.device_bytes()).unwrap_or(Bytes::ZERO).to_string(),
                choice.map_or_else(none, |choice| sentence::groups(&choice.slices)),
                choice.map_or_else(none, |choice| choice.head_chunk.to_string()),
                choice.map_or_else(none, |choice| sentence::groups(&choice.levels)),
                rate.map_or_else(none, short),
                prediction.map_or_else(none, |p| duration(p.run_seconds)),
            ]);
        }
        Err(TrainError::Spec(SpecError::DoesNotFit(refusal))) => {
            let missing = refusal.missing.max(refusal.missing_host);
            cells.push(format!("{} ({missing} missing)", refusal.needed));
        }
        Err(error) => cells.push(error.to_string()),
    }
    cells.resize_with(8, String::new);
    cells
}
