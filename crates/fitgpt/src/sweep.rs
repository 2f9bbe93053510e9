//! `fitgpt plan --sweep key=a,b,c`: compares the same run with several values of one or two keys.

use crate::numbers::{duration, short};
use crate::plan_report::{PlanReport, document, sentence};
use crate::planning::{Elsewhere, Planning};
use crate::screen::{self, show_json};
use plan::Bytes;
use search::SearchError;
use serde_json::{Value, json};
use spec::{KEYS, Pair, SpecError};
use train::TrainError;

/// The largest head size that the kernels support.
const WIDEST_HEAD: u64 = 128;

/// The most plans of a sweep.
const MOST: usize = 64;

/// The result for one combination of values.
struct Row {
    /// The swept keys and values, as typed.
    settings: Vec<(String, String)>,
    planning: Option<Planning>,
    plan: Result<Box<PlanReport>, TrainError>,
}

/// A key and its values.
struct Axis<'a> {
    key: &'a str,
    values: Vec<&'a str>,
}

/// A sweep that the user asked for.
pub struct Sweep<'a> {
    /// Keys with their values: `n_embd=576,512`.
    pub wanted: &'a [String],
    /// The card to plan for.
    pub elsewhere: Elsewhere<'a>,
    /// Config files and keys that all plans have in common.
    pub rest: &'a [String],
    /// Whether the table is a JSON document.
    pub json: bool,
}

impl Sweep<'_> {
    /// Plans every value, or every pair of values of two keys, and prints the table. Returns 3 if
    /// none of them fits.
    pub fn run(&self) -> Result<u8, TrainError> {
        let axes: Vec<Axis> =
            self.wanted.iter().map(|wanted| axis(wanted)).collect::<Result<_, _>>()?;
        let refuse = |what: String| Err(SpecError::Conflict { what }.into());
        let mut points: Vec<Vec<(String, String)>> = vec![Vec::new()];
        for (index, Axis { key, values }) in axes.iter().enumerate() {
            if axes[..index].iter().any(|other| other.key == *key) {
                return refuse(format!(
                    "--sweep {key} is given twice; give all its values at once"
                ));
            }
            self.check(key, values)?;
            let with = |point: &Vec<(String, String)>| {
                let pair = |value: &&str| ((*key).to_string(), (*value).to_string());
                let one = |value| point.iter().cloned().chain([pair(value)]).collect::<Vec<_>>();
                values.iter().map(one).collect::<Vec<_>>()
            };
            points = points.iter().flat_map(with).collect();
            if points.len() > MOST {
                return refuse(format!(
                    "--sweep: {} plans, but at most {MOST} at a time",
                    points.len()
                ));
            }
        }
        let rows: Vec<Row> = points.into_iter().map(|settings| self.row(settings)).collect();
        if self.json {
            let all: Vec<Value> = rows.iter().map(as_json).collect();
            show_json(&json!({ "schema": document::SCHEMA, "sweep": all }))?;
        } else {
            if let Some(first) = rows.iter().find_map(|row| row.planning.as_ref()) {
                first.introduce();
            }
            let keys: Vec<&str> = axes.iter().map(|axis| axis.key).collect();
            table(&keys, &rows);
        }
        Ok(if rows.iter().any(|row| row.plan.is_ok()) { 0 } else { 3 })
    }

    fn check(&self, key: &str, values: &[&str]) -> Result<(), TrainError> {
        let (gpu, vram) = (self.elsewhere.gpu.is_some(), self.elsewhere.vram.is_some());
        let fixed =
            [("vram", "--vram", vram), ("device", "--gpu", gpu), ("device", "--vram", vram)];
        if let Some((_, flag, _)) = fixed.iter().find(|(swept, _, given)| *swept == key && *given) {
            let what = format!("--sweep {key}=…: {flag} already sets {key}; leave one of them out");
            return Err(SpecError::Conflict { what }.into());
        }
        if !KEYS.iter().any(|known| known.name == key) {
            // Fails with the usual message for an unknown key.
            self.planning(&[(key.to_string(), values[0].to_string())])?;
        }
        Ok(())
    }

    /// Plans one row. If the heads do not divide a swept width, uses a number of heads that does.
    fn row(&self, mut settings: Vec<(String, String)>) -> Row {
        let mut found = self.planning(&settings);
        let is_swept = |key: &str| settings.iter().any(|(swept, _)| swept == key);
        let heads_are_free = is_swept("n_embd") && !is_swept("n_head");
        if let (Err(TrainError::Spec(SpecError::Heads { n_embd, nearest, .. })), true) =
            (&found, heads_are_free)
        {
            let usable =
                |pair: &&Pair| pair.n_embd == *n_embd && n_embd / pair.n_head <= WIDEST_HEAD;
            if let Some(pair) = nearest.iter().find(usable) {
                settings.push(("n_head".to_string(), pair.n_head.to_string()));
                found = self.planning(&settings);
            }
        }
        match found {
            Err(error) => Row { settings, planning: None, plan: Err(error) },
            Ok(planning) => {
                let plan = planning.plan().map(Box::new);
                Row { settings, planning: Some(planning), plan }
            }
        }
    }

    fn planning(&self, settings: &[(String, String)]) -> Result<Planning, TrainError> {
        let typed = settings.iter().map(|(key, value)| format!("--{key}={value}"));
        let arguments: Vec<String> = self.rest.iter().cloned().chain(typed).collect();
        Planning::new(&self.elsewhere, &arguments)
    }
}

