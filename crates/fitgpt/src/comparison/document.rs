//! The comparison as one JSON document, `docs/compare-json.md`.

use super::differences::differences;
use plots::compare::{Curve, RunLog};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// The version of the document.
const SCHEMA: &str = "fitgpt.compare/1";

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
