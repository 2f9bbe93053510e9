//! The doctor's report as JSON: `fitgpt.doctor/1`. `docs/doctor-json.md` lists its fields.

use doctor::diagnosis::Diagnosis;
use doctor::fixes::Fix;
use doctor::report::Report;
use plan::Dtype;
use serde_json::{Map, Value, json};

/// The first field of the document.
pub const SCHEMA: &str = "fitgpt.doctor/1";

/// The whole report.
pub fn of(report: &Report<'_>) -> Value {
    let Diagnosis { log, tensor, phase, cause, budget, .. } = report.diagnosis;
    let message = log.as_ref().map(|log| &log.message);
    let requested = message.and_then(|message| message.requested.as_ref());
    let words = report.language.words();
    let memory = report.diagnosis.memory.iter();
    let advice = report.diagnosis.advice.iter().map(|judged| {
        json!({
            "advice": judged.advice.name(),
            "verdict": judged.verdict.name(),
            "bytes": judged.bytes,
            "note": words.note(judged.note),
        })
    });
    let recommended = report.recommended().into_iter().map(|(key, value)| (key, typed(&value)));
    json!({
        "schema": SCHEMA,
        "dialect": message.map_or("none", |message| message.dialect.name()),
        "phase": phase.name(),
        "requested_bytes": requested.map(|size| size.bytes),
        "budget_bytes": budget,
        "tensor": tensor.as_ref().map(|tensor| json!({
            "name": tensor.name,
            "shape": tensor.shape,
            "dtype": dtype(tensor.dtype),
            "confidence": tensor.confidence.name(),
            "alternatives": tensor.alternatives,
        })),
        "cause": cause.name(),
        "memory": memory
            .map(|(what, bytes)| json!({ "what": what.name(), "bytes": bytes }))
            .collect::<Vec<_>>(),
        "predicted_peaks": report
            .peaks()
            .into_iter()
            .map(|(phase, allocated, needed)| {
                json!({ "phase": phase, "allocated_bytes": allocated, "device_bytes": needed })
            })
            .collect::<Vec<_>>(),
        "advice": advice.collect::<Vec<_>>(),
        "fixes": report.diagnosis.fixes.iter().map(|one| fix(report, one)).collect::<Vec<_>>(),
        "recommended_config": Map::from_iter(recommended),
        "nanogpt_command": report.nanogpt_command(),
        "fitgpt_command": report.fitgpt_command(),
        "fitgpt_device_bytes": report.diagnosis.fitgpt.as_ref().map(|command| command.device_bytes),
        "unrelated": log.as_ref().map_or(Vec::new(), |log| log.run.unrelated.clone()),
        "unknown": report
            .diagnosis
            .unknown
            .iter()
            .map(|unknown| words.unknown(*unknown))
            .collect::<Vec<_>>(),
    })
}

fn fix(report: &Report<'_>, fix: &Fix) -> Value {
    let settings = fix.settings.iter().map(|(key, value)| ((*key).to_string(), typed(value)));
    json!({
        "settings": Map::from_iter(settings),
        "fits": true, // fixes that do not fit are left out
        "device_bytes": fix.device_bytes,
        "tokens_per_iteration": fix.tokens_per_iteration,
        "predicted_tokens_per_second": fix.tokens_per_second.map(|rate| rate.round() as u64),
        "note": report.note(fix),
    })
}

/// A value as JSON: numbers and flags are not strings.
fn typed(text: &str) -> Value {
    match text {
        "True" => json!(true),
        "False" => json!(false),
        text => match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(number), _) => json!(number),
            (_, Ok(number)) if number.is_finite() => json!(number),
            _ => json!(text),
        },
    }
}

fn dtype(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F32 => "float32",
        Dtype::Bf16 => "bfloat16",
        Dtype::F16 => "float16",
        Dtype::I32 => "int32",
        Dtype::U32 => "uint32",
    }
}
