//! `fitgpt plan --sweep key=a,b,c`: the same run with one key changed, side by side.

use crate::commands::plan::{Case, show_json};
use crate::flags::Given;
use crate::numbers::{duration, short};
use crate::plan_report::{PlanReport, document, sentence};
use crate::screen;
use plan::Bytes;
use serde_json::{Value, json};
use spec::{Pair, SpecError};
use train::TrainError;

/// Most values of a sweep.
const MOST: usize = 64;

/// One value's outcome.
struct Row {
    /// The settings of this row, as typed.
    settings: Vec<(String, String)>,
    case: Case,
    plan: Result<Box<PlanReport>, Box<spec::Refusal>>,
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
    if flags.has("--svg") {
        let what = "--svg draws one plan: leave out --sweep".to_string();
        return Err(SpecError::Conflict { what }.into());
    }
    let rows =
        values.iter().map(|value| row(flags, key, value)).collect::<Result<Vec<Row>, _>>()?;
    if flags.has("--json") {
        let all: Vec<Value> = rows.iter().map(as_json).collect();
        show_json(&json!({ "schema": document::SCHEMA, "sweep": all }))?;
    } else {
        if let Some(first) = rows.first() {
            first.case.introduce();
        }
        table(key, &rows);
    }
    Ok(if rows.iter().any(|row| row.plan.is_ok()) { 0 } else { 3 })
}

/// One value; where the heads do not divide the width, with heads that do.
fn row(flags: &Given, key: &str, value: &str) -> Result<Row, TrainError> {
    let mut settings = vec![(key.to_string(), value.to_string())];
    let case = match case(flags, &settings) {
        Err(TrainError::Spec(SpecError::Heads { n_embd, nearest, .. })) if key == "n_embd" => {
            let same_width = |pair: &&Pair| pair.n_embd == n_embd;
            let heads = nearest.iter().find(same_width).map_or(1, |pair| pair.n_head);
            settings.push(("n_head".to_string(), heads.to_string()));
            case(flags, &settings)?
        }
        other => other?,
    };
    let plan = match case.plan() {
        Ok(report) => Ok(Box::new(report)),
        Err(TrainError::Spec(SpecError::DoesNotFit(refusal))) => Err(refusal),
        Err(other) => return Err(other),
    };
    Ok(Row { settings, case, plan })
}

fn case(flags: &Given, settings: &[(String, String)]) -> Result<Case, TrainError> {
    let typed = settings.iter().map(|(key, value)| format!("--{key}={value}"));
    let arguments: Vec<String> = flags.rest.iter().cloned().chain(typed).collect();
    Case::new(flags, &arguments)
}

fn as_json(row: &Row) -> Value {
    let mut document = match &row.plan {
        Ok(report) => document::of(report),
        Err(refusal) => {
            document::of_refusal(&row.case.run, &row.case.machine, refusal, row.case.named)
        }
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
    if let Some(Row { case, .. }) = rows.first() {
        let (budget, name) = (case.machine.budget, &case.machine.device.name);
        screen::line(&screen::faint(&format!("budget {budget} on {name}")));
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
    let parameters = model::params::reported_parameters(&row.case.dims);
    let parameters = parameters.map_or("?".to_string(), |n| format!("{:.1}M", n as f64 / 1e6));
    let none = || "-".to_string();
    match &row.plan {
        Ok(report) => {
            let bytes = Bytes::new(report.device_bytes()).unwrap_or(Bytes::ZERO);
            let choice = report.planned.choice.as_ref();
            let prediction = report.prediction.as_ref();
            vec![
                values.join(" "),
                parameters,
                bytes.to_string(),
                choice.map_or_else(none, |choice| sentence::groups(&choice.slices)),
                choice.map_or_else(none, |choice| choice.head_chunk.to_string()),
                choice.map_or_else(none, |choice| sentence::groups(&choice.levels)),
                prediction.map_or_else(none, |p| short(p.tokens_per_second)),
                prediction.map_or_else(none, |p| duration(p.run_seconds)),
            ]
        }
        Err(refusal) => {
            let missing = format!("{} ({} missing)", refusal.needed, refusal.missing());
            let mut cells = vec![values.join(" "), parameters, missing];
            cells.resize_with(8, none);
            cells
        }
    }
}
