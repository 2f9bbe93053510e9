//! The doctor's report as JSON: `fitgpt.doctor/2`. `docs/doctor-json.md` lists its fields.

use doctor::advice::{Judged, Verdict};
use doctor::diagnosis::Diagnosis;
use doctor::fixes::{Fix, needs};
use doctor::log::{Log, LogPhase, Origin};
use doctor::patch::Patch;
use doctor::report::{Report, dtype_name};
use doctor::room::RoomSource;
use doctor::suggested::{Outcome, Suggested};
use doctor::tensor::{Named, Other};
use serde_json::{Map, Value, json};

/// The first field of the document.
pub const SCHEMA: &str = "fitgpt.doctor/2";

/// The whole report.
pub fn of(report: &Report<'_>) -> Value {
    let found = report.diagnosis;
    let log = found.log.as_ref();
    let message = log.map(|log| &log.message);
    let words = report.language.words();
    let room = found.room;
    let account = found.account.rows.iter();
    let peaks = found.peaks.iter();
    let recommended = report.recommended().into_iter().map(|(key, value)| (key, typed(&value)));
    json!({
        "schema": SCHEMA,
        "language": report.language.code(),
        "program": log.map(|log| log.program.program.name()),
        "backend": log.map(|log| log.backend.name()),
        "system": log.map(|log| log.system.name()),
        "dialect": message.map_or("none", |message| message.dialect.name()),
        "phase": found.phase.name(),
        "requested_bytes": message.and_then(|m| m.requested.as_ref()).map(|size| size.bytes),
        "budget_bytes": room.map(|room| room.free()),
        "needed_bytes": found.needs,
        "tensor": found.tensor.as_ref().map(tensor),
        "cause": found.cause.name(),
        "summary": report.summary(),
        "memory": account
            .map(|(what, bytes)| json!({ "what": what.name(), "bytes": bytes }))
            .collect::<Vec<_>>(),
        "memory_total_bytes": found.account.total,
        "predicted_peaks": peaks.map(|peak| json!({
            "phase": peak.phase.name(),
            "allocated_bytes": peak.bytes,
            "device_bytes": needs(peak.bytes),
        })).collect::<Vec<_>>(),
        "claims": judged(report, true),
        "advice": judged(report, false),
        "suggested": found.suggested.as_ref().map(suggested),
        "remedies": found.remedies.iter()
            .map(|remedy| json!({ "remedy": remedy.name(), "text": words.remedy(*remedy) }))
            .collect::<Vec<_>>(),
        "fixes": found.fixes.iter().map(|one| fix(report, one)).collect::<Vec<_>>(),
        "recommended_config": Map::from_iter(recommended),
        "nanogpt_command": report.nanogpt_command(),
        "nanogpt_patch": found.patch.as_ref().map(patch),
        "fitgpt_command": report.fitgpt_command(),
        "fitgpt_device_bytes": found.fitgpt.as_ref().map(|command| command.device_bytes),
        "fitgpt_tokens_per_second":
            found.fitgpt.as_ref().and_then(|one| one.tokens_per_second).map(f64::round),
        "fitgpt_run_seconds": found.fitgpt.as_ref().and_then(|one| one.run_seconds).map(f64::round),
        "fitgpt_card": found.fitgpt.as_ref().map(|command| command.card),
        "facts": facts(found),
        "unrelated": log.map_or(Vec::new(), |log| log.run.unrelated.clone()),
        "unknown": found.unknown.iter()
            .map(|unknown| json!({ "what": unknown.name(), "text": words.unknown(*unknown) }))
            .collect::<Vec<_>>(),
    })
}

fn patch(patch: &Patch) -> Value {
    let settings = patch.settings.iter().map(|(key, value)| ((*key).to_string(), typed(value)));
    json!({
        "changes": patch.changes.iter().map(|change| change.name()).collect::<Vec<_>>(),
        "device_bytes": patch.device_bytes,
        "missing_bytes": patch.missing,
        "settings": Map::from_iter(settings),
        "diff": patch.diff(),
    })
}

fn tensor(tensor: &Named) -> Value {
    let other = |other: &Other| format!("{} {:?}", other.name, other.shape);
    json!({
        "name": tensor.name,
        "shape": tensor.shape,
        "dtype": dtype_name(tensor.dtype),
        "confidence": tensor.confidence.name(),
        "alternatives": tensor.alternatives.iter().map(other).collect::<Vec<_>>(),
    })
}

fn judged(report: &Report<'_>, claimed: bool) -> Vec<Value> {
    let words = report.language.words();
    let row = |judged: &Judged| {
        let missing = match judged.verdict {
            Verdict::NotAlone { missing } => Some(missing),
            _ => None,
        };
        json!({
            "claim": judged.claim.name(),
            "line": judged.line,
            "verdict": judged.verdict.name(),
            "bytes": judged.bytes,
            "missing_bytes": missing,
            "note": report.numbers().filled(words.note(judged.note), &judged.figures),
        })
    };
    let rows = report.diagnosis.advice.iter().filter(|one| one.line.is_some() == claimed);
    rows.map(row).collect()
}