fn axis(wanted: &str) -> Result<Axis<'_>, SpecError> {
    let bad = || SpecError::Conflict {
        what: format!("--sweep '{wanted}': write key=a,b,c, e.g. --sweep n_embd=576,512,448"),
    };
    let (key, values) = wanted.split_once('=').ok_or_else(bad)?;
    let key = key.trim().trim_start_matches("--");
    let values: Vec<&str> = values.split(',').map(str::trim).filter(|v| !v.is_empty()).collect();
    match key.is_empty() || values.is_empty() || values.len() > MOST {
        true => Err(bad()),
        false => Ok(Axis { key, values }),
    }
}

fn as_json(row: &Row) -> Value {
    let mut document = match (&row.plan, &row.planning) {
        (Ok(report), _) => document::of(report),
        (Err(TrainError::Search(SearchError::DoesNotFit(refusal))), Some(planning)) => {
            document::of_refusal(&planning.run, &planning.machine, refusal, planning.named)
        }
        (Err(error), _) => json!({ "fits": false, "error": error.to_string() }),
    };
    let settings = row.settings.iter().map(|(key, value)| (key.clone(), json!(value)));
    document["settings"] = Value::Object(settings.collect());
    document
}

fn table(keys: &[&str], rows: &[Row]) {
    let columns = ["params", "memory", "slices", "chunk", "recompute", "tok/s", "whole run"];
    let head: Vec<String> = keys.iter().chain(&columns).map(|name| name.to_string()).collect();
    let cells: Vec<Vec<String>> = rows.iter().map(|row| cells(row, keys.len())).collect();
    let width = |column: usize| {
        let all = cells.iter().map(|row| row[column].chars().count());
        all.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |row: &[String]| {
        let padded = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    screen::line(&screen::strong(&line(&head)));
    for row in &cells {
        screen::line(&line(row));
    }
    let planned: Vec<&Planning> = rows.iter().filter_map(|row| row.planning.as_ref()).collect();
    if let Some(planning) = planned.first() {
        let same = planned.iter().all(|other| other.machine.budget == planning.machine.budget);
        let budget =
            if same { format!("budget {} on ", planning.machine.budget) } else { String::new() };
        screen::line(&screen::faint(&format!("{budget}{}", planning.machine.hardware.name)));
    }
}

fn cells(row: &Row, keys: usize) -> Vec<String> {
    let mut cells: Vec<String> =
        row.settings.iter().take(keys).map(|(_, value)| value.clone()).collect();
    // Show a chosen n_head next to the width.
    let width = row.settings.iter().position(|(key, _)| key == "n_embd");
    for (key, value) in row.settings.iter().skip(keys) {
        if let Some(cell) = width.and_then(|width| cells.get_mut(width)) {
            *cell += &format!(" {key}={value}");
        }
    }
    let count =
        |planning: &Planning| planning.run.architecture().reported_parameters(&planning.dims).ok();
    let parameters = row.planning.as_ref().and_then(count);
    let parameters = parameters.map_or("-".to_string(), |n| format!("{:.1}M", n as f64 / 1e6));
    let none = || "-".to_string();
    cells.push(parameters);
    match &row.plan {
        Ok(report) => {
            let cut = report.planned.cut();
            let cut = cut.as_ref();
            let prediction = report.prediction.as_ref();
            let rate = prediction.and_then(|prediction| prediction.tokens_per_second);
            cells.extend([
                Bytes::new(report.device_bytes()).unwrap_or(Bytes::ZERO).to_string(),
                cut.map_or_else(none, |cut| sentence::groups(&cut.slices)),
                cut.map_or_else(none, |cut| cut.head_chunk.to_string()),
                cut.map_or_else(none, |cut| sentence::of_levels(&cut.levels)),
                rate.map_or_else(none, short),
                prediction.map_or_else(none, |p| duration(p.run_seconds)),
            ]);
        }
        Err(TrainError::Search(SearchError::DoesNotFit(refusal))) => {
            let missing = refusal.missing.max(refusal.missing_host);
            cells.push(format!("{} ({missing} missing)", refusal.needed));
        }
        Err(error) => cells.push(error.to_string()),
    }
    cells.resize_with(keys + 7, String::new);
    cells
}