fn suggested(suggested: &Suggested) -> Value {
    let settings = suggested.settings.iter().map(|(key, value)| (key.clone(), typed(value)));
    let (device_bytes, missing, runs) = match suggested.outcome {
        Outcome::Needs { bytes, missing } => (Some(bytes), Some(missing), true),
        Outcome::Heads { .. } => (None, None, false),
    };
    json!({
        "settings": Map::from_iter(settings),
        "ignored": suggested.ignored,
        "runs": runs,
        "device_bytes": device_bytes,
        "missing_bytes": missing,
    })
}

fn fact(name: &str, value: Value, source: &str) -> Value {
    let rows = [("fact", json!(name)), ("value", value), ("source", json!(source))];
    Value::Object(Map::from_iter(rows.map(|(key, value)| (key.to_string(), value))))
}

/// Every fact with where it is from: read in the text, given by the user, derived from others, or
/// assumed.
fn facts(found: &Diagnosis) -> Vec<Value> {
    let mut facts = Vec::new();
    if let Some(log) = &found.log {
        facts.extend(figures(log).into_iter().map(|(name, n)| fact(name, json!(n), "read")));
        let source = match (found.phase, log.traceback.phase) {
            (LogPhase::Unknown, _) => "unknown",
            (now, said) if now == said => "read",
            _ => "derived",
        };
        facts.push(fact("phase", json!(found.phase.name()), source));
        facts.push(fact("program", json!(log.program.program.name()), "read"));
        if found.account.others > 0 {
            facts.push(fact("other_programs_bytes", json!(found.account.others), "derived"));
        }
    } else {
        facts.push(fact("phase", json!(found.phase.name()), "derived"));
    }
    if let Some(recovered) = found.recovered.as_ref().filter(|_| found.modelled) {
        for row in &recovered.settings {
            let source = match row.origin {
                Origin::Given => "given",
                Origin::Assumed => "assumed",
                _ => "read",
            };
            facts.push(fact(&row.key, typed(&row.value), source));
        }
        for (key, value) in assumed(found) {
            facts.push(fact(key, value, "assumed"));
        }
    }
    facts.extend(of_machine(found));
    facts.push(fact("cause", json!(found.cause.name()), "derived"));
    facts
}

/// The card's memory, what others hold of it, and the card.
fn of_machine(found: &Diagnosis) -> Vec<Value> {
    let mut facts = Vec::new();
    if let Some(room) = found.room {
        let source = match room.source {
            RoomSource::Vram | RoomSource::Used => "given",
            RoomSource::Cap | RoomSource::Message | RoomSource::Told => "read",
            RoomSource::Headless => "derived",
            RoomSource::Desktop => "assumed",
        };
        let printed = found.log.as_ref().and_then(|log| log.message.limit());
        let of_card = match (room.source, printed) {
            (RoomSource::Vram, _) => "given",
            (_, Some(_)) => "read",
            (_, None) => "derived",
        };
        facts.push(fact("card_bytes", json!(room.limit), of_card));
        facts.push(fact("in_use_bytes", json!(room.used), source));
    }
    if let Some(command) = &found.fitgpt {
        let named = found.log.as_ref().is_some_and(|log| log.run.card.is_some());
        let source = match () {
            () if command.guessed => "assumed",
            () if named => "read",
            () => "given",
        };
        facts.push(fact("card", json!(command.card), source));
    }
    facts
}

/// The figures that the message has.
fn figures(log: &Log) -> Vec<(&'static str, u64)> {
    let message = &log.message;
    let rows = [
        ("requested_bytes", &message.requested),
        ("capacity_bytes", &message.capacity),
        ("free_bytes", &message.free),
        ("process_bytes", &message.process),
        ("allowed_bytes", &message.allowed),
        ("allocated_bytes", &message.allocated),
        ("reserved_bytes", &message.reserved),
        ("unallocated_bytes", &message.unallocated),
    ];
    let sizes = rows.into_iter().filter_map(|(name, size)| Some((name, size.as_ref()?.bytes)));
    let said = log.run.parameters.or(log.run.named_model);
    sizes.chain(said.map(|said| ("parameters", said.count))).collect()
}

/// Settings that decide the memory and that nobody gave: nanoGPT's defaults.
fn assumed(found: &Diagnosis) -> Vec<(&'static str, Value)> {
    let Some(recovered) = &found.recovered else {
        return Vec::new();
    };
    let run = &recovered.torch;
    let all = [
        ("batch_size", json!(run.batch)),
        ("block_size", json!(run.positions)),
        ("n_layer", json!(run.dims.n_layer)),
        ("n_head", json!(run.dims.n_head)),
        ("n_embd", json!(run.dims.n_embd)),
        ("gradient_accumulation_steps", json!(run.accumulation)),
        ("dtype", json!(dtype_name(run.compute))),
        ("compile", json!(run.compiled)),
        ("dropout", json!(run.dropout)),
    ];
    let is_known = |key: &str| recovered.settings.iter().any(|row| row.key == key);
    all.into_iter().filter(|(key, _)| !is_known(key)).collect()
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
